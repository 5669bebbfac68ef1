"""The box's real worker under the real controller, and a wire that makes either of them one version older or newer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from kits.controller import Bed
from kits.modelbox import ModelBox, Payload
from kits.stores import open_store
from kits.worker import Box
from kits.workercontroller import BOX_KEY, CONTROLLER, DEVICE, INSTANCE, ROOT
from pydantic import BaseModel

from edgegpu_agent.journal.disk_space import JournalPages
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.store.records import EnrolledBox, Revision
from edgegpu_sync.keys import next_link, public_text
from edgegpu_sync.messages import downlink, spec, telemetry, uplink
from edgegpu_sync.rules.outbox import OutboxSizes
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import TopicKind, parse
from edgegpu_sync.wire import Json, digest

if TYPE_CHECKING:
    from pathlib import Path

Body = dict[str, Any]
Version = Callable[[TopicKind, Body], Body]

_MAPS = frozenset({"pods", "items"})
"""Their keys are names, and their values pieces of a message."""
_OPAQUE = frozenset({"refused", "data", "spec", "args", "chain"})
"""Their keys mean nothing to a reader of the message."""
_OLD = frozenset({"v", "age_s", "base", "gone", "code", "text", "args", "results", "retry", "holder"})
"""Left out these mean something else."""
_FIELDS = [
    (name, one.is_required())
    for module in (uplink, downlink, telemetry, spec)
    for model in vars(module).values()
    if isinstance(model, type) and issubclass(model, BaseModel)
    for name, one in model.model_fields.items()
]
OPTIONAL = (
    {name for name, required in _FIELDS if not required} - {name for name, required in _FIELDS if required} - _OLD
)


def same(_: TopicKind, body: Body) -> Body:
    return body


def newer(_: TopicKind, body: Body) -> Body:
    """Return it with a field that nobody knows in each piece of it."""
    changed: Body = _each(body, lambda piece: {**piece, "later": {"x": [1, None, "y"]}})
    return changed


def older(_: TopicKind, body: Body) -> Body:
    """Return it without the fields that may be left out: each has come with a version."""
    changed: Body = _each(body, lambda piece: {name: one for name, one in piece.items() if name not in OPTIONAL})
    return changed


def _each(value: Any, change: Callable[[Body], Body]) -> Any:  # noqa: ANN401  (any piece of JSON)
    match value:
        case dict():
            inside = {
                name: one
                if name in _OPAQUE
                else {key: _each(each, change) for key, each in one.items()}
                if name in _MAPS
                else _each(one, change)
                for name, one in value.items()
            }
            return change(inside)
        case list():
            return [_each(one, change) for one in value]
        case _:
            return value


class WorkerBox:
    """What `kits.controller.Network` needs of a box, around a worker."""

    def __init__(self, folder: Path, bed: Bed, *, says: Version, hears: Version) -> None:
        self.device, self._bed, self._says, self._hears = DEVICE, bed, says, hears
        self.box = Box(
            folder, enrolment=1, limits=OutboxSizes(results=256, refusals=64), room=JournalPages(pages=3_000)
        )
        self._mind_time()
        self.box.start()
        self.outgoing: list[Payload] = []

    def _mind_time(self) -> None:
        self.box.world.clock_s = self._bed.world.now_s

    def _take(self) -> None:
        sent, self.box.link.sent = self.box.link.sent, []
        self.outgoing += [
            (topic, self.rewritten(topic, payload), parse(topic).kind.retained) for topic, payload in sent
        ]

    def rewritten(self, topic: str, payload: bytes) -> bytes:
        body = self._says(parse(topic).kind, json.loads(payload.partition(b"\n")[2]))
        return Signer.of(BOX_KEY).seal(parse(topic), json.dumps(body).encode())

    def born(self) -> Payload:
        self._mind_time()
        will = self.box.connect()
        self.box.settle()
        self._take()
        topic = f"edgegpu/v1/{DEVICE}/up/status"
        return topic, self.rewritten(topic, will), True

    def receive(self, topic: str, payload: bytes) -> None:
        kind = parse(topic).kind
        if kind is not TopicKind.KEYS and (self._hears is not same or self._says is older):
            body = self._hears(kind, json.loads(payload.partition(b"\n")[2]))
            if self._says is older:  # it does not know this field
                body.pop("one_result_topic", None)
            payload = Signer.of(CONTROLLER).seal(parse(topic), json.dumps(body).encode())
        self.hear(topic, payload)

    def hear(self, topic: str, payload: bytes) -> None:
        self._mind_time()
        self.box.arrive(topic, payload)
        self.work()

    def work(self) -> None:
        self._mind_time()
        self.box.settle()
        self.box.deliver()
        self._take()

    @property
    def refused(self) -> dict[str, int]:
        return dict(self.box.worker.status().refused)


class Pair:
    """A controller and one box, connected; `says` is what the box sends, `hears` what it gets."""

    def __init__(self, folder: Path, *, says: Version = same, hears: Version = same) -> None:
        (folder / "cloud").mkdir()
        (folder / "box").mkdir()
        store = open_store(folder / "cloud/controller.db")
        with store.write() as tx:
            tx.notes.add_link(1, next_link(ROOT, keys=[public_text(CONTROLLER)]))
        store.close()
        self.bed = Bed(folder / "cloud", boxes=0)
        self.bed.signing = CONTROLLER
        self.bed.restart()
        self.fleet = self.bed.fleet
        enrolled = EnrolledBox(device=DEVICE, enrolment=1, public=public_text(BOX_KEY), instance=INSTANCE, name="box")
        with self.bed.store.write() as tx:
            add_box(tx, enrolled, Author("anna", self.bed.world.clock()))
        self.box = WorkerBox(folder / "box", self.bed, says=says, hears=hears)
        self.bed.network.connect(cast("ModelBox", self.box))  # it has what the network needs
        self.bed.until(lambda: bool(self.fleet.box("box").items or self.fleet.box("box").versions))

    def ends(self, id_: str) -> tuple[str, str]:
        self.bed.until(lambda: self.fleet.one_command(id_).ended)
        view = self.fleet.one_command(id_)
        return str(view.state), view.code

    def desire(self, value: Json) -> int:
        """Give the box a document as a controller of another version writes it."""
        with self.bed.store.write() as tx:
            box = tx.boxes.get([DEVICE])[DEVICE]
            sequence = box.sequence.give_rev(digest(value))
            change = tx.notes.changed()
            revision = Revision(rev=sequence.rev, spec=value, at_s=self.bed.world.now_s, by="anna")
            tx.boxes.add_spec(DEVICE, revision, change=change)
            tx.boxes.put([replace(box, sequence=sequence, spec_rev=sequence.rev, touched=change)])
        return sequence.rev

    def away(self) -> None:
        """Take the box off the link."""
        self.bed.network.cut_off(DEVICE)
        self.box.box.disconnect()
        self.bed.settle(2)

    def back(self) -> None:
        """Let it connect again."""
        self.bed.network.connect(cast("ModelBox", self.box))

    def settled(self, rev: int) -> dict[str, tuple[str, str]]:
        self.bed.until(lambda: self.fleet.box("box").applied_rev >= rev)
        return {name: (str(one.state), one.text or "") for name, one in self.fleet.box("box").items.items()}

    @property
    def refused(self) -> dict[str, int]:
        """What the controller has refused, by why."""
        return {why: count for (_, why), count in self.bed.controller.ingest.counts.items()}

    def close(self) -> None:
        self.box.box.crash()
        self.bed.store.close()
