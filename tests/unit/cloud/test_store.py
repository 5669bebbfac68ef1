"""The store: durable, whole or not at all, shared by processes, and refused where a newer edgegpu has made it."""

import secrets
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kits.lockers import locked_by_another_user, open_folder
from kits.stores import open_store
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.schema import CreateTable

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import RetentionConfig
from edgegpu_cloud.store.boxes import KEPT_REVISIONS
from edgegpu_cloud.store.commands import KEPT_ORPHANS
from edgegpu_cloud.store.engine import BUSY_S
from edgegpu_cloud.store.enrolments import AttemptFilter
from edgegpu_cloud.store.notes import KEPT_EVENTS, MOST_ALARMS
from edgegpu_cloud.store.records import (
    BoxEvent,
    BoxRecord,
    CertificateRecord,
    CommandHistoryLine,
    EnrolmentAttempt,
    Orphan,
    RequestState,
    Revision,
    StoredCommand,
    Token,
)
from edgegpu_cloud.store.schema import TableRow
from edgegpu_cloud.store.store import CommitMoment, ControllerStore, StoreError
from edgegpu_sync.ids import CommandId, command_id, device_id, op_name
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.messages.telemetry import TRANSACTION
from edgegpu_sync.rules.sequence import CommandSequence
from edgegpu_sync.rules.tracking import TrackedCommand
from edgegpu_sync.states import CommandState

DEVICE = device_id("0000000000000001")
OP = op_name("k3s.restart")


def a_box(**sequence: object) -> BoxRecord:
    return BoxRecord(
        device=DEVICE,
        name="box-1",
        public="A" * 43,
        sequence=CommandSequence(enrolment=3, **sequence),  # type: ignore[arg-type]
        labels={"site": "m"},
    )


def a_command(number: int, **tracked: object) -> StoredCommand:
    one = TrackedCommand(id=command_id(f"command-{number}"), op=OP, args={"a": [1]}, due_at_s=5.0, **tracked)  # type: ignore[arg-type]
    return StoredCommand(device=DEVICE, tracked=one, by="anna", at_s=1.0)


@pytest.fixture
def store(store_url: str) -> Iterator[ControllerStore]:
    store = open_store(store_url)
    with store.write() as tx:
        tx.boxes.add(a_box())
    yield store
    store.close()


def test_what_is_put_in_comes_out_again(store: ControllerStore) -> None:
    epoch = Epoch(7, "9f2c4d1a7b3e5f60")
    box = a_box(epoch=epoch, next_seq=2**40, rev=9, digest="d" * 16, restored=True, key_set=2, instance="ab" * 32)
    stamp = Stamp(enrolment=3, epoch=epoch, n=2**52)
    command = a_command(1, seq=5, state=CommandState.RUNNING, signed_for=epoch, stamp=stamp, tries=3, quiet_since_s=1.5)
    with store.write() as tx:
        tx.boxes.put([box])
        tx.commands.add(command)
    with store.read() as tx:
        assert tx.boxes.get([DEVICE]) == {DEVICE: box}
        found = tx.commands.get([command.id])[command.id]
    assert found == StoredCommand(**{**{f: getattr(command, f) for f in command.__slots__}, "number": 1})


def test_boxes_are_found_by_name_id_and_machine_without_reading_the_fleet(store: ControllerStore) -> None:
    def another(number: int, name: str, instance: str) -> BoxRecord:
        sequence = CommandSequence(enrolment=1, instance=instance)
        device = device_id(f"{number:016d}")
        return replace(a_box(), device=device, name=name, sequence=sequence, enrolled_at_s=float(-number))

    with store.write() as tx:
        for number, (name, instance) in enumerate([("box-10", "m"), ("box-11", "m"), ("other", "n")], 2):
            tx.boxes.add(another(number, name, instance))
        second, third = device_id("0000000000000002"), device_id("0000000000000003")
        assert (
            tx.boxes.with_exact_name("box-1"),
            tx.boxes.with_exact_name(third),
            tx.boxes.with_exact_name("box-"),
        ) == ([DEVICE], [third], [])
        assert tx.boxes.with_name_prefix("box-1") == [DEVICE]
        assert (tx.boxes.with_instance("m"), tx.boxes.with_instance("")) == ([third, second], [DEVICE])


