"""What a box measures and observes: inventory, allocations by difference, health, events, metrics."""

from typing import Annotated, Literal

from pydantic import Field

from edgegpu_sync.messages.uplink import UplinkBody
from edgegpu_sync.wire import Core, Count, Line, Name, Text, Token, Units, WireModel

Uid = Annotated[str, Field(pattern=r"^[0-9a-zA-Z-]{1,64}$")]


class CardReport(WireModel):
    """A card, or a MIG device, as NVML tells of it."""

    uuid: Token
    label: Token
    name: Line
    memory_mib: Count
    units: Units
    healthy: bool
    excluded: bool = False
    text: Line = ""


class Inventory(UplinkBody):
    """The cards of a box and what is offered of them; sent whole when it changes and when asked."""

    node: Name
    cluster: Line = ""
    role: Literal["server", "agent", "extender-only"]
    sharing: bool
    unit_mib: Count
    mode: Token
    policy: Token
    driver: Line = ""
    cards: Annotated[tuple[CardReport, ...], Field(max_length=128)]


class CardShare(WireModel):
    """What one container holds of one card; `live_units`: the fewer units that it is held to now, None where not.

    `refusals`: at least so often its programs were told that there is no memory, since its start; 1, 2, 5, 10, 20 …
    `limiter`: the version of the limiter that it started with; None until a program of it has used a card.
    """

    container: Name
    card: Token
    memory_units: Units
    core: Core
    live_units: Units | None = None
    refusals: Count = 0
    limiter: Token | None = None


class PodAlloc(WireModel):
    """A pod and its pieces; `enforced` is the least that holds its containers: enforced, degraded, off.

    `enforced_reason`: why it is degraded, None where nothing is to be said.
    `started_at`: when kubelet took it, seconds since 1970 by the cluster's clock; None where the box does not know.
    """

    namespace: Name
    name: Name
    phase: Token
    enforced: Token = "off"
    enforced_reason: Line | None = None
    started_at: Count | None = None
    pieces: Annotated[tuple[CardShare, ...], Field(max_length=64)]


class PendingContainer(WireModel):
    """What a container of a pod without a card asks for; any amounts, also those that no card has."""

    name: Name
    memory_units: Count
    core: Count


class PendingPod(WireModel):
    """A pod that has no card yet. `reason` has the numbers of each card; `created_at`: seconds since 1970, or None.

    `state`: `pending` (no node has it), `waiting` (kubelet has not given it its card yet), `refused` (it fits on none).
    """

    uid: Uid
    namespace: Name
    name: Name
    state: Token
    reason: Text = ""
    created_at: Count | None = None
    containers: Annotated[tuple[PendingContainer, ...], Field(max_length=16)]


MOST_PENDING = 40
"""Pods without a card in one message."""


class PendingPods(WireModel):
    """The pods without a card that a box sees, and how many `more` it does not name.

    `cluster`: it sees those that have no node too, which a server of the cluster alone does. `silent`: why the list
    may be old, with the time since when; empty while the box's API server answers.
    """

    pods: Annotated[tuple[PendingPod, ...], Field(max_length=MOST_PENDING)] = ()
    more: Count = 0
    cluster: bool
    silent: Text = ""


class Alloc(UplinkBody):
    """Who holds what. With `base` it changes the one with that `n` of this epoch; without, it is the whole.

    `pending`: who waits, all of them; None where that has not changed since the base. An older agent never has it.
    """

    base: Count | None = None
    pods: dict[Uid, PodAlloc]
    gone: Annotated[tuple[Uid, ...], Field(max_length=1_000)] = ()
    pending: PendingPods | None = None


def difference(before: dict[str, PodAlloc], now: dict[str, PodAlloc]) -> tuple[dict[str, PodAlloc], tuple[str, ...]]:
    """Return the values of `Alloc.pods` and `Alloc.gone` that turn `before` into `now`."""
    changed = {uid: pod for uid, pod in now.items() if before.get(uid) != pod}
    return changed, tuple(sorted(before.keys() - now.keys()))


