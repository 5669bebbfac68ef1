"""The messages of the worker: birth, will, reported state, results, each with its stamp."""

import json
from typing import Any

from edgegpu_agent.actions.redact import RedactBody
from edgegpu_agent.ports import ClusterIdentity
from edgegpu_agent.worker.core import Core
from edgegpu_sync.ids import CommandId, OpName
from edgegpu_sync.messages.stamps import Stamp
from edgegpu_sync.messages.telemetry import Event
from edgegpu_sync.messages.uplink import (
    Birth,
    CommandNotTaken,
    CommandResult,
    Goodbye,
    LastWill,
    Reported,
    encode_reported,
    encode_result,
)
from edgegpu_sync.rules.commands import CommandRecord
from edgegpu_sync.states import ResultCode
from edgegpu_sync.topics import PlainKind, PlainTopic, ResultTopic, Topic, TopicKind
from edgegpu_sync.wire import RESULT_MAX_BYTES, Json, clipped, encode

DATA_MAX_BYTES = RESULT_MAX_BYTES - 3_072
"""The limit for a result's data, beside its text and stamp."""

_LATER = {"dropped": "larger than a result may be: logs.collect brings it"}


def data_bytes(data: Json | None) -> bytes | None:
    """Return a result's data as JSON for the outbox; a note replaces data that are too large or no JSON."""
    if data is None:
        return None
    try:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError):
        text = b""
    return text if 0 < len(text) <= DATA_MAX_BYTES else json.dumps(_LATER).encode()


class UplinkMessages:
    """The maker of bodies and topics of messages to the controller."""

    def __init__(self, core: Core, capabilities: tuple[str, ...], *, clean: RedactBody) -> None:
        """Build the message maker.

        Args:
            core: the journal and the stamps.
            capabilities: the capabilities for the birth.
            clean: takes secrets out of a body.
        """
        self._core, self._clean = core, clean
        self.capabilities = capabilities
        self.one_result_topic = False
        """Whether the controller takes results under `up/result`, by its last receipt."""

    def topic(self, kind: PlainKind) -> PlainTopic:
        """Return this box's topic of a kind that has only one."""
        return PlainTopic(self._core.me.device, kind)

    def payload(self, topic: Topic, body: bytes) -> bytes:
        """Return the signed body; all messages pass here, so secrets are taken out here."""
        return self._core.me.signer.seal(topic, self._clean(body))

    def head(self, stamp: Stamp | None = None) -> dict[str, Any]:
        """Return the fields of an uplink, with a new stamp where none is given."""
        stamp = stamp or self._core.stamp()
        return {"enrolment": stamp.enrolment, "epoch": stamp.epoch, "n": stamp.n, "age_s": self._core.age_s}

    def birth(self, stamp: Stamp | None) -> bytes:
        """Return the birth of this epoch: the first one with the stamp reserved for it, others with a new one."""
        held, me = self._core.held, self._core.me
        birth = Birth(
            **self.head(stamp),
            state="birth",
            instance=me.instance,
            boot=self._core.clock.boot,
            versions=me.versions(),
            capabilities=self.capabilities,
            seq=held.replay_guard.highest,
            floor=held.replay_guard.floor,
            observed_rev=held.desired_state.seen.rev,
            key_set=held.ring.version,
            one_result_topic=True,
        )
        return encode(birth)

    def will(self) -> bytes:
        """Return the will of this epoch."""
        return encode(LastWill(**self.head(self._core.will_stamp) | {"age_s": 0}, state="will"))

    def goodbye(self, why: Any) -> bytes:  # noqa: ANN401  (the model checks it)
        """Return the goodbye message."""
        return encode(Goodbye(**self.head(), state="bye", why=why))

    def reported(self, cluster: ClusterIdentity) -> bytes:
        """Return the reported state, with the settlement of each desired item."""
        held = self._core.held
        reported = Reported(
            **self.head(),
            observed_rev=held.desired_state.seen.rev,
            observed_hash=held.desired_state.seen.digest,
            applied_rev=held.desired_state.applied_rev,
            seq=held.replay_guard.highest,
            floor=held.replay_guard.floor,
            items=held.desired_state.report(),
            cluster=clipped(cluster.uid, 253),
            holder=cluster.holder,
        )
        return encode_reported(reported)

    def _result_topic(self, id_: CommandId) -> Topic:
        return self.topic(TopicKind.RESULT) if self.one_result_topic else ResultTopic(self._core.me.device, id_)

    def result(self, record: CommandRecord) -> tuple[Topic, bytes]:
        """Return the topic and body of a command's state; a terminal one with the data in the outbox."""
        data = self._core.journal.body(record.id) if record.state.terminal else None
        result = CommandResult(
            **self.head(),
            id=record.id,
            op=record.op,
            state=record.state,
            code=record.code or None,
            text=clipped(record.text) or None,
            data=json.loads(data) if data else None,
            attempts=max(1, record.attempts),
        )
        return self._result_topic(record.id), encode_result(result)

    def rejected(self, id_: CommandId, op: OpName, code: ResultCode, *, for_seq: int) -> tuple[Topic, bytes]:
        """Return the topic and body that say that a command was not taken."""
        held = self._core.held
        answer = CommandNotTaken(
            **self.head(),
            id=id_,
            op=op,
            state="NOT_TAKEN",
            code=code,
            for_seq=for_seq,
            seq=held.replay_guard.highest,
            floor=held.replay_guard.floor,
            observed_rev=held.desired_state.seen.rev,
        )
        return self._result_topic(id_), encode(answer)

    def event(self, stamp: Stamp, fields: dict[str, Any]) -> bytes:
        """Return the body of an event."""
        return encode(Event(**self.head(stamp), **fields))
