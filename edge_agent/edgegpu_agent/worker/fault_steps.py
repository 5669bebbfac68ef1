"""The worker's parts for tests of faults: journal, actions, settlers and link that report each step."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_agent.journal.saving import ContentDiff
from edgegpu_agent.ports import Action, ActionOutcome, Acts, LinkPort, Settler, SettlerNotes, Settlers
from edgegpu_agent.worker import steps
from edgegpu_agent.worker.steps import AtStep
from edgegpu_sync import topics
from edgegpu_sync.ids import CommandId, OpName
from edgegpu_sync.link.events import MessageArrived
from edgegpu_sync.messages.readers import read, result_id
from edgegpu_sync.messages.spec import AskedItem
from edgegpu_sync.rules.ops import Args, Evidence
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.topics import TopicKind


def at_commit(at_step: AtStep, when: str, change: ContentDiff) -> None:
    """Report the steps that a write to the journal is; with an `at_step` this is a journal's `Hook`."""
    if change.before is not None:
        for name, about in steps.written(change.before, change.after, change.notes):
            at_step(f"{when}-{name}", about)


@contextmanager
def _step(at_step: AtStep, name: str, about: str) -> Iterator[None]:
    at_step(f"before-{name}", about)
    yield
    at_step(f"after-{name}", about)


@dataclass(frozen=True, slots=True)
class SteppedAction:
    """An action that reports each of its steps to a test."""

    action: Action
    op: OpName
    at_step: AtStep

    def token(self, id_: CommandId, args: Args) -> str:
        """See `Action`."""
        with _step(self.at_step, steps.TOKEN, f"{self.op} {id_}"):
            return self.action.token(id_, args)

    def act(self, id_: CommandId, args: Args, token: str) -> ActionOutcome:
        """See `Action`."""
        with _step(self.at_step, steps.ACT, f"{self.op} {id_}"):
            return self.action.act(id_, args, token)

    def evidence(self, id_: CommandId, token: str) -> Evidence:
        """See `Action`; it reports no step, since it changes nothing and is called only after a crash."""
        return self.action.evidence(id_, token)

    def verify(self, id_: CommandId, args: Args, token: str) -> ActionOutcome | None:
        """See `Action`."""
        with _step(self.at_step, steps.VERIFY, f"{self.op} {id_}"):
            return self.action.verify(id_, args, token)


@dataclass(frozen=True, slots=True)
class SteppedSettler:
    """A settler that reports its step to a test."""

    settler: Settler
    at_step: AtStep

    def settle(self, one: AskedItem, notes: SettlerNotes) -> Settlement:
        """See `Settler`."""
        with _step(self.at_step, steps.SETTLE, f"item {one.name}"):
            return self.settler.settle(one, notes)


@dataclass(frozen=True, slots=True)
class SteppedUplink:
    """The link; it reports each terminal state that is sent."""

    link: LinkPort
    journal: BoxJournal
    at_step: AtStep

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, connection: int | None = None) -> int | None:
        """See `LinkPort`."""
        publish = partial(self.link.publish, topic, payload, retain=retain, connection=connection)
        held = self.journal.held
        id_ = _result_id(topic, payload)
        record = held.records.get(id_) if held is not None and id_ is not None else None
        if record is None or not record.state.terminal:
            return publish()
        with _step(self.at_step, steps.SEND, f"{record.op} {record.id}"):
            return publish()

    def ack(self, arrived: MessageArrived) -> None:
        """See `LinkPort`."""
        self.link.ack(arrived)


def _result_id(topic: str, payload: bytes) -> CommandId | None:
    to = topics.parse(topic)
    if to.kind not in {TopicKind.RESULT, TopicKind.RESULT_BY_ID}:
        return None
    return result_id(to, read(to.kind, payload.partition(b"\n")[2]))


def acts(found: Acts, at_step: AtStep) -> Acts:
    """Return actions that report their steps."""
    return {op: SteppedAction(act, op, at_step) for op, act in found.items()}


def settlers(found: Settlers, at_step: AtStep) -> Settlers:
    """Return settlers that report their steps."""
    return {kind: SteppedSettler(settler, at_step) for kind, settler in found.items()}
