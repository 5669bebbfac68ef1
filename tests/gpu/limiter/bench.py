"""What the parts of the measurement have in common: containers, programs, figures and the one deadline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu.limiter.card import MIB, Card
from gpu.limiter.kernels import Kernel
from gpu.limiter.program import Program, ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LIMIT_MIB = 1024
TABLES = 32
"""Ids of private tables, at the end of the usage file."""
SONAMES = ("libcuda.so.1", "libnvidia-ml.so.1")
START_S = 60.0
"""What a program may take until its first line: a first CUDA call, and with many at once."""
_END_S, _KILL_S = 20.0, 5.0
_SPARE_S = 5.0
"""What is kept of the deadline for ending programs and writing figures."""


class TimeUpError(Exception):
    """The deadline of the run is near: what is under way is broken off."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the run was asked for, as far as its parts look at it."""

    python: str
    smi: str
    build: Path
    out: Path
    pairs: int
    processes: int
    work_s: float
    settle_s: float
    window_s: float
    ways: tuple[str, ...]
    whole: bool


@dataclass
class Bench:
    """The card, the driver, the containers' folder, and the figures so far."""

    options: Options
    driver: Path
    card: Card
    folder: Path
    deadline: float
    context_mib: int = 0
    kernels: dict[int, Kernel] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    _running: list[Program] = field(default_factory=list)

    def note(self, name: str, value: float, unit: str, *, most: float | None = None, why: str = "") -> None:
        """Keep a figure; it is judged where there is a limit."""
        row = {"name": name, "value": round(value, 4), "unit": unit, "limit": most, "why": why}
        row["within"] = most is None or value <= most
        self.rows.append(row)
        limit = "" if most is None else f" (limit {most:g}{'' if row['within'] else ': OVER'})"
        self._print(f"{name}: {value:.4g} {unit}{limit}{'; ' + why if why else ''}")

    def skip(self, name: str, why: str) -> None:
        """Keep the reason for which something cannot be measured on this machine."""
        self.skipped.append({"name": name, "why": why})
        self._print(f"{name}: skipped: {why}")

    def leave_out(self, name: str) -> None:
        """Keep the name of something for which there is no time."""
        self.left_out.append(name)
        self._print(f"{name}: left out, no time")

    def left_s(self) -> float:
        """Return the seconds until the deadline, less what the end of the run takes."""
        return self.deadline - time.monotonic() - _SPARE_S

    def has_time(self, name: str, need_s: float) -> bool:
        """Return whether there are so many seconds left; where not, the name is kept as left out."""
        if self.left_s() >= need_s:
            return True
        self.leave_out(name)
        return False

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Measure one thing of several: where it breaks, or its time is up, the others are measured all the same."""
        try:
            yield
        except TimeUpError:
            self.leave_out(name)
        except ProgramError as error:
            self.note(name, 1, "failures", most=0, why=str(error))
        self.end_all()

    def wait_s(self, most_s: float) -> float:
        """Return how long a wait may be that should take at most so many seconds.

        Raises:
            TimeUpError: no time is left.
        """
        left = self.left_s()
        if left <= 0:
            raise TimeUpError
        return min(most_s, left)

    def native(self) -> dict[str, str]:
        """Return the environment of a program without the limiter."""
        return self._environment(self.driver)

    def limited(self, container: Path) -> dict[str, str]:
        """Return the environment of a program in a container."""
        return self._environment(container / "lib")

    def container(self, name: str, *, memory_mib: int = LIMIT_MIB, words: str = "") -> Path:
        """Lay out a container's folder with its limits; `words` are further ones for the card.

        For a container that is there already this is the limits file written anew, as the plugin changes it.
        """
        folder = self.folder / name
        if not folder.exists():
            (folder / "lib").mkdir(parents=True)
            for soname in SONAMES:
                stamp(self.options.build / soname, folder / "lib" / soname, folder=folder, driver=self.driver)
            (folder / "usage").write_bytes(bytes(self._usage_bytes()))
        limits = f"memory_bytes={memory_mib * MIB} context_bytes={self.context_mib * MIB} {words}".rstrip()
        new = folder / "limits.new"
        new.write_text(f"edgegpu-limits 1\ncard {self.card.uuid} {limits}\n")
        new.replace(folder / "limits")
        return folder

    def note_tables(self, name: str, container: Path) -> None:
        """Note which of the driver's private tables the programs of a container have asked for."""
        rows = (container / "usage").read_bytes()[-TABLES * 16 :]
        found = {uuid.UUID(bytes=rows[at : at + 16]) for at in range(0, len(rows), 16) if any(rows[at : at + 16])}
        self.note(f"{name}: private tables asked for", len(found), "tables", why=" ".join(sorted(map(str, found))))

    def start(self, command: str | Path, *words: object, env: dict[str, str]) -> Program:
        """Start a program by its path, or a Python one of this folder's `programs` by its name."""
        named = isinstance(command, str)
        first = [self.options.python, str(HERE / "programs" / command)] if named else [str(command)]
        return self.start_command([*first, *map(str, words)], env=env)

    def start_command(self, command: list[str], *, env: dict[str, str]) -> Program:
        """Start any program."""
        program = Program(command, env)
        self._running.append(program)
        return program

    def run(self, command: str | Path, *words: object, env: dict[str, str], most_s: float = START_S) -> dict[str, Any]:
        """Run a program to its end; return the line of JSON that it printed.

        Raises:
            ProgramError: it failed, or took too long.
            TimeUpError: no time is left.
        """
        program = self.start(command, *words, env=env)
        found = self.answer(program, most_s)
        self.end(program)
        return found

    def answer(self, program: Program, most_s: float = START_S) -> dict[str, Any]:
        """Return a program's next answer.

        Raises:
            ProgramError: it ended, or said nothing for `most_s`.
            TimeUpError: the deadline came first.
        """
        wait_s = self.wait_s(most_s)
        try:
            return program.answer(wait_s)
        except ProgramError:
            if self.left_s() <= 0:
                raise TimeUpError from None
            raise

    def ask(self, program: Program, text: str, most_s: float = START_S) -> dict[str, Any]:
        """Write a line to a program and return its answer; raises as `answer` does."""
        program.say(text)
        return self.answer(program, most_s)

    def end(self, *programs: Program) -> None:
        """End programs that wait for it, all at once; kill those that do not end."""
        for program in programs:
            program.close()
        self._await(list(programs), _END_S)

    def end_all(self) -> None:
        """Kill whatever is still running."""
        for program in self._running:
            program.kill()
        self._await(list(self._running), _KILL_S)

    def _await(self, programs: list[Program], most_s: float) -> None:
        until = time.monotonic() + most_s
        for program in programs:
            if not program.ended(until - time.monotonic()):
                program.kill()
            if program in self._running:
                self._running.remove(program)

    def compile(self, source: str, *words: str | Path) -> Path:
        """Compile a C program of this folder's; `words` are further arguments of the compiler."""
        out = self.folder / Path(source).stem
        command: list[str | Path] = ["cc", "-std=gnu11", "-O1", "-o", out, HERE / "programs" / source, *words]
        made = subprocess.run(
            [*command, "-ldl", "-lpthread", "-lrt", "-lm"], capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise RuntimeError(f"cannot compile {source}: {made.stderr}")
        return out

    def write(self) -> None:
        """Write all figures so far, in place of those of before."""
        found = {
            "card": self.card.uuid,
            "model": self.card.name,
            "driver": str(self.driver),
            "figures": self.rows,
            "skipped": self.skipped,
            "left_out": self.left_out,
        }
        self.options.out.parent.mkdir(parents=True, exist_ok=True)
        new = self.options.out.with_suffix(".new")
        new.write_text(json.dumps(found, indent=1) + "\n")
        new.replace(self.options.out)

    def _environment(self, libraries: Path) -> dict[str, str]:
        paths = {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": ROOT / "tests"}
        first = {name: ":".join(filter(None, (str(path), os.environ.get(name)))) for name, path in paths.items()}
        return {**os.environ, **first, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_MODULE_LOADING": "LAZY"}

    def _usage_bytes(self) -> int:
        """Return the size of a usage file, which the C compiler knows."""
        out = self.folder / "usage_bytes"
        if not out.exists():
            self.compile("usage_bytes.c", f"-I{ROOT}/plugin/limiter/common")
        return int(subprocess.run([out], capture_output=True, text=True, check=True).stdout)

    @staticmethod
    def _print(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def stamp(library: Path, out: Path, **settings: Path) -> None:
    """Copy a library with other folders written into it, as plugin/limiter/common/settings.c allows."""
    data = bytearray(library.read_bytes())
    for name, value in settings.items():
        mark = f"edgegpu-limiter-{name}:".encode().ljust(32, b"\0")
        at = data.index(mark) + len(mark)
        data[at : at + 256] = bytes(value).ljust(256, b"\0")
    out.write_bytes(data)
    out.chmod(0o755)
