"""What is noted of a change before it is begun, so that a crash in its middle loses nothing. Pure."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from edgegpu_agent.app_limits.patches import ContainerShares
from edgegpu_agent.ports import SettlerNotes


class ChangeStep(Enum):
    """What may have been begun."""

    WRITING = "writing"
    RESTORING = "restoring"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeNote:
    """One change: of which workload, what was there before, what is to stand. `fights`: how often it was set again."""

    uid: str
    before: ContainerShares
    asked: ContainerShares
    forced: bool = False
    step: ChangeStep = ChangeStep.WRITING
    why: str = ""
    fights: int = 0

    @classmethod
    def read(cls, notes: SettlerNotes) -> "ChangeNote | None":
        """Return what was noted last; None when nothing was, or it is of another version."""
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
        """Keep it; on the disk when this returns."""
        notes.write(
            {
                "uid": self.uid,
                "before": self.before.to_json(),
                "asked": self.asked.to_json(),
                "forced": self.forced,
                "step": self.step.value,
                "why": self.why,
                "fights": self.fights,
            }
        )

    def restoring(self, why: str) -> "ChangeNote":
        """Return it for when the old limits are put back."""
        return replace(self, step=ChangeStep.RESTORING, why=why)
