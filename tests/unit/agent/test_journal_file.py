"""The journal's file: what was written is there again; one that cannot be used is set aside; one at a time has it."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from kits.sync import EPOCH, ID, RESTART, limits

from edgegpu_agent.journal.contents import HistoryEntry, JournalContents, LastContact
from edgegpu_agent.journal.disk_space import JournalPages
from edgegpu_agent.journal.errors import BoxJournalError, JournalFullError
from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_sync.ids import CommandId, command_id
from edgegpu_sync.messages.spec import Isolation, IsolationMode, Sharing, Spec, asked
from edgegpu_sync.messages.stamps import Stamp
from edgegpu_sync.messages.uplink import CardFreeNumbers, Condition, Numbers
from edgegpu_sync.rules.commands import CommandRecord
from edgegpu_sync.rules.outbox import KeptMessage, OutboxSizes
from edgegpu_sync.rules.replay_guard import MEMORY, SeenRevision
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.states import CommandState
from edgegpu_sync.wire import digest

SMALL = OutboxSizes(results=8, refusals=16, events_bytes=8_192, metrics_bytes=8_192)
ROOM = JournalPages(pages=900, log_pages=300)
STAMP = Stamp(enrolment=3, epoch=EPOCH, n=7)
BODIES: dict[CommandId | Stamp, bytes] = {ID: b"data", STAMP: b"event", replace(STAMP, n=8): b"metr"}


def opened(path: Path, enrolment: int = 3) -> tuple[BoxJournal, JournalContents]:
    journal = BoxJournal(path, limits=SMALL, room=ROOM, wall_s=lambda: 1_790_000_000.0)
    return journal, journal.load(enrolment=enrolment, root="root")


def a_record(number: int = 0, state: CommandState = CommandState.RECEIVED) -> CommandRecord:
    id_ = ID if not number else command_id(f"command-{number}")
    return CommandRecord(
        id=id_, op=RESTART, seq=number + 1, args={"a": [1]}, until_s=9, left_s=8, boot="b", state=state
    )


def settled(held: JournalContents) -> JournalContents:
    numbers = Numbers(
        need_units=4,
        need_core=1,
        verdict="never_fits",
        cards=(CardFreeNumbers(node="box", card="0", free_units=1, free_core=2),),
    )
    spec = Spec(
        sharing=Sharing(rev=3, installed=True),
        isolation=Isolation(rev=3, mode=IsolationMode.NONE),
        app_limits=(limits(),),
    ).to_json()
    items = asked(spec, 5)
    desired_state = held.desired_state.observe(SeenRevision(5, digest(spec)), items)
    desired_state = desired_state.begin(items[0])
    desired_state = desired_state.settle(items[0].name, items[0].key, Settlement.applied("it stands")).begin(items[2])
    desired_state = desired_state.settle(items[2].name, items[2].key, Settlement.rejected("NO_ROOM", "none", numbers))
    desired_state = desired_state.noticed(items[2].name, (Condition(type="Drifted", manager="x"),)).begin(items[1])
    return replace(held, desired_state=desired_state, spec=spec, settling=items[1])


def full_of_things(held: JournalContents) -> JournalContents:
    held = settled(held)
    guard = held.replay_guard.born(nonce="ab" * 8, now_s=4.5)
    outbox = held.outbox.reserve(ID).ended(ID).add_event(KeptMessage(STAMP, 5, alarm=True))
    outbox = outbox.add_metrics(KeptMessage(replace(STAMP, n=8), 4)).reserve(command_id("command-1"))
    records = {ID: a_record(state=CommandState.SUCCEEDED), command_id("command-1"): a_record(1, CommandState.RUNNING)}
    return replace(
        held,
        replay_guard=replace(guard, floor=7, seen=5, forgotten=2),
        ring=replace(held.ring, version=2, digest="ab" * 32, keys=(("kid", "public"),)),
        records=records,
        outbox=replace(outbox, dropped_events=3),
        server_time=17,
        heard=LastContact("b", 3.5),
        refused={"Forged": 2},
    )


def test_what_was_written_is_there_again(tmp_path: Path) -> None:
    journal, held = opened(tmp_path / "j" / "journal.db")
    held = full_of_things(held)
    told = (HistoryEntry(kind="command", about=ID, state="RUNNING", text="begun", by="anna"),)
    journal.save(held, bodies=BODIES, notes={"sharing": {"tx": "1"}, "other": {"x": 1}}, told=told)
    journal.save(held, notes={"other": None})
    journal.close()
    journal, again = opened(tmp_path / "j" / "journal.db")
    assert again == held
    assert [journal.body(key) for key in BODIES] == list(BODIES.values())
    assert journal.note("sharing") == {"tx": "1"}
    assert journal.note("other") is None
    assert journal.history(9) == [replace(told[0], n=1, at_s=1_790_000_000)]
    assert journal.told == ""
    journal.close()


def test_a_step_that_fails_leaves_nothing(tmp_path: Path) -> None:
    journal, held = opened(tmp_path / "journal.db")
    later = replace(held, server_time=9)
    with pytest.raises(OverflowError):
        journal.save(later, told=(HistoryEntry(kind="x", about="y", state="z", at_s=2**70),))
    journal.close()
    journal, again = opened(tmp_path / "journal.db")
    assert again == held
    journal.close()


def test_a_record_leaves_its_arguments_behind_when_it_is_only_remembered(tmp_path: Path) -> None:
    journal, held = opened(tmp_path / "journal.db")
    held = replace(held, records={ID: a_record(state=CommandState.REJECTED)})
    journal.save(held)
    journal.save(replace(held, records={}))
    assert journal.recall(ID) == replace(a_record(state=CommandState.REJECTED), args={})
    assert journal.recall(command_id("never-seen")) is None
    journal.close()


def test_ids_are_forgotten_from_the_oldest_on_and_never_one_that_is_open(tmp_path: Path) -> None:
    journal, held = opened(tmp_path / "journal.db")
    many = [a_record(number, CommandState.SUCCEEDED) for number in range(1, MEMORY + 300)]
    held = replace(held, replay_guard=held.replay_guard.raised(MEMORY + 400), records={one.id: one for one in many})
    journal.save(held)
    assert journal.forgettable(held) is None
    held = replace(held, records={})
    journal.save(held)
    assert journal.forgettable(held) == 300
    held = replace(held, records={ID: replace(a_record(), seq=100)})
    seq = journal.forgettable(held)
    assert seq == 99
    journal.save(replace(held, replay_guard=held.replay_guard.forgets(seq)))
    assert journal.recall(command_id("command-98")) is None
    assert journal.recall(command_id("command-99")) is not None
    journal.close()


def test_history_is_bounded(tmp_path: Path) -> None:
    journal, held = opened(tmp_path / "journal.db")
    for part in range(25):
        journal.save(
            held, told=[HistoryEntry(kind="link", about="", state=str(part * 100 + one)) for one in range(100)]
        )
    lines = journal.history(10_000)
    assert len(lines) == 2_000
    assert lines[0].state == "2499"
    journal.close()


def test_a_new_enrolment_begins_anew_and_an_older_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal, held = opened(path)
    journal.save(full_of_things(held), told=[HistoryEntry(kind="link", about="", state="x")], notes={"sharing": {}})
    journal.close()
    journal, held = opened(path, enrolment=4)
    assert held == JournalContents.fresh(enrolment=4, root="root", limits=SMALL)
    assert (journal.note("sharing"), len(journal.history(9)), journal.told) == (None, 1, "")
    journal.close()
    journal = BoxJournal(path, limits=SMALL, room=ROOM, wall_s=lambda: 0)
    with pytest.raises(BoxJournalError, match="enrol this box again"):
        journal.load(enrolment=3, root="root")
    journal.close()


@pytest.mark.parametrize("harm", ["text", "middle", "empty-tables", "foreign", "newer", "old-odd"])
def test_a_file_that_cannot_be_used_is_set_aside_and_told(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "journal.db"
    journal, held = opened(path)
    journal.save(full_of_things(held), bodies=BODIES)
    journal.close()
    _harm(path, harm)
    journal, held = opened(path)
    assert held == JournalContents.fresh(enrolment=3, root="root", limits=SMALL)
    assert "enrolled again" in journal.told
    assert len(list(tmp_path.glob("journal.db.aside-*"))) >= 1
    journal.close()
    journal, _ = opened(path)
    assert "enrolled again" in journal.told  # still, until it is enrolled again
    journal.close()


def _harm(path: Path, harm: str) -> None:
    if harm == "text":
        path.write_text("no journal at all, but text\n" * 1000)
    elif harm == "middle":
        data = bytearray(path.read_bytes())
        data[4096:40960] = bytes(36864)
        path.write_bytes(data)
    else:
        link = sqlite3.connect(path)
        statements = {
            "empty-tables": "DROP TABLE outbox",
            "foreign": "PRAGMA application_id = 7",
            "newer": "PRAGMA user_version = 99",
            "old-odd": "PRAGMA user_version = 0",
        }
        link.execute("UPDATE one SET value = '99' WHERE name = 'oldest_reader'")
        link.execute(statements[harm])
        link.commit()
        link.close()


def test_a_file_of_a_newer_version_that_this_one_can_read_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal, held = opened(path)
    journal.save(full_of_things(held), bodies=BODIES)
    journal.close()
    with sqlite3.connect(path) as link:
        link.execute("PRAGMA user_version = 2")
        link.execute("ALTER TABLE history ADD COLUMN more TEXT")
        link.execute("CREATE TABLE later (x)")
    link.close()
    journal, again = opened(path)
    assert again == full_of_things(held)
    journal.save(again, told=[HistoryEntry(kind="link", about="", state="x")])
    journal.close()


def test_another_process_is_kept_out_and_nothing_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal, _ = opened(path)
    with pytest.raises(BoxJournalError, match="locked"):
        opened(path)
    journal.close()
    assert not list(tmp_path.glob("*.aside-*"))


def test_what_can_wait_is_refused_where_only_the_reserve_is_left(tmp_path: Path) -> None:
    journal, held = opened(tmp_path / "journal.db")
    names: list[str] = []
    while journal.free_pages >= ROOM.spare_from(0):
        names.append(f"ballast {len(names)}")
        journal.save(held, notes={names[-1]: {"x": "y" * 60_000}})
    told = [HistoryEntry(kind="link", about="", state="x")]
    with pytest.raises(JournalFullError):
        journal.save(replace(held, server_time=3), spare=True)
    journal.save(replace(held, server_time=4), told=told)
    assert journal.history(9) == []
    with pytest.raises(JournalFullError):
        journal.save(held, notes={f"more {number}": {"x": "y" * 60_000} for number in range(90)})
    journal.save(held, notes=dict.fromkeys(names))
    journal.save(replace(held, server_time=5), spare=True, told=told)
    assert len(journal.history(9)) == 1
    journal.close()