def test_a_block_that_raises_changes_nothing(store: ControllerStore) -> None:
    def half() -> None:
        with store.write() as tx:
            tx.commands.add(a_command(1))
            raise KeyError

    with pytest.raises(KeyError):
        half()
    with store.read() as tx:
        assert tx.commands.open(DEVICE) == []


def test_what_is_there_twice_is_an_error_with_a_remedy(store: ControllerStore) -> None:
    with pytest.raises(StoreError, match=r"(?i)unique.*; somebody has written the same"), store.write() as tx:
        tx.boxes.add(a_box())


def test_each_commit_is_on_the_disk(tmp_path: Path) -> None:
    store = ControllerStore.open_file(tmp_path / "folder" / "controller.db")
    with store._writing.connect() as connection:  # noqa: SLF001  (what the driver was told)
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
    assert (tmp_path / "folder" / "controller.db").exists()


def test_the_files_are_for_their_owner_alone_also_those_of_before(tmp_path: Path) -> None:
    path = tmp_path / "controller.db"
    files = {path.with_name(path.name + end) for end in ("", "-wal", "-shm")}
    store = ControllerStore.open_file(path)
    with store.write() as tx:
        tx.boxes.add(a_box())
    assert {one: one.stat().st_mode & 0o777 for one in files} == dict.fromkeys(files, 0o600)
    for one in files:
        one.chmod(0o644)
    ControllerStore.open_file(path).close()
    assert {one: one.stat().st_mode & 0o777 for one in files} == dict.fromkeys(files, 0o600)
    store.close()


def test_a_user_without_root_makes_no_writer_wait() -> None:
    """The user holds the lock of each file and folder that they can open; the store's folder is open to all."""
    with open_folder() as folder:
        store = ControllerStore.open_file(folder / "controller.db")
        with store.write() as tx:
            tx.boxes.add(a_box())
        with locked_by_another_user(folder) as paths:
            assert paths == ["."]
            began_s = time.monotonic()
            with store.write():
                waited_s = time.monotonic() - began_s
        assert waited_s < BUSY_S  # a writer would wait for so long
        store.close()


def test_a_fault_of_the_database_has_no_value_of_a_row(store: ControllerStore) -> None:
    value = secrets.token_hex(16)
    with pytest.raises(StoreError) as caught, store.write() as tx:
        tx.boxes.add(replace(a_box(), host=value))
    told = "".join(traceback.format_exception(caught.value))
    assert ("INSERT INTO boxes" in told, value in told) == (True, False), told


def test_a_reader_sees_one_state_while_another_writes(store: ControllerStore) -> None:
    with store.read() as reader:
        assert reader.commands.open(DEVICE) == []
        with store.write() as writer:
            writer.commands.add(a_command(1))
        assert reader.commands.open(DEVICE) == []
    with store.read() as reader:
        assert len(reader.commands.open(DEVICE)) == 1


_COUNT = """
import sys
from edgegpu_cloud.store.store import ControllerStore as Store
store = Store.open(sys.argv[1])
for _ in range(50):
    with store.write() as tx:
        tx.notes.changed()
"""


def test_two_processes_write_in_turns(store_url: str, store: ControllerStore) -> None:
    with subprocess.Popen([sys.executable, "-c", _COUNT, store_url]) as other:
        for _ in range(50):
            with store.write() as tx:
                tx.notes.changed()
        assert other.wait(30) == 0
    with store.read() as tx:
        assert tx.notes.number("changes") == 100


def test_postgresql_has_all_that_the_tables_need() -> None:
    tables, dialect = TableRow.metadata.sorted_tables, make_url("postgresql://").get_dialect()()
    assert len(tables) > 12
    for one in tables:
        assert f"CREATE TABLE {one.name}" in str(CreateTable(one).compile(dialect=dialect))


def test_no_database_is_an_error_with_a_remedy() -> None:
    with pytest.raises(CloudError, match="give a URL"):
        ControllerStore.open("not a url")


