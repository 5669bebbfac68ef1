"""Commands through a worker: each state told, ends until their receipt, refusals counted, order kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kits.worker import Box, Wire, wired
from kits.workercontroller import LOGS, LOGS_ARGS, REFRESH, RESTART

from edgegpu_sync.ids import op_name
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.messages.uplink import Birth, CommandResult
from edgegpu_sync.states import CommandState, ResultCode


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    wire = wired(tmp_path)
    yield wire
    wire.box.crash()


def test_a_birth_comes_first_and_brings_the_keys(wire: Wire) -> None:
    first, *_ = wire.controller.seen
    assert isinstance(first, Birth)
    assert first.capabilities == (
        "app_limits",
        "inventory.refresh",
        "k3s.restart",
        "logs.collect",
        "sharing.install",
        "sharing.uninstall",
    )
    assert (first.n, wire.box.worker.status().key_set) == (1, 1)


def test_a_command_is_done_and_its_end_receipted(wire: Wire) -> None:
    id_ = wire.controller.command(RESTART)
    wire.exchange()
    assert wire.controller.ends == {id_: [CommandState.SUCCEEDED]}
    assert wire.controller.results[id_].data == {"ready": True}
    assert wire.box.world.restarted_by == {id_: 1}
    status = wire.box.worker.status()
    assert (status.commands, status.results_waiting, status.outbox_used) == ((), 0, 0)
    told = [(line.about, line.state) for line in wire.box.worker.history(99).lines if line.kind == "command"]
    assert told == [(id_, state) for state in ("SUCCEEDED", "VERIFYING", "RUNNING", "ACCEPTED", "RECEIVED")]


@pytest.mark.parametrize(
    ("op", "args", "code"),
    [
        ("never.heard", {}, ResultCode.UNKNOWN_OP),
        ("doctor.run", {}, ResultCode.UNKNOWN_OP),
        ("logs.collect", {"url": "ftp://x"}, ResultCode.BAD_ARGUMENTS),
        ("k3s.restart", {"critical": ["softly"]}, ResultCode.UNSUPPORTED),
    ],
)
def test_what_cannot_be_done_is_rejected_at_once(wire: Wire, op: str, args: dict[str, object], code: str) -> None:
    id_ = wire.controller.command(op_name(op), args)  # type: ignore[arg-type]
    wire.exchange()
    result = wire.controller.results[id_]
    assert (result.state, result.code) == (CommandState.REJECTED, code)
    assert wire.box.worker.status().results_waiting == 0


def test_many_end_each_once_and_restarts_one_at_a_time(wire: Wire) -> None:
    ids = [wire.controller.command(op, LOGS_ARGS if op == LOGS else None) for op in (RESTART, REFRESH, LOGS) * 4]
    wire.exchange(200)
    assert wire.controller.ends == {id_: [CommandState.SUCCEEDED] for id_ in ids}
    world = wire.box.world
    assert set(world.restarted_by.values()) | set(world.uploads.values()) | set(world.refreshed_by.values()) == {1}
    restarts = [name for name in wire.box.executor.names if name.startswith("k3s.restart")]
    assert restarts == sorted(restarts)  # token, act, verify of one, then of the next


def test_a_verification_that_takes_its_time_is_asked_again_and_given_up_in_the_end(wire: Wire) -> None:
    wire.box.world.ready = False
    id_ = wire.controller.command(RESTART)
    wire.pass_time(30)
    assert wire.controller.tracked[id_].state is CommandState.VERIFYING
    wire.pass_time(900, 30)
    assert wire.controller.results[id_].code == ResultCode.TIMED_OUT


def test_an_end_is_sent_until_its_receipt(wire: Wire) -> None:
    id_ = wire.controller.command(REFRESH)
    box = wire.box
    for topic, payload in wire.controller.sends():
        box.arrive(topic, payload)
    box.settle()
    box.link.sent.clear()
    ends = []
    for _ in range(300):
        box.wait(1)
        ends += [topic for topic, _ in box.link.sent if topic.endswith("/up/result")]
        box.link.sent.clear()
    assert 4 <= len(ends) <= 5  # 10, 20, 40, 80, 160 … seconds between
    topic, payload = wire.controller.receipt((id_,))
    box.arrive(topic, payload)
    assert box.worker.status().results_waiting == 0
    box.wait(400)
    assert not [topic for topic, _ in box.link.sent if topic.endswith("/up/result")]


def test_a_command_for_an_older_birth_is_answered_and_not_taken(wire: Wire) -> None:
    id_ = wire.controller.command(RESTART)
    stale = wire.controller.sends()
    wire.box.disconnect()
    wire.connect()
    for topic, payload in stale:
        wire.box.arrive(topic, payload)
    wire.box.settle()
    assert not wire.box.world.restarted_by
    wire.exchange()
    assert wire.controller.ends == {id_: [CommandState.SUCCEEDED]}


def test_a_command_that_comes_again_after_its_receipt_is_answered(wire: Wire) -> None:
    id_ = wire.controller.command(RESTART)
    sent = wire.controller.sends()
    wire.down += sent
    wire.exchange()
    wire.down += sent
    wire.exchange()
    results = [one for one in wire.controller.seen if isinstance(one, CommandResult) and one.state.terminal]
    assert (len(results), wire.box.world.restarted_by[id_]) == (2, 1)


def test_too_many_results_without_a_receipt_refuse_new_commands(wire: Wire) -> None:
    box = wire.box
    ids = [wire.controller.command(REFRESH) for _ in range(60)]
    for topic, payload in wire.controller.sends():
        box.arrive(topic, payload)
    box.settle()
    assert sum(box.world.refreshed_by.values()) == 16
    status = box.worker.status()
    assert (status.outbox_used, status.results_waiting) == (1.0, 48)  # 16 results, 32 refusals, 12 not taken
    wire.exchange(300)
    ends = [wire.controller.ends[id_][0] for id_ in ids if id_ in wire.controller.ends]
    assert (ends.count(CommandState.SUCCEEDED), ends.count(CommandState.REJECTED)) == (16, 32)
    wire.pass_time(60, 5)
    assert all(one.ended for one in wire.controller.tracked.values())


def test_it_expires_where_it_could_not_begin_in_time(wire: Wire) -> None:
    wire.box.world.ready = False
    first, second = wire.controller.command(RESTART), wire.controller.command(RESTART, wait_s=60)
    wire.pass_time(61)
    wire.box.world.ready = True
    wire.pass_time(2)
    assert wire.controller.ends == {first: [CommandState.SUCCEEDED], second: [CommandState.EXPIRED]}


def test_rubbish_is_acknowledged_and_counted(wire: Wire) -> None:
    box, count = wire.box, len(wire.box.link.acked)
    topic, payload = wire.controller.receipt(())
    box.arrive(topic, payload[:-2] + b" }")
    box.arrive(topic, b"x" * 70_000)
    box.arrive("edgegpu/v1/other", b"")
    box.arrive(topic, payload, retained=True)
    assert len(box.link.acked) == count + 4
    assert box.worker.status().refused == {"Forged": 1, "Oversize": 1, "UnknownTopic": 2}
    box.wait(301)
    box.crash()
    box.start()
    assert box.worker.status().refused == {"Forged": 1, "Oversize": 1, "UnknownTopic": 2}


def test_a_message_is_acknowledged_after_the_journal_has_it_and_not_before(tmp_path: Path) -> None:
    acked: list[tuple[str, int]] = []
    box = Box(tmp_path, hook=lambda when, _change: acked.append((when, len(box.link.acked))))
    wire = wired(box)
    wire.controller.command(RESTART)
    wire.controller.desire(Spec())
    for message in (*wire.controller.sends(), *wire.controller.desired_message()):
        before = len(box.link.acked)
        acked.clear()
        box.arrive(*message)
        assert acked[:2] == [("before", before), ("after", before)]
        assert len(box.link.acked) == before + 1
    box.crash()
