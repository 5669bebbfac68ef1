"""The worker's parts for tests of faults: journal, actions, settlers and link that report each step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edgegpu_agent.journal.contents import HistoryEntry, JournalContents
from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_agent.ports import Action, ActionOutcome, Acts, LinkPort, Settler, SettlerNotes, Settlers
from edgegpu_agent.worker import steps
from edgegpu_agent.worker.steps import AtStep
from edgegpu_sync import topics
from edgegpu_sync.ids import CommandId, OpName
from edgegpu_sync.link.events import MessageArrived
from edgegpu_sync.messages.spec import AskedItem
from edgegpu_sync.messages.stamps import Stamp
from edgegpu_sync.rules.ops import Args, Evidence
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.topics import ResultTopic
from edgegpu_sync.wire import Json


class SteppedJournal(BoxJournal):
    """A journal that reports its writes."""

    def __init__(self, path: Path, at_step: AtStep, *, wall_s: Callable[[], float]) -> None:
        """See `BoxJournal`; `at_step` is called at each write."""
        super().__init__(path, wall_s=wall_s)
        self.at_step = at_step

    def save(
        self,
        held: JournalContents,
        *,
        bodies: Mapping[CommandId | Stamp, bytes] | None = None,
        notes: Mapping[str, Json | None] | None = None,
        told: Sequence[HistoryEntry] = (),
        spare: bool = False,
    ) -> None:
        """See `BoxJournal`."""
        before = self._held
        found = [] if before is None else steps.written(before, held, notes or {})
        for name, about in found:
            self.at_step(f"before-{name}", about)
        super().save(held, bodies=bodies, notes=notes, told=told, spare=spare)
        for name, about in found:
            self.at_step(f"after-{name}", about)

    def ended(self, id_: CommandId) -> OpName | None:
        """Return the op of a command that has ended and waits for its receipt."""
        record = None if self._held is None else self._held.records.get(id_)
        return record.op if record is not None and record.state.terminal else None


@contextmanager
def _step(at_step: AtStep, name: str, about: str) -> Iterator[None]:
    at_step(f"before-{name}", about)
    yield
    at_step(f"after-{name}", about)


@dataclass(frozen=True, slots=True)
class SteppedAct:
    """An action that reports each of its steps to a test."""

    act_: Action
    op: OpName
    at_step: AtStep

    def token(self, id_: CommandId, args: Args) -> str:
        """See `Action`."""
        with _step(self.at_step, steps.TOKEN, f"{self.op} {id_}"):
            return self.act_.token(id_, args)

    def act(self, id_: CommandId, args: Args, token: str) -> ActionOutcome:
        """See `Action`."""
        with _step(self.at_step, steps.ACT, f"{self.op} {id_}"):
            return self.act_.act(id_, args, token)

    def evidence(self, id_: CommandId, token: str) -> Evidence:
        """See `Action`; it reports no step, since it changes nothing and is called only after a crash."""
        return self.act_.evidence(id_, token)

    def verify(self, id_: CommandId, args: Args, token: str) -> ActionOutcome | None:
        """See `Action`."""
        with _step(self.at_step, steps.VERIFY, f"{self.op} {id_}"):
            return self.act_.verify(id_, args, token)


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
    journal: SteppedJournal

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, turn: int | None = None) -> int | None:
        """See `LinkPort`."""
        publish = partial(self.link.publish, topic, payload, retain=retain, turn=turn)
        to = topics.parse(topic)
        op = self.journal.ended(to.id) if isinstance(to, ResultTopic) else None
        if op is None or not isinstance(to, ResultTopic):
            return publish()
        with _step(self.journal.at_step, steps.SEND, f"{op} {to.id}"):
            return publish()

    def ack(self, arrived: MessageArrived) -> None:
        """See `LinkPort`."""
        self.link.ack(arrived)


def acts(found: Acts, at_step: AtStep) -> Acts:
    """Return actions that report their steps."""
    return {op: SteppedAct(act, op, at_step) for op, act in found.items()}


def settlers(found: Settlers, at_step: AtStep) -> Settlers:
    """Return settlers that report their steps."""
    return {kind: SteppedSettler(settler, at_step) for kind, settler in found.items()}
