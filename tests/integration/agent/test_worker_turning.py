"""The real agent's worker on its own thread: whether it turns, and an item that stood elsewhere, tried again."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.sync import CLUSTER
from kits.worker import SimLink
from kits.workercontroller import BOX_KEY, DEVICE, INSTANCE, ROOT, Controller
from kits.workerworld import BY_FORM, NoTelemetry, SharingUnseen, World

from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_agent.ports import BoxContext, Clock
from edgegpu_agent.worker.worker import Worker, WorkerParts
from edgegpu_sync.keys import public_text
from edgegpu_sync.link.events import LinkUp, MessageArrived, PublishAcknowledged
from edgegpu_sync.messages.readers import read
from edgegpu_sync.messages.spec import AppLimits, AskedItem, Spec
from edgegpu_sync.messages.uplink import Birth, BoxVersions, ItemState
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edgegpu_agent.ports import SettlerNotes

WAIT_S = 60.0
NAME = "app_limits/default/asr/main"


class Elsewhere:
    """Another agent's at first, ours later."""

    def __init__(self) -> None:
        self.ours = False
        self.tries = 0

    def settle(self, one: AskedItem, notes: SettlerNotes) -> Settlement:
        del one
        self.tries += 1
        notes.write({"try": self.tries})
        return Settlement.applied() if self.ours else Settlement(state=ItemState.ELSEWHERE, text="box-2 does")


@pytest.fixture
def settler() -> Elsewhere:
    return Elsewhere()


@pytest.fixture
def lacking() -> set[str]:
    return set()


@pytest.fixture
def worker(tmp_path: Path, settler: Elsewhere, lacking: set[str]) -> Iterator[Worker]:
    journal = BoxJournal(tmp_path / "journal.db", wall_s=time.time)
    me = BoxContext(
        device=DEVICE,
        enrolment=3,
        instance=INSTANCE,
        signer=Signer.of(BOX_KEY),
        versions=lambda: BoxVersions(agent="0.2.0"),
    )
    made = Worker(
        WorkerParts(
            journal=journal,
            root=public_text(ROOT),
            me=me,
            clock=Clock(boot=World().boot, boot_s=time.monotonic, wall_s=time.time),
            rng=random.Random(1),
            acts={},
            settlers={AppLimits: settler},
            sharing=SharingUnseen(),
            telemetry=NoTelemetry(),
            clean=BY_FORM,
            lacks=lambda: lacking,
        )
    )
    thread = threading.Thread(target=made.run)
    thread.start()
    yield made
    made.stop()
    assert made.finished.wait(WAIT_S)
    thread.join(WAIT_S)
    journal.close()


def stands(worker: Worker, state: ItemState) -> bool:
    item = worker.status().items.get(NAME)
    return item is not None and item.state is state


def until(worker: Worker, state: ItemState) -> None:
    ends = time.monotonic() + WAIT_S
    while not stands(worker, state):
        assert time.monotonic() < ends, worker.status()
        threading.Event().wait(0.01)


def desire(worker: Worker, cluster: str, rev: int = 1) -> None:
    controller = Controller(World())
    controller.sequence = replace(controller.sequence, rev=rev - 1)
    limits = AppLimits(
        rev=rev, cluster=cluster, namespace="default", app="asr", container="main", memory_units=4, core=1
    )
    controller.desire(Spec(app_limits=(limits,)))
    for mid, (topic, payload) in enumerate([controller.keys(), *controller.desired_message()]):
        worker.put(MessageArrived(topic=topic, payload=payload, retained=True, mid=mid, connection=1))


def births(link: SimLink) -> list[Birth]:
    said = [
        read(TopicKind.STATUS, payload.partition(b"\n")[2]) for topic, payload in link.sent if topic.endswith("status")
    ]
    return [one for one in said if isinstance(one, Birth)]


def test_a_capability_that_comes_or_goes_is_said_at_once(worker: Worker, lacking: set[str]) -> None:
    link = SimLink()
    worker.attach(link)
    link.connection = 1
    worker.put(LinkUp(session_present=False, protocol=5, connection=1))

    def until_born(count: int) -> None:
        ends = time.monotonic() + WAIT_S
        while len(births(link)) < count:
            assert time.monotonic() < ends, worker.status()
            worker.put(PublishAcknowledged(0))
            threading.Event().wait(0.01)

    until_born(1)
    lacking.add("app_limits")  # as an uninstall that leaves the agent does
    until_born(2)
    assert worker.status().capabilities == ()
    lacking.clear()
    until_born(3)
    first, second, third = births(link)
    assert [one.capabilities for one in (first, second, third)] == [("app_limits",), (), ("app_limits",)]
    assert {one.epoch for one in (second, third)} == {first.epoch}, "no command has to be signed again for that"
    assert first.n < second.n < third.n


def test_it_says_that_it_turns(worker: Worker) -> None:
    assert worker.began.wait(WAIT_S)
    worker.status()
    assert worker.age_s < 5
    assert not worker.finished.is_set()
    assert list(worker.drift_checks.settled()) == []


def test_what_stood_elsewhere_is_tried_again_and_what_stands_is_not(worker: Worker, settler: Elsewhere) -> None:
    desire(worker, CLUSTER)
    until(worker, ItemState.ELSEWHERE)
    (one,) = worker.drift_checks.settled()
    assert (one.asked.name, one.settlement.state, one.notes.read()) == (NAME, ItemState.ELSEWHERE, None)
    one.notes.write({"fights": 1})
    assert one.notes.read() == {"fights": 1}
    settler.ours = True
    worker.drift_checks.again(NAME)
    until(worker, ItemState.APPLIED)
    (one,) = worker.drift_checks.settled()
    assert one.notes.read() == {"fights": 1}, "it is the same asking"
    desire(worker, CLUSTER, rev=2)
    until(worker, ItemState.APPLIED)
    (one,) = worker.drift_checks.settled()
    assert one.asked.key.rev == 2
    assert one.notes.read() is None, "a new one begins from nothing"
    assert settler.tries == 3
    worker.drift_checks.again(NAME)
    worker.drift_checks.again("app_limits/default/other/main")
    worker.status()
    assert settler.tries == 3
