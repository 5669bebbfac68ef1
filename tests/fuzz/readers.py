"""What bytes of others come to first, each as a function that may raise nothing: the network's, and a container's.

A reader takes any bytes. What it declares (`RefusedError` and the like) is caught here; anything else is a fault. Those
behind a signature get their bytes signed by the right key, so that a controller or a box that is not of our making, or
has gone wrong, is looked at as well.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fuzz import seeds
from pydantic import ValidationError

from edgegpu_agent.journal import codec
from edgegpu_cloud.controller.box_session import BoxSession, UnknownBirthError
from edgegpu_cloud.enrolment import ca
from edgegpu_cloud.enrolment.bodies import EnrolAsk, RenewAsk
from edgegpu_cloud.store.records import BoxRecord, StoredCommand
from edgegpu_plugin.containers.usage_file import USAGE_BYTES, read_usage, taken_slots
from edgegpu_sync import topics
from edgegpu_sync.errors import MessageRefusedError
from edgegpu_sync.ids import CommandId, DeviceId, OpName
from edgegpu_sync.keys import KeyRing, next_link, public_text
from edgegpu_sync.messages.downlink import Command, Desired, Keys, KeySetLink, Receipt
from edgegpu_sync.messages.readers import read
from edgegpu_sync.messages.spec import asked
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.messages.uplink import Reported, encode_reported
from edgegpu_sync.rules.commands import CommandRecord
from edgegpu_sync.rules.ops import OPS, BadArgumentsError, read_args
from edgegpu_sync.rules.outbox import Outbox
from edgegpu_sync.rules.replay_guard import ReplayGuard, SeenRevision
from edgegpu_sync.rules.sequence import CommandSequence
from edgegpu_sync.rules.settle import DesiredState
from edgegpu_sync.rules.tracking import TrackedCommand
from edgegpu_sync.signing import Signer, open_down, open_up
from edgegpu_sync.topics import TopicKind, parse
from edgegpu_sync.wire import digest, to_base64

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BOX = DeviceId("k3f9x2m7q1w8e5r4")
ENROLMENT = 3
EPOCH = Epoch(42, "9f2c4d1a7b3e5f60")
"""Those of the examples, so that what is made of them comes through the first gates."""

_ROOT, _CONTROLLER, _BOX_KEY = (Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)) for number in (1, 2, 3))
_CHAIN = next_link(_ROOT, keys=[public_text(_CONTROLLER)])
_RING = KeyRing.pinned(public_text(_ROOT)).follow([_CHAIN])
_GATE = ReplayGuard(enrolment=ENROLMENT, epoch=EPOCH, born_s=0.0, floor=100)
_TABLES_BYTES = 512
_UP = tuple(kind for kind in TopicKind if not kind.down)


@dataclass(frozen=True, slots=True)
class Reader:
    """`side` is who reads, box or controller; `seeds` what fuzzing begins with."""

    name: str
    side: str
    read: Callable[[bytes], None]
    seeds: Sequence[bytes]


def envelope(signer: Signer, kinds: Sequence[TopicKind], data: bytes) -> None:
    """Read a topic (the first line) and a payload (the rest), as they come, and again with the signature put right."""
    line, _, payload = data.partition(b"\n")
    with contextlib.suppress(MessageRefusedError):
        topic = parse(line.decode("utf-8", "replace"))
        assert str(topic) == line.decode()
        for one in (payload, signer.seal(topic, payload[:60_000])):
            with contextlib.suppress(MessageRefusedError):
                body = (
                    open_up(topic, one, public=public_text(signer.key))
                    if TopicKind.STATUS in kinds
                    else _down(topic, one)
                )
                read(topic.kind, body)


def _down(topic: topics.Topic, payload: bytes) -> bytes:
    return open_down(topic, payload, me=BOX, ring=_RING)


def desired(data: bytes) -> None:
    """Read a desired document, settle nothing of it, and report it."""
    with contextlib.suppress(MessageRefusedError):
        message = read(TopicKind.DESIRED, data)
        assert isinstance(message, Desired)
        seen = SeenRevision(3, "0" * 16).observe(message, digest=digest(message.spec), enrolment=ENROLMENT)
        if seen is None:
            return
        items = asked(message.spec, message.rev)
        desired_state = DesiredState().observe(seen, items)
        for one in items:
            assert codec.dumps(one.key.digest)
        encode_reported(_reported(desired_state))


def _reported(desired_state: DesiredState) -> Reported:
    return Reported(
        enrolment=ENROLMENT,
        epoch=EPOCH,
        n=1,
        observed_rev=desired_state.seen.rev,
        observed_hash=desired_state.seen.digest,
        applied_rev=desired_state.applied_rev,
        seq=1,
        floor=0,
        items=desired_state.report(),
    )


def command(data: bytes) -> None:
    """Read a command, judge it, read its arguments as each op's, and write it down as the journal does."""
    with contextlib.suppress(MessageRefusedError):
        message = read(TopicKind.COMMAND, data)
        assert isinstance(message, Command)
        for known in (False, True):
            with contextlib.suppress(MessageRefusedError):
                _GATE.judge(message, known=known, now_s=50.0)
        for op in OPS.values():
            with contextlib.suppress(BadArgumentsError):
                read_args(op, message.args)
        record = _record(message)
        text, args = codec.record_text(record), codec.dumps(record.args)
        text.encode(), args.encode()
        assert codec.record_of(record.id, text, args) == record


def _record(message: Command) -> CommandRecord:
    return CommandRecord(
        id=CommandId("01j9zq4v7m2c8x5n"),
        op=OpName("k3s.restart"),
        seq=message.seq,
        args=message.args,
        until_s=float(message.valid_s),
        left_s=float(message.valid_s),
        boot="4a3c9f1e-8a6f-4a34-9d2d-6a0f0b7c1d2e",
    )