def merged(before: dict[str, PodAlloc], message: Alloc) -> dict[str, PodAlloc]:
    """Return the pods after `message`; the caller has checked that its base is `before`."""
    kept = before if message.base is not None else {}
    return {uid: pod for uid, pod in {**kept, **message.pods}.items() if uid not in message.gone}


class HealthPart(WireModel):
    """One thing that can be well or not."""

    name: Token
    state: Literal["ok", "warn", "bad", "off"]
    text: Text = ""


class BoxHealth(UplinkBody):
    """How a box is; `refused` counts messages that were not taken, by the name of the refusal."""

    state: Literal["ok", "warn", "bad"]
    parts: Annotated[tuple[HealthPart, ...], Field(max_length=64)]
    refused: dict[Token, Count] = Field(default_factory=dict)
    controller_unseen_s: Count = 0
    outbox_used: Annotated[float, Field(ge=0, le=1)] = 0.0


TRANSACTION = "machine.transaction"
"""The kind of the event that reports a transaction of the installer."""

CLOUD, PERSON, RECOVERY = "cloud", "person", "recovery"
"""Who has begun a transaction: a request of the cloud, a person on the box, or edgegpu-recover on its own."""


class TransactionReport(WireModel):
    """A transaction of the box's installer that has ended.

    `author`: `CLOUD` (an item of revision `rev`, or the command with this id), `PERSON` (`user`), or `RECOVERY`.
    `began`, `ended`: by the box's clock, 0 where it is not known. `before`: the version that was installed until then,
    where it was another. `recovered`: its installer died, and the box finished it or put it back by itself. `skipped`:
    how many earlier ones were not reported, for want of room.
    """

    id: Token
    op: Token
    author: Token
    user: Line = ""
    item: Line = ""
    rev: Count = 0
    result: Token
    why: Text = ""
    began: Count = 0
    ended: Count = 0
    version: Line = ""
    before: Line = ""
    recovered: bool = False
    skipped: Count = 0


class Event(UplinkBody):
    """Something that happened; kept in the outbox until a receipt's `n` has reached it, or room is needed."""

    kind: Token
    level: Literal["info", "warning", "alarm"]
    text: Text
    about: Line = ""
    at: Count
    """Seconds since 1970 by the box's clock, which may be wrong by years: for people."""
    transaction: TransactionReport | None = None
    """With the kind `machine.transaction`."""


class CardSample(WireModel):
    """A card over one period."""

    uuid: Token
    core_used: Annotated[float, Field(ge=0, le=100)]
    memory_used_mib: Count
    temperature_c: Annotated[int, Field(ge=-50, le=200)] | None = None
    power_w: Annotated[float, Field(ge=0, le=10_000)] | None = None


MOST_MEMORY_USES = 200
"""Containers in one sample: with them and a quarter of an hour of eight cards a message is not too large."""


class MemoryUse(WireModel):
    """The memory that a container's processes use of one card.

    Without `uid`: the processes of no pod. Without `container`: those of a pod whose container the box cannot tell.
    `memory_mib` is None where the driver does not report it of each of them.
    """

    card: Token
    uid: Uid | None = None
    container: Name | None = None
    processes: Count
    memory_mib: Count | None = None


class Sample(WireModel):
    """What was measured in the `period_s` seconds before `at`.

    `memory_use` is None where it was not measured. A container that holds a share and is not in it was not measured;
    one that uses nothing has a 0.
    """

    at: Count
    cards: Annotated[tuple[CardSample, ...], Field(max_length=128)]
    memory_use: Annotated[tuple[MemoryUse, ...], Field(max_length=MOST_MEMORY_USES)] | None = None


class Metrics(UplinkBody):
    """Measurements, oldest first; the first to be given up when there is no room.

    A box sends the memory use of containers in the last sample alone.
    """

    period_s: Annotated[int, Field(ge=1, le=86_400)]
    samples: Annotated[tuple[Sample, ...], Field(max_length=240)]
