"""The action `evidence.check`: what `nvidia-smi -L` prints in the containers that hold cards.

`edgegpu pods --evidence` asks the container runtime, as a child: gRPC, and what a container prints, stay out of the
agent's process.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from edgegpu_agent.actions.idempotent import Idempotent
from edgegpu_agent.actions.programs import ActionTimer, run
from edgegpu_agent.ports import ActionOutcome
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.evidence import MOST_CARDS, ContainerEvidence
from edgegpu_sync.rules.evidence import report_that_fits
from edgegpu_sync.rules.ops import Args, EvidenceArgs
from edgegpu_sync.states import CommandState
from edgegpu_sync.wire import clipped

_WITHIN_S = 150.0
_LINES = 1_000


@dataclass(frozen=True, slots=True)
class CheckEvidence(Idempotent):
    """The action; `program` is the command line `edgegpu`."""

    program: Sequence[str]
    timer: ActionTimer
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def act(self, id_: CommandId, args: Args, token: str) -> ActionOutcome:
        """Ask the containers; that one sees other cards than its own does not make the command FAILED."""
        del id_, token
        pods = args.pods if isinstance(args, EvidenceArgs) else ()
        uids = [f"--uid={uid}" for uid in pods]
        command = (*self.program, "pods", "--evidence", "--json", *uids)
        said = run(command, self.timer, within_s=_WITHIN_S, env=self.env, errors=False)
        try:
            document = json.loads(said.text)
            if "error" in document:
                return ActionOutcome.failed(clipped(f"{document['error']}; {document.get('remedy', '')}".strip("; ")))
            found = [_evidence_of(row) for row in document["pods"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            return ActionOutcome.failed(f"`edgegpu pods --evidence` gives no answer: {said.last_line}")
        return ActionOutcome(state=CommandState.SUCCEEDED, data=report_that_fits([one for one in found if one]))


def _evidence_of(row: Mapping[str, Any]) -> ContainerEvidence | None:
    """Return a container's evidence as it goes up; None where a name or a card has no form that can be sent."""
    said = row["evidence"]
    values = {key: row[key] for key in ("uid", "namespace", "pod", "container")}
    held = tuple(card["uuid"] for card in row["cards"])[:MOST_CARDS]
    told = {**values, "held": held, **said, "lines": clipped(said["lines"], _LINES)}
    try:
        return ContainerEvidence.model_validate(told, strict=False)
    except ValidationError:
        return None
