"""The guard beside the program, mosquitto's plugin as it was compiled; whether this machine's mosquitto loads it."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from edgegpu_cloud.ownership import account

MARK = b"$CONTROL/edgegpu/v1"
"""What stands in a guard of this version: the topic by which it is told the blocked boxes."""

_PATIENCE_S, _PAUSE_S = 10.0, 0.02
_PROBE = """\
per_listener_settings true
user {user}
persistence false
log_dest stderr
listener 0 {folder}/boxes
allow_anonymous false
plugin {guard}
listener 0 {folder}/controllers
allow_anonymous false
plugin {guard}
plugin_opt_blocked {folder}/blocked
"""


def guard_place() -> Path:
    """Return where the set-up puts the guard that it compiles: into the folder of this program, which is root's."""
    return Path(sys.prefix) / "lib/mosquitto_guard.so"


def mosquitto_here() -> str | None:
    """Return the path of this machine's mosquitto; None: there is none."""
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def load_problem(guard: Path, mosquitto: str) -> str:
    """Return why a mosquitto cannot run with a guard, empty where it can: one is started for a moment, on no port.

    A guard of an edgegpu that had it on the boxes' listener alone would refuse controllers their filters.
    """
    try:
        if MARK not in guard.read_bytes():
            return f"{guard} is of an older edgegpu"
    except OSError as error:
        return str(error)
    with tempfile.TemporaryDirectory(prefix="edgegpu-guard-") as work:
        folder = Path(work)
        config = folder / "mosquitto.conf"
        config.write_text(_PROBE.format(folder=folder, guard=guard, user=account(os.geteuid())))
        with (folder / "log").open("w+b") as log:
            process = subprocess.Popen([mosquitto, "-c", config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                is_up = _await_socket(process, folder / "controllers")
            finally:
                process.kill()
                process.wait()
            log.seek(0)
            lines = [line for line in log.read().decode("utf-8", "replace").splitlines() if "rror" in line]
    return "" if is_up else (lines[0].partition("Error: ")[2] or lines[0] if lines else "it does not start")


def _await_socket(process: subprocess.Popen[bytes], path: Path) -> bool:
    """Wait until a broker listens; return whether it does."""
    end_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end_s and process.poll() is None:
        if path.exists():
            return True
        time.sleep(_PAUSE_S)
    return False
