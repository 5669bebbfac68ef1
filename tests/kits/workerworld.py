"""What really happens on a simulated box, with a ledger of its own, and the acts and settlers that make it happen."""

import json
from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from edgegpu_agent.actions.redact import RedactBody, Redactor, redacted_body
from edgegpu_agent.ports import ActionOutcome, ClusterIdentity, SettlerNotes
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.spec import AppLimits, AskedItem, Sharing
from edgegpu_sync.messages.telemetry import HealthPart, PendingPods, PodAlloc, Sample
from edgegpu_sync.rules.ops import Args, Evidence, UnitRun
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.states import CommandState


class CutError(BaseException):
    """The agent was killed, or the power failed."""


@dataclass
class World:
    """What really happens on the box, and its clocks; it counts, whatever the agent believes."""

    clock_s: float = 1_000.0
    booted_s: float = 0.0
    boots: int = 0
    restarts: int = 0
    restarted_by: Tally[str] = field(default_factory=Tally)
    refreshed_by: Tally[str] = field(default_factory=Tally)
    uploads: Tally[str] = field(default_factory=Tally)
    transactions: Tally[str] = field(default_factory=Tally)
    patches: list[tuple[str, int]] = field(default_factory=list)
    installed: bool = False
    ready: bool = True
    cut_at: int = -1
    steps: int = 0

    def step(self) -> None:
        """A moment at which the agent may be killed."""
        self.steps += 1
        if self.steps == self.cut_at:
            raise CutError

    @property
    def boot(self) -> str:
        return f"{self.boots:08x}-0000-4000-8000-000000000000"

    @property
    def boottime_s(self) -> float:
        return self.clock_s - self.booted_s

    def unit(self) -> UnitRun:
        return UnitRun(self.boot, str(self.restarts))

    def reboot(self) -> None:
        self.boots += 1
        self.booted_s = self.clock_s


class RestartAct:
    """k3s.restart: verifiable by boot id and invocation."""

    def __init__(self, world: World) -> None:
        self.world = world

    def token(self, _id: CommandId, _args: Args) -> str:
        self.world.step()
        unit = self.world.unit()
        return json.dumps({"boot": unit.boot, "invocation": unit.invocation})

    def act(self, id_: CommandId, _args: Args, _token: str) -> ActionOutcome:
        self.world.step()
        self.world.restarts += 1
        self.world.restarted_by[id_] += 1
        self.world.step()
        return ActionOutcome(state=CommandState.VERIFYING)

    def evidence(self, _id: CommandId, token: str) -> Evidence:
        self.world.step()
        return UnitRun(**json.loads(token)).evidence(self.world.unit())

    def verify(self, _id: CommandId, _args: Args, _token: str) -> ActionOutcome | None:
        self.world.step()
        return ActionOutcome(state=CommandState.SUCCEEDED, data={"ready": True}) if self.world.ready else None


class CountedAct:
    """An idempotent op; how often it was done is counted by id."""

    def __init__(self, world: World, tally: Tally[str]) -> None:
        self.world, self.tally = world, tally

    def token(self, _id: CommandId, _args: Args) -> str:
        return ""

    def act(self, id_: CommandId, _args: Args, _token: str) -> ActionOutcome:
        self.world.step()
        self.tally[id_] += 1
        self.world.step()
        return ActionOutcome(state=CommandState.SUCCEEDED, data={"done": True})

    def evidence(self, _id: CommandId, _token: str) -> Evidence:
        raise AssertionError("never asked of what is idempotent")

    def verify(self, _id: CommandId, _args: Args, _token: str) -> ActionOutcome | None:
        raise AssertionError("never asked: it ends at once")


class SharingSettler:
    """Installs or uninstalls in a transaction, whose id it notes before."""

    def __init__(self, world: World) -> None:
        self.world = world

    def settle(self, one: AskedItem, notes: SettlerNotes) -> Settlement:
        assert isinstance(one.item, Sharing)
        self.world.step()
        note = notes.read()
        if note is None:
            note = {"tx": f"{one.key.rev}-{len(self.world.transactions)}"}
            notes.write(note)
        tx = str(note["tx"])
        self.world.step()
        if tx not in self.world.transactions:  # the installer itself knows its own journal
            self.world.transactions[tx] += 1
            self.world.installed = one.item.installed
        self.world.step()
        return Settlement.applied()


class LimitsSettler:
    """Patches an app; more than ten units never fit."""

    def __init__(self, world: World) -> None:
        self.world = world

    def settle(self, one: AskedItem, notes: SettlerNotes) -> Settlement:
        assert isinstance(one.item, AppLimits)
        self.world.step()
        if one.item.memory_units > 10:
            return Settlement.rejected("NO_ROOM", "no card has room")
        if notes.read() is None:
            notes.write({"before": 1})
        self.world.step()
        self.world.patches.append((one.item.app, one.item.memory_units))
        self.world.step()
        return Settlement.applied()


class NoTelemetry:
    """A box on which nothing is seen."""

    period_s = 60

    def cluster(self) -> ClusterIdentity:
        return ClusterIdentity()

    def inventory(self) -> Mapping[str, Any] | None:
        return None

    def alloc(self) -> Mapping[str, PodAlloc] | None:
        return None

    def pending(self) -> PendingPods | None:
        return None

    def health_parts(self) -> Sequence[HealthPart]:
        return ()

    def samples(self) -> Sequence[Sample]:
        return ()


class SharingUnseen:
    """A box on which nothing is known of it."""

    def look(self) -> None:
        """Nothing is known."""

    def changing(self) -> bool:
        return False


BY_FORM: RedactBody = partial(redacted_body, redactor=Redactor)
"""Knows no box: takes out what looks like a secret."""