def receipt(data: bytes) -> None:
    """Read a receipt and let it free the outbox."""
    with contextlib.suppress(MessageRefusedError):
        message = read(TopicKind.RECEIPT, data)
        assert isinstance(message, Receipt)
        Outbox(results=(CommandId("01j9zq4v7m2c8x5n"),)).receipted(message)


def keys(data: bytes) -> None:
    """Read a chain of key sets and follow it; then the same bytes as one set that the root has signed."""
    with contextlib.suppress(MessageRefusedError):
        message = read(TopicKind.KEYS, data)
        assert isinstance(message, Keys)
        _RING.follow(message.chain)
    with contextlib.suppress(MessageRefusedError, ValidationError):
        text = data[:16_000].decode("utf-8", "replace")
        link = KeySetLink(set=text, sig=to_base64(_ROOT.sign(b"edgegpu key set 1\n" + text.encode())))
        _RING.follow([link])


def uplink(kind: TopicKind, data: bytes) -> None:
    """Read what a box says, and put it to the box's records as the controller does."""
    with contextlib.suppress(MessageRefusedError):
        message = read(kind, data)
        topic = parse(f"edgegpu/v1/{BOX}/{kind}" + ("/01j9zq4v7m2c8x5n" if kind is TopicKind.RESULT_BY_ID else ""))
        for live in (True, False):
            case = _case()
            for _ in range(2):  # the second time it is not new any more
                with contextlib.suppress(MessageRefusedError, UnknownBirthError):
                    case.take(topic, message, live=live)
            for held in case.latest.values():
                json.dumps(held.body).encode()


def _case() -> BoxSession:
    sequence = CommandSequence(enrolment=ENROLMENT, instance="", epoch=EPOCH, born_at_s=1.0, next_seq=119, rev=12)
    box = BoxRecord(device=BOX, name="box", public=public_text(_BOX_KEY), sequence=sequence)
    tracked = TrackedCommand(
        id=CommandId("01j9zq4v7m2c8x5n"),
        op=OpName("k3s.restart"),
        args={},
        due_at_s=9e9,
        seq=118,
        signed_for=EPOCH,
        stamp=Stamp(enrolment=ENROLMENT, epoch=EPOCH, n=1),
    )
    command = StoredCommand(device=BOX, tracked=tracked, by="", at_s=0.0)
    return BoxSession(box=box, now_s=100.0, latest={}, commands={command.id: command})


def ask(data: bytes) -> None:
    """Read what a box asks for over HTTPS: to be enrolled, to have its certificate renewed."""
    for model in (EnrolAsk, RenewAsk):
        with contextlib.suppress(ValidationError, ca.RequestError):
            ca.read_request(model.model_validate_json(data).csr)


def usage(data: bytes) -> None:
    """Read a usage file, which its container may have written: as it is, and in the size that such a file has."""
    whole = bytearray(USAGE_BYTES)
    whole[: len(data)] = data[:USAGE_BYTES]
    whole[-_TABLES_BYTES:] = data[-_TABLES_BYTES:].rjust(_TABLES_BYTES, b"\0")
    for one in (data, bytes(whole)):
        counts, slots = read_usage(one), taken_slots(one)
        if counts is not None:
            assert sum(counts.bytes.values()) <= sum(1 << 56 for slot in slots for _ in slot.bytes)
            assert all(number <= 10**9 for number in counts.refusals.values())
            assert counts.limiter.isprintable()
            json.dumps([dict(counts.bytes), counts.tables])


def readers() -> dict[str, Reader]:
    """Return all of them by name."""
    down = [kind for kind in TopicKind if kind.down]
    controller, box = Signer.of(_CONTROLLER), Signer.of(_BOX_KEY)
    found = [
        Reader("box-envelope", "box", partial(envelope, controller, down), seeds.payloads(controller, BOX, down)),
        Reader("box-desired", "box", desired, seeds.bodies(TopicKind.DESIRED)),
        Reader("box-command", "box", command, seeds.commands()),
        Reader("box-receipt", "box", receipt, seeds.bodies(TopicKind.RECEIPT)),
        Reader("box-keys", "box", keys, [*seeds.bodies(TopicKind.KEYS), _CHAIN.set.encode()]),
        Reader("box-usage", "box", usage, seeds.usages()),
        Reader("cloud-envelope", "controller", partial(envelope, box, _UP), seeds.payloads(box, BOX, _UP)),
        *(Reader(f"cloud-{name(kind)}", "controller", partial(uplink, kind), seeds.bodies(kind)) for kind in _UP),
        Reader("cloud-ask", "controller", ask, seeds.asks(public_text(_BOX_KEY))),
    ]
    return {one.name: one for one in found}


def name(kind: TopicKind) -> str:
    """Return what an uplink's reader is called: `result-by-id` for `up/cmd`, else as in its topic."""
    return "result-by-id" if kind is TopicKind.RESULT_BY_ID else kind.value.removeprefix("up/")


def faulty() -> dict[str, Reader]:
    """Return readers with a fault that bytes have to be changed for: a run that does not find it would find none."""

    def fails(data: bytes) -> None:
        if b"\x00" in data or b"null" in data:
            raise KeyError("a field")

    def hangs(data: bytes) -> None:
        if b"null" in data or b"{}" in data:
            time.sleep(600)  # not a loop: each of its turns would cost the fuzzer memory, up to the other limit

    start = seeds.bodies(TopicKind.HEALTH)
    return {one.name: one for one in (Reader("fails", "test", fails, start), Reader("hangs", "test", hangs, start))}
