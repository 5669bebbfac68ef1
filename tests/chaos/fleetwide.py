"""Changes of all boxes at one press, which controllers carry out in batches and waves: operations and a rollout."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from chaos.load import DAY_S, Asked

from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.rollouts.rollouts import RolloutRequest, Rollouts
from edgegpu_cloud.store.operations.records import BoxOutcome, OperationBox, OperationKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chaos.verdict import Verdict

    from edgegpu_cloud.store.store import ControllerStore
    from edgegpu_sync.ids import DeviceId

_OP = "plugin.restart"
_OPERATIONS_AT = (0.1, 0.3, 0.5, 0.7)
_ROLLOUT_AT = 0.2
_FINAL = frozenset({BoxOutcome.APPLIED, BoxOutcome.REJECTED})


class FleetChanges:
    """`tick` it often. Each operation restarts the plugin of every box, for a ledger shows a second one."""

    def __init__(self, store: ControllerStore, boxes: Mapping[DeviceId, str]) -> None:
        """Take the store, and the names of all boxes."""
        access = Access("chaos")
        self._store, self._boxes = store, boxes
        self._operations = Operations(store, clock=time.time, access=access)
        self._rollouts = Rollouts(store, clock=time.time, access=access)
        self._started: list[str] = []
        self._rollout = 0

    def tick(self, share: float) -> None:
        """Begin what is due; `share`: how much of all commands was asked, 0 to 1."""
        if len(self._started) < len(_OPERATIONS_AT) and share >= _OPERATIONS_AT[len(self._started)]:
            args = {"op": _OP, "args": {}, "wait_s": DAY_S}
            self._started.append(
                self._operations.start(OperationKind.COMMAND, args, devices=[*self._boxes]).operation.id
            )
        if not self._rollout and share >= _ROLLOUT_AT:
            change = SharingSettings(isolation="none")
            self._rollout = self._rollouts.start(RolloutRequest(change=change, boxes=[*self._boxes]))

    @property
    def open(self) -> list[str]:
        """What has not ended yet, in words."""
        found = [
            f"operation {id_}: {one.device} is {one.outcome}"
            for id_ in self._started
            for one in self._boxes_of(id_)
            if one.outcome not in _FINAL
        ]
        if self._rollout and not (rollout := self._rollouts.show(self._rollout)).state.ended:
            found.append(f"rollout {self._rollout} is {rollout.state} at wave {rollout.wave}")
        return found

    def asked(self) -> list[Asked]:
        """Return the commands that the operations have stored."""
        return [
            Asked(one.command, _OP, self._boxes[one.device], 0.0)
            for id_ in self._started
            for one in self._boxes_of(id_)
            if one.command is not None
        ]

    def judge(self, verdict: Verdict, known: Sequence[Asked]) -> None:
        """Add what is wrong; `known`: all commands that anybody has asked for, those of `asked` among them."""
        verdict.stuck += self.open
        for id_ in self._started:
            if lost := self._boxes.keys() - {one.device for one in self._boxes_of(id_) if one.command is not None}:
                verdict.lost.append(f"operation {id_}: no command for {', '.join(self._boxes[one] for one in lost)}")
        with self._store.read() as tx:
            stored = sum(tx.commands.by_state(ended_since_s=0.0).values())
        if stored != (wanted := sum(bool(one.id) for one in known)):
            kind = verdict.twice if stored > wanted else verdict.lost
            kind.append(f"{stored} commands are stored, {wanted} were asked for")

    def _boxes_of(self, id_: str) -> list[OperationBox]:
        views = self._operations.boxes(id_, limit=len(self._boxes) + 1).boxes
        return [view.box for view in views]