def test_server_time_never_goes_back(store: ControllerStore) -> None:
    with store.write() as tx:
        told = [tx.leases.server_times([DEVICE], now_s)[DEVICE] for now_s in (10.9, 8.0, 11.0)]
        assert told == [10, 10, 11]
        assert tx.leases.newest_server_time() == 11


def test_commits_are_watched(tmp_path: Path) -> None:
    seen: list[CommitMoment] = []
    store = ControllerStore.open_file(tmp_path / "controller.db", watcher=seen.append)
    with store.write() as tx:
        tx.notes.changed()
    assert seen == [CommitMoment.BEFORE_COMMIT, CommitMoment.AFTER_COMMIT]


def test_one_box_that_floods_takes_a_bounded_place(store: ControllerStore) -> None:
    with store.write() as tx:
        event = BoxEvent(device=DEVICE, kind="card.lost", level="info", text="1", about="", box_at=1, at_s=9.0)
        tx.notes.add_events([event] * KEPT_EVENTS + [replace(event, text="the last")] * 5)
        for number in range(MOST_ALARMS + 9):
            tx.notes.alarm(f"kind-{number}", device=DEVICE, text=f"alarm {number}", now_s=9.0)
        tx.notes.alarm("SET_ASIDE", device=DEVICE, text="it lies", now_s=9.0)
        tx.notes.alarm("kind-1", device="another", text="of another box", now_s=9.0)
        tx.tidy(RetentionConfig(), now_s=90 * 86_400 + 1.0)
        events = tx.notes.events(DEVICE, limit=2 * KEPT_EVENTS)
        alarms = {(one.device, one.kind): one for one in tx.notes.alarms()}
    assert (len(events), [one.text for one in events[4:6]]) == (KEPT_EVENTS, ["the last", "1"])
    assert len(alarms) == MOST_ALARMS + 3
    many = alarms[DEVICE, "MANY_ALARMS"]
    assert (many.times, "alarm 58" in many.text) == (9, True)
    assert {(DEVICE, "SET_ASIDE"), ("another", "kind-1")} <= alarms.keys()


def test_what_is_old_is_dropped_and_what_is_open_is_not(store: ControllerStore) -> None:
    ended = {"state": CommandState.SUCCEEDED}
    commands = [
        replace(a_command(1, **ended), ended_at_s=10.0),
        replace(a_command(2, **ended), ended_at_s=30.0),
        a_command(3),
    ]
    with store.write() as tx:
        for one in commands:
            tx.commands.add(one)
            tx.commands.heard([CommandHistoryLine(command=one.id, at_s=1.0, state=CommandState.RECEIVED)])
        for rev in range(1, KEPT_REVISIONS + 4):
            tx.boxes.add_spec(DEVICE, Revision(rev=rev, spec={}, at_s=1.0, by="anna"), change=rev)
        tx.boxes.put([replace(a_box(), spec_rev=KEPT_REVISIONS + 3)])
        event = BoxEvent(device=DEVICE, kind="k", level="info", text="t", about="", box_at=0, at_s=10.0)
        tx.notes.add_events([event, replace(event, at_s=30.0)])
        assert not tx.tidy(RetentionConfig(), now_s=90 * 86_400 + 20.0)
        assert [one.id for one in tx.commands.of(DEVICE, limit=9)] == ["command-3", "command-2"]
        assert [len(tx.commands.history(one.id)) for one in commands] == [0, 1, 1]
        assert [tx.boxes.spec(DEVICE, rev) is None for rev in (1, 2, 3, 4)] == [True, True, False, False]
        assert [one.at_s for one in tx.notes.events(DEVICE, limit=9)] == [30.0]


