"""systemctl for a node without systemd, as far as the installer needs one: edgegpu's own services really run.

A service whose ExecStart= lies below /opt/edgegpu is started as its unit says, in front of nothing but `nice`, and is
there once it has said READY=1. Units of other programs are taken note of and not started; there are no timers.
"""

import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

UNITS = Path("/etc/systemd/system")
STATE = Path("/run/kubeadm-units")
OURS = "/opt/edgegpu/"
START_S, STOP_S = 30.0, 15.0


def main(words: list[str]) -> int:
    """Do what systemctl would with these words."""
    STATE.mkdir(exist_ok=True)
    verb, *rest = words
    name = rest[-1] if rest else ""
    match verb:
        case "show":
            _show(name)
        case "restart":
            _stop(name)
            return 0 if _start(name) else 1
        case "stop":
            _stop(name)
        case _:  # daemon-reload, and starts of edgegpu-recover, whose timer nobody keeps here
            pass
    return 0


def _show(name: str) -> None:
    pid = _pid(name)
    there = (UNITS / name).exists()
    print(f"LoadState={'loaded' if there else 'not-found'}")  # noqa: T201
    print(f"ActiveState={'active' if pid else 'inactive'}\nInvocationID={pid or ''}\nMainPID={pid or 0}")  # noqa: T201


def _start(name: str) -> bool:
    lines = (UNITS / name).read_text().splitlines()
    command = next(line.partition("=")[2] for line in lines if line.startswith("ExecStart="))
    if not command.startswith(OURS):
        return True
    Path("/run/edgegpu").mkdir(exist_ok=True)
    notify = STATE / f"{name}.notify"
    notify.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link, Path(f"/var/log/{name}.log").open("a") as log:
        link.bind(str(notify))
        child = subprocess.Popen(
            ["nice", "-n", "-10", *shlex.split(command)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"NOTIFY_SOCKET": str(notify)},
            start_new_session=True,
        )
        (STATE / name).write_text(json.dumps({"pid": child.pid}))
        return _says_ready(link, child.pid)


def _says_ready(link: socket.socket, pid: int) -> bool:
    descriptor = os.pidfd_open(pid)
    try:
        while True:
            ready, _, _ = select.select([link.fileno(), descriptor], [], [], START_S)
            if link.fileno() in ready:
                if b"READY=1" in link.recv(4096):
                    return True
            else:  # it has ended, or says nothing
                return False
    finally:
        os.close(descriptor)


def _stop(name: str) -> None:
    if pid := _pid(name):
        descriptor = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGTERM)
            if not select.select([descriptor], [], [], STOP_S)[0]:
                os.kill(pid, signal.SIGKILL)
                select.select([descriptor], [], [], STOP_S)
        finally:
            os.close(descriptor)
    (STATE / name).unlink(missing_ok=True)


def _pid(name: str) -> int | None:
    """Return the process of a service that runs; a dead one that nobody has waited for does not."""
    try:
        pid = int(json.loads((STATE / name).read_text())["pid"])
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return None
    return None if state == "Z" else pid


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
