"""Write the table of docs/tested-versions.md from the record beside it; `--check` says whether it is current.

`--add FILE` first takes the lines of a run into the record (build/e2e/tested.jsonl, build/vm/tested.jsonl). Of one file
on the same programs the latest line counts, and the others leave the record.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parents[1]
PAGE, RECORD = ROOT / "docs/tested-versions.md", ROOT / "docs/tested-versions.jsonl"
BEGIN, END = "<!-- the table: tools/tested_versions.py writes it -->\n", "<!-- the end of the table -->\n"
COLUMNS = {
    "scenarios": "test_scenarios.py",
    "isolation": "test_isolation.py",
    "live limits": "test_live_limits.py",
    "preemption": "test_preemption.py",
    "restarts": "test_restarts.py",
    "kubeadm's scheduler": "test_kubeadm.py",
}
MACHINE_COLUMNS = {
    "install": "test_vm_install.py",
    "hardening": "test_vm_hardening.py",
    "pressure": "test_vm_pressure.py",
    "power cuts": "test_vm_cuts.py",
}
"""The files of tests/vm."""


@dataclass(frozen=True, slots=True)
class FileRun:
    """What came of a file of tests on the programs that it ran on."""

    day: str
    kubernetes: str
    containerd: str
    k3s: str
    cgroup: str
    file: str
    passed: int
    failed: int
    skipped: int
    system: str = ""
    """The distribution and the kernel of a virtual machine; empty: this machine's."""
    full: bool = False
    """Whether a virtual machine had all tests (FULL=1), and not one power cut of five."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The versions, as a row of a table has them."""
        versions = (self.kubernetes, self.containerd, self.k3s, self.cgroup)
        return (*versions, self.system, "FULL=1" if self.full else "one cut") if self.system else versions

    @property
    def line(self) -> str:
        """The line of the record."""
        fields = asdict(self)
        if not self.system:
            del fields["system"], fields["full"]
        return json.dumps(fields)

    @property
    def cell(self) -> str:
        """The numbers of tests."""
        numbers = [f"{self.passed} passed"]
        numbers += [f"**{self.failed} failed**"] if self.failed else []
        numbers += [f"{self.skipped} skipped"] if self.skipped else []
        return ", ".join(numbers)


def read(text: str) -> list[FileRun]:
    """Return the runs of a record, one of each line."""
    return [FileRun(**json.loads(line)) for line in text.splitlines() if line]


def latest(runs: Iterable[FileRun]) -> list[FileRun]:
    """Return the last run of each file on the same programs, the newest versions first."""
    last = {(run.programs, run.file): run for run in sorted(runs, key=lambda run: run.day)}
    return sorted(sorted(last.values(), key=lambda run: run.file), key=_age, reverse=True)


def written(runs: Sequence[FileRun]) -> str:
    """Return a record's text."""
    return "".join(run.line + "\n" for run in runs)


def table(runs: Sequence[FileRun]) -> str:
    """Return the tables: a row for each set of programs, a column for each of the files that a release must pass.

    Virtual machines have a table of their own, where some ran.
    """
    nodes = [run for run in runs if not run.system]
    machines = [run for run in runs if run.system]
    text = _table(("Kubernetes", "containerd", "k3s", "cgroup"), COLUMNS, nodes)
    if machines:
        text += "\nOn virtual machines ([what runs there](testing.md#a-virtual-machine)):\n\n"
        text += _table(("Kubernetes", "containerd", "k3s", "cgroup", "machine", "run"), MACHINE_COLUMNS, machines)
    return text


def _table(heads: Sequence[str], columns: dict[str, str], runs: Sequence[FileRun]) -> str:
    lines = [f"| {' | '.join([*heads, *columns])} | other files | days |"]
    lines.append("|---" * (len(columns) + len(heads) + 2) + "|")
    for programs in dict.fromkeys(run.programs for run in runs):
        here = {run.file: run for run in runs if run.programs == programs}
        cells = [here[file].cell if file in here else "not run" for file in columns.values()]
        others = [run for file, run in here.items() if file not in columns.values()]
        red = ", ".join(run.file.removesuffix(".py") for run in others if run.failed)
        rest = f"{len(others)}" + (f", failed: {red}" if red else "")
        days = sorted({run.day for run in here.values()})
        lines.append(f"| {' | '.join([*programs, *cells, rest, ' to '.join(dict.fromkeys((days[0], days[-1])))])} |")
    return "\n".join(lines) + "\n"


def put_in(page: str, rows: str) -> str:
    """Return the page with the table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"the page lacks the marks {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


def _age(run: FileRun) -> tuple[object, ...]:
    return _number(run.kubernetes), _number(run.containerd), run.programs


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.lstrip("v").partition("-")[0].split("."))


def main(arguments: Sequence[str]) -> int:
    """Write the record and the page, or check that they fit."""
    match arguments:
        case []:
            runs = latest(read(RECORD.read_text()))
        case ["--check"]:
            record = RECORD.read_text()
            runs = latest(read(record))
            current = written(runs) == record and put_in(PAGE.read_text(), table(runs)) == PAGE.read_text()
            if not current:
                sys.stderr.write("docs/tested-versions.md does not fit its record: run tools/tested_versions.py\n")
            return 0 if current else 1
        case ["--add", file]:
            runs = latest([*read(RECORD.read_text()), *read(Path(file).read_text())])
        case _:
            sys.stdout.write(__doc__ or "")
            return 2
    RECORD.write_text(written(runs))
    PAGE.write_text(put_in(PAGE.read_text(), table(runs)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
