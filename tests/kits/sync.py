"""One message of each kind, and the names that go with them, for the tests of the protocol."""

from typing import Any

from edgegpu_sync.ids import command_id, device_id, op_name
from edgegpu_sync.messages.downlink import Command, Desired, Keys, KeySetLink, Receipt
from edgegpu_sync.messages.readers import Message
from edgegpu_sync.messages.spec import AppLimits, Isolation, IsolationMode, Sharing, Spec
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.messages.telemetry import (
    Alloc,
    BoxHealth,
    CardReport,
    CardSample,
    CardShare,
    Event,
    HealthPart,
    Inventory,
    Metrics,
    PodAlloc,
    Sample,
)
from edgegpu_sync.messages.uplink import (
    Birth,
    BoxVersions,
    CardFreeNumbers,
    CommandNotTaken,
    CommandResult,
    Condition,
    Goodbye,
    ItemReport,
    ItemState,
    LastWill,
    Numbers,
    Reported,
)
from edgegpu_sync.states import CommandState, ResultCode
from edgegpu_sync.topics import TopicKind

BOX = device_id("k3f9x2m7q1w8e5r4")
OTHER = device_id("0000000000000001")
ID = command_id("01j9zq4v7m2c8x5n")
RESTART = op_name("k3s.restart")
EPOCH = Epoch(42, "9f2c4d1a7b3e5f60")
CLUSTER = "3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11"
CARD = "GPU-7d2f0c1e-3a44-4b6e-9d55-0a1b2c3d4e5f"


def limits(app: str = "asr", *, units: int = 10, rev: int = 7, retry: int = 0, force: bool = False) -> AppLimits:
    return AppLimits(
        rev=rev,
        retry=retry,
        cluster=CLUSTER,
        namespace="default",
        app=app,
        container="main",
        memory_units=units,
        core=1,
        force=force,
    )


def spec() -> Spec:
    return Spec(
        sharing=Sharing(rev=3, installed=True),
        isolation=Isolation(rev=3, mode=IsolationMode.LIMITER),
        app_limits=(limits(), limits("ocr", units=4)),
    )


def birth(n: int = 1) -> Birth:
    return Birth(
        enrolment=3,
        epoch=EPOCH,
        n=n,
        state="birth",
        instance="ab" * 32,
        boot="4a3c9f1e-8a6f-4a34-9d2d-6a0f0b7c1d2e",
        versions=BoxVersions(agent="0.2.0", k3s="v1.33.3+k3s1"),
        capabilities=("k3s.restart", "sharing.install", "limits"),
        seq=118,
        floor=117,
        observed_rev=12,
        key_set=4,
    )


def reported(count: int = 2, text: str = "needs 10 vcuda-memory on one card; card 0 has 9 free") -> Reported:
    rejected = ItemReport(
        state=ItemState.REJECTED,
        rev=7,
        hash="0123456789abcdef",
        retry=0,
        code=ResultCode.NO_ROOM,
        text=text,
        numbers=Numbers(
            need_units=10,
            need_core=1,
            verdict="never_fits",
            cards=(CardFreeNumbers(node="box-1", card="0", free_units=9, free_core=40),),
        ),
        conditions=(Condition(type="Drifted", manager="baetyl"),),
    )
    items = {f"app_limits/default/app-{number}/main": rejected for number in range(count)}
    numbers: dict[str, Any] = {"seq": 118, "floor": 117, "observed_rev": 12, "applied_rev": 12}
    return Reported(n=5, items=items, **numbers, **UP)


def result(state: CommandState = CommandState.SUCCEEDED, n: int = 9, code: str | None = None) -> CommandResult:
    return CommandResult(enrolment=3, epoch=EPOCH, n=n, id=ID, op=RESTART, state=state, code=code)


UP: dict[str, Any] = {"enrolment": 3, "epoch": EPOCH, "age_s": 60}


def one_of_each() -> list[tuple[TopicKind, Message]]:
    """Return a message of each kind, the three of a status and the two of a result."""
    numbers: dict[str, Any] = {"seq": 118, "floor": 117, "observed_rev": 12}
    stale = CommandNotTaken(
        id=ID, op=RESTART, state="NOT_TAKEN", code=ResultCode.STALE_EPOCH, for_seq=118, n=4, **numbers, **UP
    )
    return [
        (TopicKind.DESIRED, Desired(enrolment=3, rev=12, spec=spec().to_json())),
        (TopicKind.COMMAND, Command(enrolment=3, epoch=EPOCH, seq=118, floor=116, valid_s=600, args={"min_rev": 12})),
        (TopicKind.RECEIPT, Receipt(enrolment=3, epoch=EPOCH, n=9, results=(ID,), rev=12, server_time=1_790_000_000)),
        (TopicKind.KEYS, Keys(chain=(KeySetLink(set="{}", sig="A" * 86),))),
        (TopicKind.STATUS, birth()),
        (TopicKind.STATUS, LastWill(enrolment=3, epoch=EPOCH, n=2, state="will")),
        (TopicKind.STATUS, Goodbye(enrolment=3, epoch=EPOCH, n=30, state="bye", why="upgrade")),
        (TopicKind.REPORTED, reported()),
        (TopicKind.RESULT, result()),
        (TopicKind.RESULT, stale),
        *telemetry(),
        (TopicKind.RESULT_BY_ID, result().model_copy(update={"id": None})),
    ]


def telemetry() -> list[tuple[TopicKind, Message]]:
    """Return a message of each kind that measures or sees."""
    piece = CardShare(container="main", card=CARD, memory_units=10, core=1)
    pod = PodAlloc(namespace="default", name="asr-0", phase="Running", pieces=(piece,))
    card = CardReport(uuid=CARD, label="0", name="NVIDIA T4", memory_mib=15_360, units=60, healthy=True)
    sample = Sample(at=5, cards=(CardSample(uuid=CARD, core_used=41.5, memory_used_mib=900),))
    inventory = Inventory(
        node="box-1",
        role="server",
        sharing=True,
        unit_mib=256,
        mode="limiter",
        policy="first-fit",
        cards=(card,),
        n=6,
        **UP,
    )
    return [
        (TopicKind.INVENTORY, inventory),
        (TopicKind.ALLOC, Alloc(pods={"0f3c": pod}, gone=("77aa",), base=6, n=7, **UP)),
        (TopicKind.HEALTH, BoxHealth(state="warn", parts=(HealthPart(name="plugin", state="warn"),), n=8, **UP)),
        (TopicKind.EVENT, Event(kind="card.lost", level="alarm", text="card 1 fell off the bus", at=5, n=9, **UP)),
        (TopicKind.METRICS, Metrics(period_s=60, samples=(sample,), n=10, **UP)),
    ]