class TestCommands:
    def test_they_wait_wake_and_are_found_when_due(self, store: ControllerStore) -> None:
        with store.write() as tx:
            for number in range(1, 6):
                tx.commands.add(a_command(number, seq=number if number < 3 else None))
            tx.commands.park([DEVICE])
            assert tx.commands.due_boxes(1e9, limit=9) == []
            assert tx.commands.waiting([DEVICE]) == [DEVICE]
            assert tx.commands.outstanding([DEVICE]) == {DEVICE: (1, 2)}
            tx.commands.wake_unsigned(DEVICE, limit=2)
            assert [one.id for one in tx.commands.due([DEVICE], 0.0, limit=9)] == ["command-3", "command-4"]
            tx.commands.wake([DEVICE])
            assert len(tx.commands.due([DEVICE], 0.0, limit=9)) == 5
            tx.commands.park_unsigned(DEVICE)
            assert [one.id for one in tx.commands.due([DEVICE], 0.0, limit=9)] == ["command-1", "command-2"]
            tx.commands.park_all()
            assert tx.commands.due([DEVICE], 1e9, limit=9) == []

    def test_orphans_are_kept_once_and_not_without_end(self, store: ControllerStore) -> None:
        def orphan(number: int, state: CommandState = CommandState.SUCCEEDED) -> Orphan:
            id_ = CommandId(f"orphan-{number}")
            return Orphan(device=DEVICE, id=id_, op=OP, state=state, code="", text="", at_s=float(number))

        with store.write() as tx:
            tx.commands.add_orphans([orphan(1), orphan(1, CommandState.FAILED)])
            assert [one.state for one in tx.commands.orphans()] == [CommandState.SUCCEEDED]
            tx.commands.add_orphans([orphan(number) for number in range(2, KEPT_ORPHANS + 5)])
            kept = tx.commands.orphans(DEVICE)
        assert (len(kept), kept[0].id) == (KEPT_ORPHANS, "orphan-5")


class TestEnrolments:
    def test_tokens_requests_and_certificates(self, store: ControllerStore) -> None:
        token = Token(digest="d" * 64, by="anna", at_s=1.0, expires_at_s=9.0, labels={"a": "b"})
        request = EnrolmentAttempt(id="r1", token=token.digest, digest="e" * 64, asked={"host": "h"}, at_s=2.0)
        fields = {"device": DEVICE, "csr_sha256": "c" * 64, "pem": "PEM", "not_before_s": 0.0}
        old = CertificateRecord(serial="01", enrolment=2, not_after_s=5.0, **fields)  # type: ignore[arg-type]
        new = CertificateRecord(serial="02", enrolment=3, not_after_s=8.0, **fields)  # type: ignore[arg-type]
        with store.write() as tx:
            tx.enrolments.add_token(token)
            tx.enrolments.add_request(request)
            for one in (old, new):
                tx.enrolments.add_certificate(one)
            assert tx.enrolments.token(token.digest) == token
            assert tx.enrolments.requests(AttemptFilter(state=RequestState.WAITING)) == [request]
            assert tx.enrolments.certificate_for(DEVICE, 3, "c" * 64) == new
            tx.enrolments.revoke_certificates(DEVICE, now_s=7.0, below_enrolment=3)
            assert [(one.serial, one.revoked_at_s) for one in tx.enrolments.revoked()] == [("01", 7.0)]
            tx.enrolments.revoke_certificates(DEVICE, now_s=8.0)
            assert [one.revoked_at_s for one in tx.enrolments.certificates(DEVICE)] == [7.0, 8.0]


def test_a_transaction_that_a_box_reports_again_is_stored_once(store: ControllerStore) -> None:
    said = BoxEvent(device=DEVICE, kind=TRANSACTION, level="info", text="t", about="one", box_at=0, at_s=1.0)
    one = replace(said, transaction={"id": "one"})
    other = replace(one, about="two", transaction={"id": "two"})
    with store.write() as tx:
        tx.notes.add_events([one, one, replace(said, kind="card.lost")])
    with store.write() as tx:
        tx.notes.add_events([replace(one, at_s=9.0), other, replace(said, kind="card.lost")])
        found = tx.notes.events(DEVICE, limit=9)
        assert [(event.kind, event.about, event.at_s) for event in found] == [
            ("card.lost", "one", 1.0),
            (TRANSACTION, "two", 1.0),
            ("card.lost", "one", 1.0),
            (TRANSACTION, "one", 1.0),
        ]
        assert [one.transaction for one in tx.notes.events(DEVICE, limit=9, transactions=True)] == [
            {"id": "two"},
            {"id": "one"},
        ]
        assert [one.kind for one in tx.notes.events(DEVICE, limit=9, transactions=False)] == ["card.lost"] * 2
