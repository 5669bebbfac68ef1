"""The output of `edgegpu doctor` in a terminal, and in a pipe."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from edgegpu_installer.doctor.checks import Check, CheckRun
from edgegpu_installer.doctor.verdict import CheckLevel, CheckProblem

_MARKS = {
    CheckLevel.OK: ("ok", "green"),
    CheckLevel.INFO: ("i", "blue"),
    CheckLevel.SKIPPED: ("-", "dim"),
    CheckLevel.WARNING: ("!", "yellow"),
    CheckLevel.BROKEN: ("x", "bold red"),
}
_WIDTH = 15


class DoctorView:
    """The view of the doctor: it prints each result as it comes, and a group's name before the group's first result."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._group = ""

    @contextmanager
    def progress(self) -> Iterator[Callable[[Check], None]]:
        """Yield a function that shows the running check; in a pipe it shows nothing."""
        if not self._console.is_terminal:
            yield lambda check: None  # noqa: ARG005
            return
        with self._console.status("") as status:
            yield lambda check: status.update(Text(f"{check.name}: {check.about} …", style="dim"))

    def show(self, result: CheckRun) -> None:
        """Print one check's line, and below it the problems with their fixes."""
        check, verdict = result.check, result.verdict
        if check.group != self._group:
            self._say(Text(check.group, style="bold"), blank=bool(self._group))
            self._group = check.group
        mark, style = _MARKS[verdict.level]
        text = Text(f"{mark:<3}", style=style).append(f"{check.name:<{_WIDTH}} ", style="not bold not dim")
        self._say(text.append(verdict.text, style="" if verdict.level.rank else "not bold"), indent=2)
        for trouble in verdict.problems:
            self._trouble(trouble, alone=len(verdict.problems) == 1)
        if verdict.level.rank:
            for detail in verdict.details:
                self._say(Text(detail, style="dim"), indent=8)

    def summary(self, results: Sequence[CheckRun]) -> None:
        """Print how many checks are broken, have warnings, and are well."""
        counts = {level: sum(result.verdict.level is level for result in results) for level in CheckLevel}
        words = [
            f"{counts[level]} {level.value}"
            for level in (CheckLevel.BROKEN, CheckLevel.WARNING, CheckLevel.OK)
            if counts[level]
        ]
        self._say(Text(", ".join(words) or "nothing was looked at", style="bold"), blank=True)

    def _trouble(self, trouble: CheckProblem, *, alone: bool) -> None:
        if not alone:
            mark, style = _MARKS[trouble.level]
            self._say(Text(f"{mark} ", style=style).append(trouble.text, style="not bold"), indent=5)
        self._say(Text("Fix: ", style="dim").append(trouble.remedy, style="not dim cyan"), indent=8)

    def _say(self, text: Text, *, indent: int = 0, blank: bool = False) -> None:
        if blank:
            self._console.print()
        if self._console.is_terminal:
            self._console.print(Padding(text, (0, 0, 0, indent)))
        else:  # the reader of a pipe wants whole lines
            self._console.print(Text(" " * indent).append(text), soft_wrap=True)


def as_document(result: CheckRun) -> dict[str, Any]:
    """Return what `--json` prints for a result."""
    check, verdict = result.check, result.verdict
    return {
        "name": check.name,
        "group": check.group,
        "about": check.about,
        "level": verdict.level.value,
        "text": verdict.text,
        "troubles": [{"level": one.level.value, "text": one.text, "remedy": one.remedy} for one in verdict.problems],
        "details": list(verdict.details),
        "took_s": round(result.duration_s, 3),
    }
