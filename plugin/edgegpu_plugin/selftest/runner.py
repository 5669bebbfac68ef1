"""One run of edgegpu-selftest: by a unit of its own, or where the plugin is no unit as its bounded child."""

import secrets
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import write_atomic
from edgegpu_base.process.program import DetachedProgram
from edgegpu_plugin.containers import driver_files
from edgegpu_plugin.containers.limiter_files import LIBRARIES, LimiterFiles, default_folder
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.records.sharing_change import PLUGIN_UNIT
from edgegpu_plugin.selftest.observation import Observations

UNIT = "edgegpu-selftest.service"
PROGRAM = "edgegpu-selftest"
WORK = Path("/run/edgegpu/selftest")
"""The folder that the unit's program works in."""

_RUN_S = 60
"""How long one process may take: a driver that starts without persistence takes seconds for each card."""
_MOST_S = 480.0
"""More than the program takes at most: 300 s until its last run begins, and two runs of 60 s on that card."""
_LOOK_S = 0.05
_MOST_BYTES = 1 << 20
_WORDS = 500


class SelftestError(PluginError):
    """The self-test could not be run; nothing is known of the limiter."""


class SelftestRunner:
    """The runner of edgegpu-selftest; one thread uses it, and another may call `stop`."""

    def __init__(
        self,
        run: Path,
        *,
        cgroup: Path = Path("/proc/self/cgroup"),
        program: Path | None = None,
        seconds: int = _RUN_S,
        unit_work: Path = WORK,
    ) -> None:
        """Build the runner.

        Args:
            run: the plugin's run folder; the work folder is `selftest` in it.
            cgroup: where this process's control group stands, by which it knows whether it is the plugin's unit.
            program: the program, by default the one beside the limiter's libraries of this environment.
            unit_work: the folder that the unit's program works in.
            seconds: how long one process may take before it counts as hanging, up to 60.
        """
        self._work = run / "selftest"
        self._cgroup = cgroup
        self._program = default_folder() / PROGRAM if program is None else program
        self._seconds, self._unit_work = seconds, unit_work
        self._stopping = threading.Event()

    @property
    def program(self) -> Path:
        """The program, of which results are."""
        return self._program

    def stop(self) -> None:
        """Make `run` end soon; a unit that runs goes on, and the next plugin asks again."""
        self._stopping.set()

    def run(self, cards: Sequence[str], *, root: Path, version: str, limiter: LimiterFiles) -> Observations:
        """Try the limiter on cards.

        Args:
            cards: their UUIDs.
            root: the driver's root.
            version: the driver's version.
            limiter: the limiter's libraries.

        Raises:
            SelftestError: it could not be run, or did not end.
        """
        request = secrets.token_hex(8)
        lines = [
            "edgegpu-selftest 1",
            f"id {request}",
            f"seconds {self._seconds}",
            f"limiter {_limiter_folder(limiter)}",
            f"driver {_driver_folder(root, version)}",
            *(f"card {card}" for card in cards),
        ]
        command = self._command()
        try:
            shutil.rmtree(self._work, ignore_errors=True)
            self._work.mkdir(parents=True, mode=0o700)
            write_atomic(self._work / "request", "\n".join([*lines, ""]), mode=0o600)
        except (EdgegpuError, OSError) as error:
            raise SelftestError(f"cannot make {self._work}: {error}") from error
        said = self._run(command)
        seen = self._result()
        if seen is None or seen.id != request:
            raise SelftestError(f"{command[0]} has left no result{f': {said}' if said else ''}")
        return seen

    def _command(self) -> list[str]:
        """Return what starts the program: outside this process's unit, whose memory a CUDA process would exceed."""
        if not self._is_unit():
            if not self._program.is_file():
                raise SelftestError(f"there is no {self._program}: install edgegpu's bundle again")
            return [str(self._program), str(self._work)]
        if self._work != self._unit_work:
            raise SelftestError(f"{UNIT} works in {self._unit_work}, and paths.run of this machine is another folder")
        return ["systemctl", "start", UNIT]

    def _is_unit(self) -> bool:
        try:
            return PLUGIN_UNIT in self._cgroup.read_text()
        except OSError:
            return False

    def _run(self, command: Sequence[str]) -> str:
        """Run a command to its end and return what it printed on its way to a failure."""
        try:
            program = DetachedProgram(command, errors=True)
        except OSError as error:
            raise SelftestError(f"cannot start {command[0]}: {error.strerror or error}") from error
        end_s = time.monotonic() + _MOST_S
        while program.poll() is None:
            if time.monotonic() > end_s or self._stopping.wait(_LOOK_S):
                program.kill()
                program.leave()
                raise SelftestError(f"it has not ended in {_MOST_S:g} s: does the driver hang?")
        try:
            text = " ".join(program.text(_MOST_BYTES).split())
        except OSError as error:
            raise SelftestError(f"cannot read what {command[0]} said: {error}") from error
        return "" if program.poll() == 0 else text[:_WORDS]

    def _result(self) -> Observations | None:
        try:
            return Observations.model_validate_json((self._work / "result").read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise SelftestError(f"cannot read {self._work / 'result'}: {error}") from error


def _driver_folder(root: Path, version: str) -> Path:
    """Return the folder with the driver's own libraries under the names by which the limiter opens them."""
    try:
        found = driver_files.find(root, version=version)
    except PluginError as error:
        raise SelftestError(str(error)) from error
    folders = {library.path.parent for library in found.libraries if set(library.names) & set(LIBRARIES)}
    whole = [folder for folder in folders if all((folder / name).exists() for name in LIBRARIES)]
    if not whole:
        raise SelftestError(f"the driver's {' and '.join(LIBRARIES)} under {root} are in no one folder: sudo ldconfig")
    return whole[0]


def _limiter_folder(limiter: LimiterFiles) -> Path:
    (folder,) = {path.parent for path in limiter.libraries.values()}
    return folder
