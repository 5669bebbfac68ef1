"""What boxes have measured, at the controller: evidence of containers, and the use of cards by quarters of an hour."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from kits.cloudcli import run
from kits.controller import Bed, Faults

from edgegpu_cloud.cli.common import EXIT_WAITING
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.history.evidence import OP, CannotCheck, EvidenceService
from edgegpu_cloud.fleet.history.metrics import UseRange
from edgegpu_cloud.layout import CloudConfig, RetentionConfig, dump
from edgegpu_cloud.store.telemetry.records import QUARTER_S
from edgegpu_cloud.store.telemetry.tables import KEPT_EVIDENCE, MOST_CARDS
from edgegpu_sync.messages.evidence import ContainerEvidence, SeenCards
from edgegpu_sync.messages.telemetry import Alloc, CardSample, CardShare, Inventory, Metrics, PodAlloc, Sample
from edgegpu_sync.rules.evidence import report_that_fits
from edgegpu_sync.rules.ops import OPS
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kits.modelbox import ModelBox

CARDS = tuple(f"GPU-{number:08}-0000-0000-0000-000000000000" for number in range(3))


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    made.connect_all()
    made.settle(2)
    yield made
    made.store.close()


def service(bed: Bed) -> EvidenceService:
    return EvidenceService(bed.store, access=Access("anna"), clock=bed.world.clock)


def has_pods(box: ModelBox, **card_of: str) -> None:
    """Let a box report two cards, and pods that hold a share of one each."""
    cards = [
        {"uuid": uuid, "label": str(at), "name": "T4", "memory_mib": 7611, "units": 29, "healthy": True}
        for at, uuid in enumerate(CARDS[:2])
    ]
    head: dict[str, Any] = {"node": "n", "role": "server", "sharing": True, "unit_mib": 256}
    inventory = {**box._up(), **head, "mode": "none", "policy": "first-fit", "cards": cards}  # noqa: SLF001
    box.say(box.plain(TopicKind.INVENTORY), Inventory.model_validate(inventory, strict=False))
    pods = {
        f"uid-{name}": PodAlloc(
            namespace="edge",
            name=f"{name}-0",
            phase="Running",
            pieces=(CardShare(container="main", card=card, memory_units=4, core=1),),
        )
        for name, card in card_of.items()
    }
    box.say(box.plain(TopicKind.ALLOC), Alloc.model_validate({**box._up(), "pods": pods}))  # noqa: SLF001


def answer(*seen: tuple[str, SeenCards, str]) -> dict[str, Any]:
    """The result of a check: (pod, verdict, card that it holds) for each."""
    return report_that_fits(
        [
            ContainerEvidence(
                uid=f"uid-{name}",
                namespace="edge",
                pod=f"{name}-0",
                container="main",
                verdict=verdict,
                held=(card,),
                seen=(card,),
                lines=f"GPU 0: T4 (UUID: {card})",
            )
            for name, verdict, card in seen
        ]
    )


class TestEvidence:
    def test_a_check_is_asked_once_and_its_result_is_kept(self, bed: Bed) -> None:
        box = bed.box()
        has_pods(box, asr=CARDS[0], face=CARDS[1])
        bed.settle(2)
        before = service(bed).of_box("box-1")
        assert [(one.pod, one.cards, one.checked) for one in before.containers] == [
            ("asr-0", ("0",), None),
            ("face-0", ("1",), None),
        ]
        assert before.cannot is None
        box.answers[OP] = answer(("asr", SeenCards.OWN, CARDS[0]), ("face", SeenCards.MORE, CARDS[1]))
        (id_,) = service(bed).check("box-1")
        assert service(bed).check("box-1") == [id_], "it is under way"
        assert service(bed).of_box("box-1").checking == [id_]
        bed.until(lambda: bed.fleet.one_command(id_).ended)
        assert bed.fleet.one_command(id_).args == {"pods": ["uid-asr", "uid-face"]}
        after = service(bed).of_box("box-1")
        assert [(one.checked.verdict, one.checked.lines) for one in after.containers if one.checked] == [
            (SeenCards.OWN, f"GPU 0: T4 (UUID: {CARDS[0]})"),
            (SeenCards.MORE, f"GPU 0: T4 (UUID: {CARDS[1]})"),
        ]
        assert (after.wrong, after.failed, after.checking) == (1, "", [])
        assert bed.fleet.one_command(id_).by == "anna"

    def test_what_was_checked_before_the_cards_changed_is_stale_and_what_went_is_not_shown(self, bed: Bed) -> None:
        box = bed.box()
        has_pods(box, asr=CARDS[0], face=CARDS[1])
        bed.settle(2)
        box.answers[OP] = answer(("asr", SeenCards.OWN, CARDS[0]), ("face", SeenCards.OWN, CARDS[1]))
        (id_,) = service(bed).check("box-1")
        bed.until(lambda: bed.fleet.one_command(id_).ended)
        has_pods(box, asr=CARDS[1])
        bed.settle(2)
        (asr,) = service(bed).of_box("box-1").containers
        assert asr.stale

    def test_many_pods_are_asked_in_parts(self, bed: Bed) -> None:
        has_pods(bed.box(), **{f"app{number}": CARDS[0] for number in range(23)})
        bed.settle(2)
        bed.box().answers[OP] = answer()
        ids = service(bed).check("box-1")
        sizes = [len(bed.fleet.one_command(id_).args["pods"]) for id_ in ids]
        assert sizes == [10, 10, 3]
        bed.until(bed.all_ended)

    def test_who_cannot_be_asked_says_why_and_what_to_do(self, bed: Bed) -> None:
        assert service(bed).of_box("box-1").cannot is CannotCheck.NO_CONTAINER
        has_pods(bed.box(), asr=CARDS[0])
        bed.settle(2)
        bed.network.cut_off(bed.devices[0])
        bed.settle(2)
        with pytest.raises(CloudError, match="cannot check the containers of box-1: the box is offline"):
            service(bed).check("box-1")
        bed.box().capabilities = tuple(one for one in OPS if one != OP)
        bed.network.connect(bed.box())
        bed.settle(2)
        with pytest.raises(CloudError, match="this agent cannot check") as refused:
            service(bed).check("box-1")
        assert "agent.upgrade" in refused.value.remedy
        assert bed.fleet.commands() == []
        bed.fleet.set_blocked("box-1", blocked=True)
        assert service(bed).of_box("box-1").cannot is CannotCheck.BLOCKED
        bed.fleet.set_blocked("box-1", blocked=False)
        bed.fleet.revoke("box-1")
        assert service(bed).of_box("box-1").cannot is CannotCheck.NOT_ENROLLED

    def test_a_result_of_another_form_changes_nothing(self, bed: Bed) -> None:
        has_pods(bed.box(), asr=CARDS[0])
        bed.settle(2)
        wrong: list[dict[str, Any]] = [
            {"containers": "all"},
            {"containers": [{"uid": "../x", "verdict": "own"}]},
            {"containers": [{"uid": "u", "namespace": "n", "pod": "p", "container": "c", "verdict": "fine"}]},
        ]
        for data in wrong:
            bed.box().answers[OP] = data
            (id_,) = service(bed).check("box-1")
            bed.until(lambda id_=id_: bed.fleet.one_command(id_).ended)  # type: ignore[misc]
            assert bed.fleet.one_command(id_).state is CommandState.SUCCEEDED
            assert [one.checked for one in service(bed).of_box("box-1").containers] == [None]

    def test_a_box_that_floods_takes_a_bounded_place(self, bed: Bed) -> None:
        device = bed.devices[0]
        for at_s in range(KEPT_EVIDENCE // 200 + 2):
            found = [
                ContainerEvidence(
                    uid=f"u-{at_s}-{number}", namespace="n", pod="p", container="c", verdict=SeenCards.NONE
                )
                for number in range(200)
            ]
            with bed.store.write() as tx:
                tx.telemetry.put_evidence(device, found, now_s=float(at_s))
        with bed.store.read() as tx:
            kept = tx.telemetry.evidence(device)
        assert len(kept) <= KEPT_EVIDENCE
        assert max(one.at_s for one in kept) == KEPT_EVIDENCE // 200 + 1

    def test_a_forgotten_box_leaves_nothing(self, bed: Bed) -> None:
        has_pods(bed.box(), asr=CARDS[0])
        bed.settle(2)
        bed.box().answers[OP] = answer(("asr", SeenCards.OWN, CARDS[0]))
        (id_,) = service(bed).check("box-1")
        bed.until(lambda: bed.fleet.one_command(id_).ended)
        measure(bed, 10.0, 100)
        bed.settle(2)
        bed.fleet.forget("box-1")
        with bed.store.read() as tx:
            assert tx.telemetry.evidence(bed.devices[0]) == []
            assert tx.telemetry.use(bed.devices[0], since_s=0) == []

    def test_the_command_line_shows_it_and_asks(self, bed: Bed, tmp_path: Path) -> None:
        (tmp_path / "controller.yaml").write_text(dump(CloudConfig(version=1)))
        has_pods(bed.box(), asr=CARDS[0], face=CARDS[1])
        bed.box().answers[OP] = answer(("asr", SeenCards.OWN, CARDS[0]), ("face", SeenCards.OTHER, CARDS[1]))
        bed.settle(2)
        done = run("evidence", "box-1", folder=tmp_path)
        assert (done.code, done.out.splitlines()[0]) == (0, "edge/asr-0  main  card 0: not checked yet")
        (id_,) = service(bed).check("box-1")
        bed.until(lambda: bed.fleet.one_command(id_).ended)
        done = run("evidence", "box-1", folder=tmp_path)
        assert done.code == 1
        assert "edge/asr-0  main  card 0: sees exactly its card, checked" in done.out
        assert f"  GPU 0: T4 (UUID: {CARDS[1]})" in done.out
        told = json.loads(run("evidence", "box-1", "--json", folder=tmp_path).out)
        assert [one["checked"]["verdict"] for one in told["containers"]] == ["own", "other"]
        assert (told["cannot"], told["checking"]) == (CannotCheck.OFFLINE, []), "by this machine's clock"


def test_a_check_that_has_not_ended_in_time_goes_on(bed: Bed, tmp_path: Path) -> None:
    (tmp_path / "controller.yaml").write_text(dump(CloudConfig(version=1)))
    bed.world.now_s = time.time()
    bed.restart()
    bed.connect_all()
    has_pods(bed.box(), asr=CARDS[0])
    bed.settle(2)
    done = run("evidence", "box-1", "--check", "--timeout", "1s", folder=tmp_path)
    assert done.code == EXIT_WAITING


def measure(bed: Bed, core: float, memory_mib: int, *, at_s: float | None = None, cards: tuple[str, ...] = ()) -> None:
    """Let the first box measure its cards, as they were at a time."""
    box = bed.box()
    used = [CardSample(uuid=uuid, core_used=core, memory_used_mib=memory_mib) for uuid in cards or (CARDS[0],)]
    sample = Sample(at=int(bed.world.clock() if at_s is None else at_s), cards=tuple(used))
    metrics = Metrics.model_validate({**box._up(), "period_s": 60, "samples": (sample,)})  # noqa: SLF001
    box.say(box.plain(TopicKind.METRICS), metrics)


def kept(bed: Bed) -> list[tuple[int, int, float, float]]:
    """The use of the first card: quarter, samples, mean and most of its core."""
    with bed.store.read() as tx:
        found = tx.telemetry.use(bed.devices[0], since_s=0)
    return [(one.quarter_s, one.samples, one.core_mean, one.core_max) for one in found if one.card == CARDS[0]]


class TestCardUse:
    def test_samples_of_a_quarter_become_mean_and_most(self, bed: Bed) -> None:
        quarter_s = int(bed.world.clock()) // QUARTER_S * QUARTER_S
        for core, at_s in ((10.0, quarter_s - 1), (20.0, quarter_s), (40.0, quarter_s + 1)):
            measure(bed, core, int(core) * 10, at_s=at_s)
            bed.settle(1)
        assert kept(bed) == [(quarter_s - QUARTER_S, 1, 10.0, 10.0), (quarter_s, 2, 30.0, 40.0)]
        series = bed.fleet.card_use("box-1", UseRange.DAY)[CARDS[0]].drawn
        assert series.places == 96
        assert [(series.place_of(one), one.memory_mean_mib, one.memory_max_mib) for one in series.points] == [
            (94, 100.0, 100),
            (95, 300.0, 400),
        ]

    def test_a_week_has_coarser_steps_weighted_by_their_samples(self, bed: Bed) -> None:
        step_s = UseRange.WEEK.step_s
        began_s = int(bed.world.clock()) // step_s * step_s - step_s
        for core, at_s in ((10.0, began_s), (20.0, began_s + 1), (90.0, began_s + QUARTER_S)):
            measure(bed, core, 100, at_s=at_s)
            bed.settle(1)
        history = bed.fleet.card_use("box-1", UseRange.WEEK)[CARDS[0]]
        assert [(one.at_s, one.core_mean, one.core_max) for one in history.drawn.points] == [(began_s, 40.0, 90.0)]
        assert (history.drawn.places, history.rows.places) == (84, 28)
        assert sum(one.core_max == 90.0 for one in history.rows.points) == 1
        assert not bed.fleet.card_use("box-1", UseRange.HOUR) or began_s > bed.world.clock() - 4_500

    def test_messages_that_come_twice_or_in_another_order_count_once_at_most(self, tmp_path: Path) -> None:
        bed = Bed(tmp_path, seed=3, faults=Faults(double=0.5, delay=0.2))
        bed.connect_all()
        bed.settle(5)
        for _ in range(60):
            measure(bed, 50.0, 100)
            bed.pass_time(1)
        bed.settle(20)
        counted = sum(samples for _, samples, _, _ in kept(bed))
        assert 30 < counted <= 60, "what is overtaken is left out, nothing counts twice"
        bed.store.close()

    def test_what_waited_over_a_connection_counts_in_its_time(self, bed: Bed) -> None:
        began_s = bed.world.clock()
        bed.network.cut_off(bed.devices[0])
        bed.settle(2)
        measure(bed, 70.0, 100, at_s=began_s)
        waiting = bed.box().outgoing.pop()
        bed.settle(3 * QUARTER_S, step_s=60)
        bed.network.connect(bed.box())
        bed.box().outgoing.append(waiting)
        bed.settle(3)
        assert kept(bed) == [(int(began_s) // QUARTER_S * QUARTER_S, 1, 70.0, 70.0)]

    @pytest.mark.parametrize("wrong_s", [-40 * 365 * 86_400, 86_400])
    def test_a_box_whose_clock_is_wrong_counts_by_the_controllers(self, bed: Bed, wrong_s: int) -> None:
        measure(bed, 70.0, 100, at_s=max(0.0, bed.world.clock() + wrong_s))
        bed.settle(1)
        assert [quarter_s for quarter_s, *_ in kept(bed)] == [int(bed.world.clock()) // QUARTER_S * QUARTER_S]

    def test_a_box_that_names_card_after_card_takes_a_bounded_place(self, bed: Bed) -> None:
        for turn in range(3):
            measure(bed, 1.0, 1, cards=tuple(f"GPU-{turn}-{number}" for number in range(60)))
            bed.settle(1)
        with bed.store.read() as tx:
            assert len(tx.telemetry.use(bed.devices[0], since_s=0)) == MOST_CARDS

    def test_old_use_is_dropped(self, bed: Bed) -> None:
        measure(bed, 10.0, 100)
        bed.settle(2)
        assert len(kept(bed)) == 1
        bed.world.now_s += RetentionConfig().use_days * 86_400 - QUARTER_S
        bed.settle(2)
        assert len(kept(bed)) == 1
        bed.world.now_s += 2 * QUARTER_S + 3_600
        bed.settle(2)
        assert kept(bed) == []
