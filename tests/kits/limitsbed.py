"""A bed for the tests of the settler: a world, a settler whose pauses let it go on, notes, and what is asked."""

from typing import Any

from kits.limitsapi import Api, Json
from kits.limitscases import manifest
from kits.limitsworld import CLUSTER, MODEL, World

from edgegpu_agent.app_limits.settler import AppLimitsSettler
from edgegpu_agent.app_limits.waiting import SettlementTimer, Timeouts
from edgegpu_agent.kube.apps import Apps
from edgegpu_core.placement import Share
from edgegpu_sync.messages.spec import AppLimits, AskedItem, TryKey, item_name
from edgegpu_sync.rules.settle import Settlement

FIELD = {"forty": (0, 40), "fifty": (0, 50)}


class Ours:
    """The lease in our hand."""

    holder = "box-1"

    def holds(self) -> bool:
        return True

    def known(self, timeout_s: float) -> bool:  # noqa: ARG002
        return True


class Paper:
    """Notes in memory; `at` is the write after which the process dies."""

    def __init__(self) -> None:
        self.value: Any = None
        self.writes = 0

    def read(self) -> Any:  # noqa: ANN401  (JSON)
        return self.value

    def write(self, note: Json) -> None:
        self.value = note
        self.writes += 1


class Bed:
    """A world, a settler whose pauses let it go on, and what is asked of it."""

    def __init__(self, api: Api, units: tuple[int, ...], others: dict[str, tuple[int, int]] | None = None) -> None:
        self.api = api
        self.world = World(api, units, others)
        self.now_s = 0.0
        self.notes = Paper()
        self.stop_after: int | None = None
        self.settler = self.make()

    def make(self, **changes: Any) -> AppLimitsSettler:  # noqa: ANN401
        patience = Timeouts(rollout_s=60, blame_s=10, ready_s=10, restore_s=30, api_s=20, inventory_s=5)
        self.around = SettlementTimer(patience, clock=lambda: self.now_s, pause=self.pause)
        parts: dict[str, Any] = {"model": lambda: MODEL, "installed": lambda: True, "timer": self.around, **changes}
        return AppLimitsSettler(Apps(self.api.client()), parts.pop("lease", Ours()), **parts)

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        self.world.step()
        if self.stop_after is not None:
            self.stop_after -= 1
            if self.stop_after < 0:
                self.around.stop()

    def ask(self, memory: int, core: int = 1, **more: Any) -> AskedItem:  # noqa: ANN401
        fields = {"cluster": CLUSTER, "namespace": "default", "app": "asr", "container": "main", "rev": 1, **more}
        item = AppLimits(memory_units=memory, core=core, **fields)
        return AskedItem(name=item_name(item), key=TryKey(1, "00", 0), item=item)

    def settle(self, memory: int, core: int = 1, **more: Any) -> Settlement:  # noqa: ANN401
        return self.settler.settle(self.ask(memory, core, **more), self.notes)

    def limits(self, kind: str = "Deployment") -> dict[str, str]:
        spec = self.world.workload(kind, "asr")["spec"]["template"]["spec"]
        found: dict[str, str] = spec["containers"][0]["resources"].get("limits", {})
        return {name.rpartition("-")[2]: amount for name, amount in found.items()}


RECREATE: dict[str, Any] = {"strategy": {"type": "Recreate"}}


def field(api: Api, **spec: Any) -> Bed:  # noqa: ANN401
    """Return the field's card: 40 and 50 of others, one unit of the app's."""
    bed = Bed(api, (94,), FIELD)
    bed.world.add(manifest("Deployment", "asr", memory=1, **(spec or RECREATE)))
    assert bed.world.running("asr") == [1]
    return bed


def thief(units: int = 15) -> dict[str, tuple[Share, ...]]:
    """Return what somebody takes who is quicker."""
    return {"thief": (Share("GPU-0", units, 1),)}
