"""One box of three is rooted: whatever its messages and its record hold, the controller goes on for the other two."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kits.controller import Bed, NewBed
from kits.sync import one_of_each

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.store.records import BoxState
from edgegpu_sync.ids import CommandId, DeviceId, device_id
from edgegpu_sync.link.events import MessageArrived
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import PlainTopic, ResultTopic, Topic, TopicKind
from edgegpu_sync.wire import MAX_COUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kits.modelbox import ModelBox

GOOD = ("box-1", "box-2")
Where = tuple[str | int, ...]


class Rooted:
    """A box whose keys are an attacker's."""

    def __init__(self, bed: Bed, number: int) -> None:
        self.bed, self.device = bed, device_id(f"{number:016d}")
        self.name = f"rooted-{number}"
        bed.network.connect(bed.enrol(self.device, self.name))

    @property
    def box(self) -> ModelBox:
        return self.bed.box(self.device)

    def send(self, topic: Topic, body: dict[str, Any]) -> None:
        payload = self.box.signer.seal(topic, json.dumps(body).encode())
        self.bed.controller.inbox.put(MessageArrived(str(topic), payload, retained=False, mid=0, connection=1))

    def forge(self, topic: Topic, sample: dict[str, Any], where: Where, value: int) -> None:
        """Send a body with this value in one place, and let the controller take it."""
        self.send(topic, put(self.stamped(sample), where, value))
        self.bed.controller.step()

    def stamped(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a body as this box would send it now."""
        self.box.stamps, stamp = self.box.stamps.next()
        epoch = {"count": stamp.epoch.count, "nonce": stamp.epoch.nonce}
        now = {"enrolment": stamp.enrolment, "epoch": epoch, "n": stamp.n, "age_s": self.box.age_s}
        if body.get("state") == "birth":
            now["instance"] = self.box.instance
        return body | now

    def is_used(self) -> None:
        """Let a person do with the box what makes its next numbers."""
        try:
            if self.bed.fleet.box(self.name).restored:
                self.bed.fleet.confirm_restored(self.name)
            self.bed.fleet.install(self.name)
        except CloudError as error:
            assert "set aside" in error.text  # noqa: PT017  (any other one is a fault)
        self.bed.controller.step()

    def comes_back(self, number: int) -> Rooted:
        """Take the machine in again, as the remedy of the alarm says."""
        alarms = [alarm for alarm in self.bed.fleet.alarms() if alarm.device == self.device]
        assert [(one.kind, f"boxes forget {self.device}" in one.text) for one in alarms][:1] == [("SET_ASIDE", True)]
        self.bed.fleet.forget(self.name)
        self.bed.network.cut_off(self.device)
        del self.bed.network.boxes[self.device]
        return Rooted(self.bed, number)


def serve(bed: Bed, names: Sequence[str] = GOOD) -> None:
    """See that boxes get what is asked of them, and are heard."""
    ids = [bed.fleet.command(name, "k3s.restart", {}, wait_s=600) for name in names]
    bed.until(lambda: all(bed.fleet.one_command(id_).ended for id_ in ids), within_s=30)
    assert {bed.state(id_) for id_ in ids} == {CommandState.SUCCEEDED}


@pytest.fixture
def bed(new_bed: NewBed) -> Bed:
    made = new_bed(boxes=2)
    made.connect_all()
    made.settle(1)
    return made


def leaves(value: object, where: Where = ()) -> Iterator[tuple[Where, object]]:
    """Return each number, text and flag of a body with the way to it."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, (*where, key))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from leaves(one, (*where, at))
    else:
        yield where, value


def put(body: dict[str, Any], where: Where, value: object) -> dict[str, Any]:
    made: Any = json.loads(json.dumps(body))
    within = made
    for step in where[:-1]:
        within = within[step]
    within[where[-1]] = value
    return dict(made)


def uplinks(device: DeviceId, id_: CommandId) -> list[tuple[Topic, dict[str, Any]]]:
    made = []
    for kind, message in one_of_each():
        if kind in {TopicKind.DESIRED, TopicKind.COMMAND, TopicKind.RECEIPT, TopicKind.KEYS}:
            continue
        topic: Topic = ResultTopic(device, id_) if kind is TopicKind.RESULT_BY_ID else PlainTopic(device, kind)
        body = json.loads(message.model_dump_json(exclude_none=True))
        if kind is TopicKind.RESULT:
            body["id"] = id_
        made.append((topic, body | {name: 0 for name in ("seq", "observed_rev", "key_set") if name in body}))
    return made


FOLLOWED = [
    *((0, name) for name in ("enrolment", "count", "seq", "observed_rev", "key_set")),
    *((kind, name) for kind in (3, 5) for name in ("seq", "observed_rev")),
]
"""What a controller takes over from a box: the numbers of its birth, of a reported state, of a command not taken."""

WORST: list[Any] = [MAX_COUNT, 10**300, -1, "\ud800", "\x00", "\uffff" * 1_000, None, True, [], {}, [[]] * 90]


def each_followed(bed: Bed) -> Iterator[tuple[Rooted, str, CommandId, Callable[[int], None]]]:
    """Yield a rooted box for each number in FOLLOWED: the box, the number's name, a command of it, what sends a value.

    All boxes are there, and commanded, before the first comes.
    """
    bad = [Rooted(bed, number) for number in range(11, 11 + len(FOLLOWED))]
    bed.settle(1)
    ids = [bed.fleet.command(one.name, "k3s.restart", {}, wait_s=600) for one in bad]
    for rooted, (at, name), id_ in zip(bad, FOLLOWED, ids, strict=True):
        topic, sample = uplinks(rooted.device, id_)[at]
        (where,) = [one for one, _ in leaves(rooted.stamped(sample)) if one[-1] == name]
        yield rooted, name, id_, partial(rooted.forge, topic, sample, where)


@pytest.mark.parametrize("restarts", [False, True])
def test_the_worst_of_each_number_sets_one_box_aside_and_it_comes_back_as_another(bed: Bed, *, restarts: bool) -> None:
    bad = []
    for rooted, name, id_, send in each_followed(bed):
        bad.append(rooted)
        send(MAX_COUNT)
        if restarts:
            bed.restart()
        rooted.is_used()
        assert bed.fleet.box(rooted.name).state is BoxState.SET_ASIDE, name
        assert (bed.state(id_), bed.fleet.one_command(id_).code) == (CommandState.UNKNOWN, "SET_ASIDE")
    serve(bed)
    anew = [rooted.comes_back(number).name for number, rooted in enumerate(bad, 31)]
    bed.settle(1)
    serve(bed, [*GOOD, *anew])


JUMP = 2**24
"""How far docs/mqtt-api.md lets a number be above what is known."""


def known(bed: Bed, device: DeviceId, name: str) -> int:
    """Return what the store knows of a number that boxes tell."""
    with bed.store.read() as tx:
        sequence = tx.boxes.get([device])[device].sequence
    assert sequence.epoch is not None
    numbers = {
        "enrolment": sequence.enrolment,
        "count": sequence.epoch.count,
        "seq": sequence.next_seq,
        "key_set": sequence.key_set,
    }
    return numbers.get(name, sequence.rev)


def test_a_box_is_followed_over_the_longest_jump_and_one_further_sets_it_aside(bed: Bed) -> None:
    for rooted, name, _, send in each_followed(bed):
        most = known(bed, rooted.device, name) + JUMP
        send(most)
        assert bed.fleet.box(rooted.name).state is BoxState.ENROLLED, name
        assert known(bed, rooted.device, name) == most + (name == "seq"), "of seq the next one is known"
        rooted.is_used()

        before = known(bed, rooted.device, name)
        send(before + JUMP + 1)
        assert bed.fleet.box(rooted.name).state is BoxState.SET_ASIDE, name
        (alarm,) = [one for one in bed.fleet.alarms() if (one.device, one.kind) == (rooted.device, "SET_ASIDE")]
        said = "epoch" if name == "count" else name
        assert f"{said} {before + JUMP + 1}, known is {before}" in alarm.text
    serve(bed)


def test_the_worst_of_each_field_stops_nobody(bed: Bed) -> None:
    rooted = Rooted(bed, 3)
    bed.settle(1)
    id_ = bed.fleet.command(rooted.name, "k3s.restart", {}, wait_s=600)
    for at, (topic, sample) in enumerate(uplinks(rooted.device, id_)):
        for where, _ in leaves(rooted.stamped(sample)):
            for value in WORST if (at, where[-1]) not in FOLLOWED else WORST[1:]:
                rooted.send(topic, put(rooted.stamped(sample), where, value))
        bed.controller.step()
    assert bed.fleet.box(rooted.name).state is BoxState.ENROLLED, "nothing of that is taken over"
    rooted.is_used()
    serve(bed)
    bed.restart()
    serve(bed)


RECORDS: list[tuple[str, str, object]] = [
    *(
        ("boxes", column, MAX_COUNT)
        for column in ("enrolment", "epoch_count", "next_seq", "rev", "key_set", "spec_rev", "told_rev", "observed_rev")
    ),
    ("boxes", "looks", MAX_COUNT),
    ("boxes", "look_at_s", -1.0),
    ("boxes", "labels", "no JSON"),
    ("boxes", "public", "no key"),
    ("boxes", "epoch_nonce", "none"),
    ("specs", "spec", "no JSON"),
    ("specs", "spec", json.dumps({"much": "x" * 100_000})),
    ("commands", "args", "no JSON"),
    ("commands", "args", json.dumps({"much": "x" * 100_000})),
    ("commands", "state", "NONE"),
    ("commands", "seq", MAX_COUNT),
    ("commands", "seq", 0),
    ("commands", "op", "no op"),
    ("commands", "due_at_s", 1e300),
    ("latest", "body", "no JSON"),
    ("latest", "body", "{}"),
    ("latest", "count", MAX_COUNT),
    ("latest", "nonce", "none"),
]


def test_whatever_records_of_boxes_hold_the_others_are_served(tmp_path: Path) -> None:
    bed = Bed(tmp_path, boxes=2)  # on SQLite: PostgreSQL takes no value of another type
    bed.connect_all()
    bed.settle(1)
    bad = [Rooted(bed, number) for number in range(11, 11 + len(RECORDS))]
    bed.settle(1)
    for rooted in bad:
        bed.fleet.install(rooted.name)
    bed.settle(1)
    for rooted in bad:
        bed.network.cut_off(rooted.device)
        bed.fleet.command(rooted.name, "k3s.restart", {}, wait_s=600)
    with closing(sqlite3.connect(bed.path)) as connection:
        for rooted, (table, column, value) in zip(bad, RECORDS, strict=True):
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE device = ?", (value, rooted.device))  # noqa: S608
        connection.commit()
    for _ in range(2):
        for rooted in bad:
            bed.network.connect(rooted.box)
        serve(bed)
        bed.restart()
    with bed.store.read() as tx:
        told = {(alarm.kind, alarm.device) for alarm in tx.notes.alarms()}
    passed_over = {RECORDS[int(device) - 11] for kind, device in told if kind == "box.ERROR"}
    assert passed_over >= {one for one in RECORDS if one[2] == "no JSON"}
    aside = {alarm.device: alarm.text for alarm in bed.fleet.alarms() if alarm.kind == "SET_ASIDE"}
    for column in ("enrolment", "epoch_count", "next_seq", "rev", "key_set"):
        text = aside[bad[RECORDS.index(("boxes", column, MAX_COUNT))].device]
        assert f"(its stored {column.partition('_count')[0]} is {MAX_COUNT})" in text
    mended = bad[RECORDS.index(("commands", "state", "NONE"))]
    with closing(sqlite3.connect(bed.path)) as connection:
        state = "CASE WHEN ended THEN 'SUCCEEDED' END"
        connection.execute(f"UPDATE commands SET state = {state} WHERE device = ?", (mended.device,))  # noqa: S608
        connection.commit()
    bed.until(lambda: all(one.ended for one in bed.fleet.commands(mended.device)), within_s=100, step_s=10)
