"""The cards that are out until a reset, kept on the disk: by the machine's boot and the driver's load."""

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import write_if_changed
from edgegpu_base.process.clocks import boot_id

_LOG = logging.getLogger(__name__)

MODULE = Path("/sys/module/nvidia")
"""The driver's module. The kernel counts the numbers of its folders up, so that each load has another (kernfs)."""

FILE_NAME = "card-faults.json"


class _Saved(BaseModel):
    """What the file holds: the XID of each card, and of which boot and load of the driver they are."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 1
    boot: str = ""
    driver: str = ""
    cards: dict[str, int] = {}


class CardVerdicts:
    """The XIDs by which cards are out until a reset; a reboot and a reload of the driver end them all."""

    def __init__(self, state: Path | None = None, *, module: Path = MODULE) -> None:
        """Load what the file holds.

        Args:
            state: the state folder; None keeps nothing.
            module: the folder of the driver's module in /sys; where it is missing, no reload is seen.
        """
        self._path = None if state is None else state / FILE_NAME
        self._module = module
        self._boot = _boot()
        self._saved = self._load()
        self._seen = (self._saved.boot, self._saved.driver) if self._saved.cards else (self._boot, self._driver())
        self.drop_reloaded()

    @property
    def cards(self) -> Mapping[str, int]:
        """The XID of each card that is out, by UUID."""
        return self._saved.cards

    def add(self, cards: Iterable[str], code: int) -> None:
        """Keep cards out until a reset."""
        self._save({**self._saved.cards, **dict.fromkeys(cards, code)})

    def clear(self, cards: Iterable[str]) -> None:
        """Forget the errors of cards, which an operator takes for mended."""
        gone = frozenset(cards)
        self._save({card: code for card, code in self._saved.cards.items() if card not in gone})

    def drop_reloaded(self) -> bool:
        """Forget all when the machine or the driver has started anew since the last call; return whether it has."""
        (boot, before), driver = self._seen, self._driver()
        is_other = boot != self._boot or bool(driver and before and driver != before)
        self._seen = (self._boot, driver or ("" if is_other else before))
        if is_other and self.cards:
            _LOG.info("the driver or the machine has started anew: %s may be offered again", ", ".join(self.cards))
            self._save({})
        return is_other

    def _driver(self) -> str:
        try:
            return str(self._module.stat().st_ino)
        except OSError:
            return ""

    def _load(self) -> _Saved:
        if self._path is None:
            return _Saved(boot=self._boot)
        try:
            return _Saved.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _Saved(boot=self._boot)
        except (OSError, ValidationError) as error:
            _LOG.warning("cannot read which cards are out, and all count as in order: %s: %s", self._path, error)
            return _Saved(boot=self._boot)

    def _save(self, cards: dict[str, int]) -> None:
        if cards == self._saved.cards:
            return
        self._saved = _Saved(boot=self._boot, driver=self._driver(), cards=cards)
        if self._path is None:
            return
        try:
            write_if_changed(self._path, json.dumps(self._saved.model_dump(), indent=1) + "\n")
        except EdgegpuError as error:
            _LOG.error("a restart forgets which cards are out: %s", error)


def _boot() -> str:
    try:
        return boot_id()
    except OSError:
        return ""
