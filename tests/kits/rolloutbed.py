"""A controller and its rollouts over boxes that keep settings: what each has stands in its own book."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kits.controller import Bed, KilledError
from kits.modelbox import ModelBox

from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.rollouts.rollouts import RolloutRequest, Rollouts
from edgegpu_cloud.rollouts.runner import RolloutRunner
from edgegpu_cloud.rollouts.strategy import Gate, RolloutStrategy, WaveSize
from edgegpu_cloud.store.store import CommitMoment
from edgegpu_sync.messages.spec import AppLimits, Exclusions, PolicyItem
from edgegpu_sync.messages.telemetry import Inventory
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edgegpu_cloud.rollouts.changes import RolloutChange
    from edgegpu_cloud.store.rollouts.records import RolloutBoxState
    from edgegpu_sync.ids import DeviceId

SPREAD = SharingSettings(policy="spread")
QUICK = RolloutStrategy(canary=1, sizes=(WaveSize(5),), gate=Gate(success_percent=100), timeout_s=120)


class SettingsBook:
    """What a box has on its disk: it changes by what the box applies, and by nothing else."""

    def __init__(self, box: ModelBox, policy: str) -> None:
        self.box, self.values = box, dict[str, Any]({"policy": policy})
        self.fails, self.log = False, list[tuple[str, Any]]()
        box.verdict = self.settle

    def settle(self, name: str) -> Settlement:
        """Apply an item, or fail at it and leave all as it was."""
        item = next(one.item for one in self.box.desired_state.asked if one.name == name)
        match item:
            case PolicyItem():
                value: Any = item.policy
            case Exclusions():
                value = item.cards
            case AppLimits():
                value = (item.memory_units, item.core)
            case _:
                raise AssertionError(item)
        if self.fails:
            return Settlement.failed("ERROR", "the plugin does not come up with it", restored=True)
        self.values[name] = value
        self.log.append((name, value))
        return Settlement.applied()

    def tell(self) -> None:
        """Report the cards, and how they are shared."""
        box = self.box
        card = {"uuid": "GPU-0", "label": "0", "name": "T4", "memory_mib": 15_360, "units": 60, "healthy": True}
        plain = {"node": "node", "role": "server", "sharing": True, "unit_mib": 256, "mode": "none"}
        inventory = {**box._up(), **plain, "policy": self.values["policy"], "cards": (card,)}  # noqa: SLF001
        box.say(box.plain(TopicKind.INVENTORY), Inventory.model_validate(inventory))


class RolloutBed(Bed):
    """A bed whose process also works on rollouts; a kill ends both, and both begin anew."""

    def __init__(self, folder: Path, *, url: str = "", boxes: int = 20) -> None:
        self.runner: RolloutRunner | None = None
        self.in_runner = False
        super().__init__(folder, url=url, boxes=boxes)
        self.rollouts = Rollouts(self.store, clock=self.world.clock, access=Access("anna"), sleep=self.pass_time)
        self.books = {device: SettingsBook(self.box(device), "first-fit") for device in self.devices}
        for device in self.devices:
            self.box(device).cluster = f"{int(device):08d}-0000"
        self.runner = RolloutRunner(self.store, clock=self.world.clock)

    def step(self) -> None:
        super().step()
        if self.runner is not None:
            self.in_runner = True
            self.alive(self.runner.step)
            self.in_runner = False

    def restart(self) -> None:
        self.in_runner = False
        super().restart()

    def connect_all(self) -> None:
        super().connect_all()
        for book in self.books.values():
            book.tell()
        self.settle(3)

    def back(self, device: DeviceId) -> None:
        """Let a box connect again."""
        self.network.connect(self.box(device))
        self.books[device].tell()

    def book(self, number: int) -> SettingsBook:
        return self.books[self.devices[number - 1]]

    def start(
        self,
        strategy: RolloutStrategy = QUICK,
        change: RolloutChange = SPREAD,
        *,
        boxes: Sequence[str] = (),
        first: Sequence[str] = (),
    ) -> int:
        return self.rollouts.start(RolloutRequest(change=change, strategy=strategy, boxes=boxes, first=first))

    def to_the_end(self, number: int, *, within_s: float = 4_000) -> None:
        self.until(lambda: self.rollouts.show(number).ended, within_s=within_s)

    def states(self, number: int) -> dict[str, RolloutBoxState]:
        return {box.name: box.state for box in self.rollouts.boxes(number, limit=1_000)}

    def documents(self) -> dict[DeviceId, Any]:
        """Return the desired documents without the revisions of their items, which only rise."""
        found = {}
        for device in self.devices:
            spec: dict[str, Any] = self.fleet.spec(device).to_json()
            singles = [one for one in spec.values() if isinstance(one, dict)]
            for item in [*spec.get("app_limits", ()), *singles]:
                del item["rev"]
            found[device] = spec
        return found

    def settings(self) -> dict[DeviceId, Any]:
        return {device: dict(book.values) for device, book in self.books.items()}


class EachCommit:
    """Kills the process at each commit of the rollouts' work: before it, and when it was done again, after it."""

    def __init__(self, bed: RolloutBed) -> None:
        self.bed, self.kills, self.again = bed, 0, False

    def __call__(self, moment: CommitMoment) -> None:
        if not self.bed.in_runner or (moment is CommitMoment.BEFORE_COMMIT and self.again):
            return
        self.again = moment is CommitMoment.BEFORE_COMMIT
        self.kills += 1
        raise KilledError


class OneCommit:
    """Kills the process at one moment around a commit of the rollouts' work, counted from 1; at 0 it only counts."""

    def __init__(self, bed: RolloutBed, at: int) -> None:
        self.bed, self.at, self.moments, self.kills = bed, at, 0, 0

    def __call__(self, _: CommitMoment) -> None:
        self.moments += self.bed.in_runner
        if self.bed.in_runner and self.moments == self.at:
            self.kills += 1
            raise KilledError
