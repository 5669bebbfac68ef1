"""Stand-ins for programs of a box: each asks the demo for its output and exit status."""

import json
import shlex
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

Answer = Callable[[str, Sequence[str]], tuple[int, str]]
"""A function from a program's name and arguments to its exit status and output."""

_MOST_BYTES = 65_536
_FAILED = 70


class StandInServer:
    """The server of the stand-ins' answers, on a Unix socket while it is open."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self._path = path
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._run, name="stand-ins", daemon=True)

    def __enter__(self) -> Self:
        self._socket.bind(str(self._path))
        self._socket.listen()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._thread.join()
        self._socket.close()

    def write(self, program: Path) -> None:
        """Write a stand-in program that asks this server by its file's name."""
        asks = (sys.executable, "-m", "edgegpu_sim.demo.standin", str(self._path), program.name)
        program.write_text(f'#!/bin/sh\nexec {shlex.join(asks)} "$@"\n')
        program.chmod(0o755)

    def _run(self) -> None:
        while True:
            try:
                asked, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(asked,), name="stand-in", daemon=True).start()

    def _serve(self, asked: socket.socket) -> None:
        with asked:
            name, *words = json.loads(asked.makefile("rb").readline(_MOST_BYTES))
            try:
                answer = self._answer(name, words)
            except Exception as error:  # noqa: BLE001  (a request's border: the error is the answer)
                answer = (_FAILED, f"{name}: {error}\n")
            asked.sendall(json.dumps(answer).encode())


def main(argv: Sequence[str]) -> int:
    """Ask the demo at the socket `argv[0]` for the answer of program `argv[1]` to the arguments after it; print it."""
    path, *words = argv
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asks:
        try:
            asks.connect(path)
        except OSError as error:
            sys.stderr.write(f"{words[0]}: the demo is over: {error.strerror}\n")
            return _FAILED
        asks.sendall(json.dumps(words).encode() + b"\n")
        status, text = json.loads(asks.makefile("rb").read())
    sys.stdout.write(text)
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
