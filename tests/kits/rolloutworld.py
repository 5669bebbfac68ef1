"""A rollout over boxes that are only their states: the rules decide, and what they decide is done."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace

from edgegpu_cloud.rollouts.rules import (
    BeginBoxes,
    BoxBegun,
    BoxCancelled,
    BoxReturnBegun,
    CancelBoxes,
    RetryBoxes,
    ReturnBoxes,
    RolloutAction,
    RolloutBoxEvent,
    RolloutDecision,
    after_box_event,
    decide,
)
from edgegpu_cloud.rollouts.strategy import RolloutStrategy, wave_sizes
from edgegpu_cloud.store.rollouts.records import (
    RolloutBoxRecord,
    RolloutBoxState,
    RolloutRecord,
    RolloutState,
    WaveCounts,
)
from edgegpu_sync.ids import DeviceId

B = RolloutBoxState
RETURNABLE = (B.APPLIED, B.REJECTED, B.FAILED)
ENDED = (B.APPLIED, B.REJECTED, B.FAILED, B.SKIPPED)
NEW = RolloutRecord(kind="sharing", subject="policy", change={}, strategy={}, by="anna", at_s=0.0, waves=0)


def counts_of(boxes: list[RolloutBoxRecord], wave: int, now_s: float) -> WaveCounts:
    """Count the boxes of a wave as the store does."""
    mine = [box for box in boxes if box.wave == wave]
    return WaveCounts(
        states={state: number for state in B if (number := sum(box.state is state for box in mine))},
        due=sum(box.state is B.RETRYING and (box.next_try_at_s or 0) <= now_s for box in mine),
        returnable=sum(box.changed and box.state in RETURNABLE for box in mine),
        ended_s=max((box.since_s for box in mine if box.state in ENDED), default=0.0),
    )


@dataclass
class RolloutWorld:
    """A rollout and its boxes; `settings` are what each box had, and has."""

    strategy: RolloutStrategy
    number: int
    now_s: float = 1_000.0
    rollout: RolloutRecord = NEW
    boxes: list[RolloutBoxRecord] = field(default_factory=list)
    had: dict[DeviceId, str] = field(default_factory=dict)
    has: dict[DeviceId, str] = field(default_factory=dict)
    begun_waves: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        sizes = wave_sizes(self.number, self.strategy)
        self.rollout = replace(NEW, waves=len(sizes), at_s=self.now_s)
        for position, wave in enumerate(wave for wave, size in enumerate(sizes) for _ in range(size)):
            device = DeviceId(f"{position:016d}")
            self.boxes.append(RolloutBoxRecord(device=device, name=device, position=position, wave=wave))
            self.had[device] = self.has[device] = f"before {position}"

    def decision(self) -> RolloutDecision:
        waves = [counts_of(self.boxes, wave, self.now_s) for wave in range(self.rollout.waves)]
        return decide(self.rollout, self.strategy, waves, now_s=self.now_s)

    def put(self, position: int, event: RolloutBoxEvent) -> None:
        self.boxes[position] = after_box_event(self.boxes[position], event, self.strategy, now_s=self.now_s)

    def work(self, most: int = 1_000) -> RolloutDecision:
        """Decide and do it, but for at most so many boxes, as one transaction does."""
        decision = self.decision()
        self.rollout = decision.rollout
        left = most
        for action in decision.actions:
            for box in self.chosen(action)[:left]:
                self._do(box, action)
                left -= 1
        return decision

    def chosen(self, action: RolloutAction) -> list[RolloutBoxRecord]:
        match action:
            case BeginBoxes(wave, number):
                return [box for box in self.boxes if box.wave == wave and box.state is B.QUEUED][:number]
            case RetryBoxes(number):
                due = [box for box in self.boxes if box.state is B.RETRYING and (box.next_try_at_s or 0) <= self.now_s]
                return due[:number]
            case CancelBoxes():
                return [box for box in self.boxes if box.state in {B.QUEUED, B.AWAY, B.RETRYING}]
            case ReturnBoxes(number):
                return [box for box in self.boxes if box.changed and box.state in RETURNABLE][:number]

    def _do(self, box: RolloutBoxRecord, action: RolloutAction) -> None:
        match action:
            case BeginBoxes() | RetryBoxes():
                self.put(box.position, BoxBegun())
                self.begun_waves.append(box.wave)
                self.has[box.device] = "after"
            case CancelBoxes():
                self.put(box.position, BoxCancelled())
            case ReturnBoxes():
                self.put(box.position, BoxReturnBegun())
                self.has[box.device] = self.had[box.device]

    def of(self, *states: RolloutBoxState) -> list[RolloutBoxRecord]:
        return [box for box in self.boxes if box.state in states]

    def cut(self) -> RolloutWorld:
        """Return the world as another process finds it: only what is on the disk."""
        record = json.loads(json.dumps(asdict(self.rollout)))
        rows = [json.loads(json.dumps(asdict(box))) for box in self.boxes]
        other = RolloutWorld(self.strategy, self.number, self.now_s)
        other.rollout = RolloutRecord(**{**record, "state": RolloutState(record["state"])})
        other.boxes = [
            RolloutBoxRecord(**{**row, "state": RolloutBoxState(row["state"]), "others": tuple(row["others"])})
            for row in rows
        ]
        other.has, other.begun_waves = dict(self.has), list(self.begun_waves)
        return other
