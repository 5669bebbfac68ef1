"""What commands have brought back from boxes, in words for people; a box may have said anything."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from edgegpu_base.cli.output import counted, dumped_one_of_many, one_line
from edgegpu_sync.messages.evidence import EvidenceReport, SeenCards, words_of
from edgegpu_sync.wire import clipped

Data = Mapping[str, Any]

DOCTOR = "doctor.run"
_MOST_LINES, _LONGEST = 60, 500


def is_well(op: str, data: Data) -> bool:
    """Whether a command has found nothing wrong; only the doctor looks for that."""
    return op != DOCTOR or str(data.get("level", "")) in {"", "ok"}


def summary(op: str, data: Data) -> str:
    """Return in a few words what a command has brought back; empty where it is nothing."""
    match op:
        case "doctor.run":
            if is_well(op, data):
                return "all is well"
            troubled = data.get("troubled")
            number = troubled if isinstance(troubled, int) else len(_rows(data))
            return f"{_text(data.get('level'))}: {counted(number, 'finding')}"
        case "evidence.check":
            return _evidence_summary(data)
        case _:
            return "; ".join(lines(op, data))


def details(op: str, data: Data) -> list[str]:
    """Return the lines that a summary has no room for: of a doctor's findings, and of containers that see others."""
    if op == "evidence.check":
        return lines(op, data) if _wrong(data) else []
    return lines(op, data) if not is_well(op, data) else []


def lines(op: str, data: Data) -> list[str]:
    """Return what a command has brought back, line by line; nothing where it is nothing."""
    match op:
        case "doctor.run":
            found = _findings(data)
        case "inventory.refresh":
            found = _inventory(data)
        case "evidence.check":
            found = _evidence(data)
        case "logs.collect":
            found = [f"{_text(data.get('bytes'))} bytes, SHA-256 {_text(data.get('sha256'))}"]
        case "k3s.restart" | "plugin.restart":
            found = [f"restarted {_text(data.get('unit'))}"]
        case "agent.upgrade":
            found = [f"{_text(data.get('before'))} → {_text(data.get('version'))}"]
        case _:
            found = [dumped_one_of_many(data)] if data else []
    left = len(found) - _MOST_LINES
    shown = [one_line(clipped(line, _LONGEST)) for line in found[:_MOST_LINES]]
    return [*shown, f"and {counted(left, 'line')} more, with --json"] if left > 0 else shown


def _text(value: object) -> str:
    return "-" if value in (None, "") else str(value)


def _rows(data: Data) -> list[Data]:
    troubled = data.get("troubled")
    return [one for one in troubled if isinstance(one, dict)] if isinstance(troubled, list) else []


def _findings(data: Data) -> list[str]:
    """Return the findings of a box's doctor, each with what mends it."""
    troubled = data.get("troubled", ())
    if isinstance(troubled, int):
        found = [f"{counted(troubled, 'check')} not well, too many for one answer: `edgegpu doctor` on the box"]
    else:
        found = [line for one in _rows(data) for line in _finding(one)]
    checks = data.get("checks", 0)
    made = counted(checks, "check") if isinstance(checks, int) else f"{checks} checks"
    return [*(found or ["all is well" if is_well(DOCTOR, data) else _text(data.get("level"))]), f"{made} made"]


def _finding(one: Data) -> list[str]:
    words = (str(one.get("level", "")), str(one.get("name", "")), str(one.get("text", "")))
    said = [": ".join(word for word in words if word)]
    return [*said, f"  Fix: {one['remedy']}"] if one.get("remedy") else said


def _inventory(data: Data) -> list[str]:
    cards, healthy, problem = data.get("cards"), data.get("healthy"), data.get("problem")
    number = counted(cards, "card") if isinstance(cards, int) else f"{_text(cards)} cards"
    said = f"{number}, {_text(healthy)} healthy, driver {_text(data.get('driver'))}"
    return [f"{said}: {problem}" if problem else said]


def _report(data: Data) -> EvidenceReport | None:
    try:
        return EvidenceReport.model_validate(dict(data), strict=False)
    except ValidationError:
        return None


def _wrong(data: Data) -> int:
    """Return how many containers do not see exactly their cards."""
    report = _report(data)
    return sum(one.verdict is not SeenCards.OWN for one in report.containers) if report is not None else 0


def _evidence_summary(data: Data) -> str:
    if (report := _report(data)) is None:
        return "; ".join(lines("evidence.check", data))
    checked, wrong = f"{counted(len(report.containers), 'container')} checked", _wrong(data)
    return f"{checked}, {wrong} not as it should be" if wrong else f"{checked}, each sees its cards"


def _evidence(data: Data) -> list[str]:
    """Return what each container sees of its cards."""
    if (report := _report(data)) is None:
        return [dumped_one_of_many(data)]
    found = [
        f"{one.namespace}/{one.pod}  {one.container}: "
        f"{words_of(one.verdict, held=one.held, seen=one.seen, text=one.text)}"
        for one in report.containers
    ]
    return [*found, f"{counted(report.left_out, 'container')} left out"] if report.left_out else found
