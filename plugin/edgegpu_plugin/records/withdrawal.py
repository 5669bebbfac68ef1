"""Detection of an uninstall or withdrawal in progress, by the journal that the installer keeps of a change."""

from pathlib import Path

from edgegpu_base.files import stamp

LEAVING = frozenset({"uninstall", "withdraw"})
"""The installer's ops that remove sharing."""

UNDER_WAY = frozenset({"PREPARED", "STAGED", "SWAPPED", "RESTARTING", "VERIFYING", "ROLLING_BACK"})
"""The states of a change in progress."""

_MOST_BYTES = 64 * 1024


class Withdrawal:
    """The reader of the installer's journal, which it reads again when that has changed."""

    def __init__(self, state_folder: Path) -> None:
        self._path = state_folder / "tx/state"
        self._stamp: tuple[int, ...] = ()
        self._under_way = False

    def is_under_way(self) -> bool:
        """Return whether sharing is being removed now; False when the journal cannot be read."""
        try:
            found = stamp(self._path)
            if found != self._stamp:
                with self._path.open(encoding="utf-8", errors="replace") as file:
                    said = dict(line.partition("=")[::2] for line in file.read(_MOST_BYTES).splitlines())
                self._under_way = said.get("op") in LEAVING and said.get("state") in UNDER_WAY
                self._stamp = found
        except OSError:
            self._stamp, self._under_way = (), False
        return self._under_way
