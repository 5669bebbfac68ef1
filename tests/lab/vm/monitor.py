"""qemu's monitor (QMP): one command on a connection of its own."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING, Any

from lab.labrun import LabError

if TYPE_CHECKING:
    from pathlib import Path

_ANSWER_S = 60.0


def command(path: Path, name: str, /, **arguments: object) -> Any:  # noqa: ANN401  (JSON)
    """Have qemu carry out a command, and return its answer.

    Raises:
        LabError: qemu refuses the command, or does not answer.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(str(path))
            with connection.makefile("rw", encoding="utf-8") as lines:
                json.loads(lines.readline())  # its greeting
                _ask(lines, "qmp_capabilities", {})
                return _ask(lines, name, arguments)
    except (OSError, ValueError) as error:
        raise LabError(f"qemu's monitor {path} does not answer {name}: {error}") from error


def _ask(lines: Any, name: str, arguments: dict[str, object]) -> Any:  # noqa: ANN401  (JSON)
    lines.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
    lines.flush()
    while True:
        answer = json.loads(lines.readline())
        if "error" in answer:
            raise LabError(f"qemu refuses {name}: {answer['error']['desc']}")
        if "return" in answer:  # else it is an event
            return answer["return"]


def save_memory(path: Path, target: Path, *, timeout_s: float) -> None:
    """Stop the machine and write what it has in its memory to a file, compressed.

    Raises:
        LabError: qemu cannot write it, or not in this time.
    """
    command(path, "stop")
    command(path, "migrate-set-parameters", **{"max-bandwidth": 1 << 40})
    command(path, "migrate", uri=f"exec:zstd -q -1 -f -o {target}")
    end = time.monotonic() + timeout_s
    while (state := command(path, "query-migrate")["status"]) != "completed":
        if state in {"failed", "cancelled"} or time.monotonic() > end:
            raise LabError(f"the machine's memory is not saved: {state}")
        time.sleep(0.2)


def wait_incoming(path: Path, *, timeout_s: float) -> None:
    """Wait until the memory is there again, and let the machine go on.

    Raises:
        LabError: it is not there in this time.
    """
    end = time.monotonic() + timeout_s
    while (state := command(path, "query-status")["status"]) == "inmigrate":
        if time.monotonic() > end:
            raise LabError("the machine's memory is not read")
        time.sleep(0.2)
    if state != "paused":
        raise LabError(f"the machine is {state} after its memory was read")
    command(path, "cont")
