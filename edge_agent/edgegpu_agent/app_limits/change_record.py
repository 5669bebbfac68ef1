"""The note of a change of limits, written before the change begins, so that a crash loses nothing. Pure."""

from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from edgegpu_agent.app_limits.patches import ContainerShares
from edgegpu_agent.ports import SettlerNotes


class ChangeStep(Enum):
    """The step of a change that may have been begun."""

    WRITING = "writing"
    RESTORING = "restoring"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeNote:
    """One change: the workload's UID, its old and its new limits. `fights`: how often drifted limits were set again."""

    uid: str
    before: ContainerShares
    asked: ContainerShares
    forced: bool = False
    step: ChangeStep = ChangeStep.WRITING
    why: str = ""
    fights: int = 0

    @classmethod
    def read(cls, notes: SettlerNotes) -> "ChangeNote | None":
        """Return the last note; None when there is none, or another version wrote it."""
        value: Any = notes.read()
        if value is None:
            return None
        try:
            return cls(
                uid=str(value["uid"]),
                before=ContainerShares.from_json(value["before"]),
                asked=ContainerShares.from_json(value["asked"]),
                forced=bool(value["forced"]),
                step=ChangeStep(value["step"]),
                why=str(value["why"]),
                fights=int(value["fights"]),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def write(self, notes: SettlerNotes) -> None:
        """Write the note; it is on the disk when this returns."""
        notes.write({**asdict(self), "step": self.step.value})

    def restoring(self, why: str) -> "ChangeNote":
        """Return the note for the step in which the old limits are put back."""
        return replace(self, step=ChangeStep.RESTORING, why=why)
