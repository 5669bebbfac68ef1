"""The walk over the boxes of a rollout of limits: each cluster is judged once, whoever goes offline between parts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kits.console import ConsoleSite
from kits.details import box, card, pod, reported
from kits.stores import open_store

from edgegpu_cloud.fleet.operations.limits_preview import AT_ONCE as LOADED
from edgegpu_cloud.fleet.operations.limits_preview import judged_in_clusters
from edgegpu_cloud.fleet.specs import ContainerLimits, SharingSettings
from edgegpu_cloud.rollouts.rollouts import AT_ONCE, JudgedOutline, RolloutRequest
from edgegpu_cloud.store.summaries.box_list import BoxQuery
from edgegpu_sync.ids import device_id
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWN: dict[str, Any] = {"u1": pod("asr-0", ("main", "0", 4, 10))}
LIMITS = ContainerLimits(namespace="default", app="asr", container="main", memory_units=12, core=10)
ALL = RolloutRequest(change=LIMITS)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ConsoleSite]:
    store = open_store(tmp_path / "controller.db")
    yield ConsoleSite(store)
    store.close()


def add(site: ConsoleSite, number: int, cluster: str) -> None:
    device = site.add(number, f"box-{number:02d}")
    site.report(device, reported(box(f"box-{number:02d}", (card("0"),), OWN), cluster=cluster, holder=False))
    site.connect(device)


def cut_off(site: ConsoleSite, number: int) -> None:
    device = device_id(f"{number:016d}")
    with site.store.write() as tx:
        tx.boxes.put([replace(tx.boxes.get([device])[device], online=False)])


def part(site: ConsoleSite, after: str, limit: int = 4, **more: Any) -> JudgedOutline:  # noqa: ANN401
    return site.rollouts().judged_outline(replace(ALL, **more), limit=limit, after=lambda _: after)


def names(found: JudgedOutline) -> list[str]:
    return [one.name for one in found.part.boxes]


def test_each_cluster_is_judged_once_though_the_box_that_is_asked_changes(site: ConsoleSite) -> None:
    for number in range(1, 13):
        add(site, number, f"{number % 3 if number < 10 else number:08d}")  # three of three boxes, three of one
    for number in (1, 2, 3):
        cut_off(site, number)
    begin = part(site, "")
    assert begin.plan.boxes == 6
    assert (names(begin), begin.part.next) == (["box-04"], "box-01"), "one cluster of three: two are more than four"
    cut_off(site, 5)
    then = part(site, begin.part.next)
    assert (names(then), then.part.next) == (["box-08"], "box-02")
    cut_off(site, 10)
    last = part(site, then.part.next)
    assert (names(last), last.part.next) == (["box-06", "box-10"], "box-10")
    assert names(part(site, last.part.next)) == ["box-11", "box-12"]
    whole = part(site, "", limit=100)
    assert Counter(names(whole)) == Counter(["box-04", "box-08", "box-06", "box-10", "box-11", "box-12"])
    assert whole.counts.judged == whole.plan.boxes == 6
    assert whole.part.next == ""


def test_a_cluster_that_is_larger_than_a_part_is_a_part(site: ConsoleSite) -> None:
    for number in range(1, 11):
        add(site, number, "c0ffee00" if number != 7 else "00000007")
    begin = part(site, "", limit=2)
    assert (names(begin), begin.part.next) == (["box-01"], "box-01")
    rest = part(site, begin.part.next, limit=2)
    assert (names(rest), rest.part.next) == (["box-07"], "")


def test_boxes_that_come_first_are_those_that_are_judged_and_names_choose(site: ConsoleSite) -> None:
    for number in range(1, 4):
        add(site, number, "c0ffee00")
    assert names(part(site, "", boxes=("box-02", "box-03"))) == ["box-02"]
    assert names(part(site, "", first=("box-03",))) == ["box-03"]


def test_the_container_that_is_meant_is_named_and_the_heads_are_left_out(site: ConsoleSite) -> None:
    add(site, 1, "c0ffee00")
    change = replace(LIMITS, container="")
    found = site.rollouts().judged_outline(RolloutRequest(change=change), limit=4, after=lambda _: "", outlined=False)
    assert found.change == LIMITS
    assert [wave.boxes for wave in found.plan.waves] == [[]]
    [judged] = found.part.boxes
    assert judged.fit is not None
    assert judged.fit.fits


def test_a_long_preview_is_read_in_several_transactions_and_has_each_box_once(site: ConsoleSite) -> None:
    for number in range(AT_ONCE + 5):
        site.add(number, f"box-{number:03d}")
    spread = RolloutRequest(change=SharingSettings(policy="spread"))
    rollouts = site.rollouts()
    whole = rollouts.preview(spread, limit=10_000, offset=2)
    assert [box.position for wave in whole.waves for box in wave.boxes] == list(range(2, AT_ONCE + 5))
    some = rollouts.preview(spread, limit=AT_ONCE + 1)
    assert sum(len(wave.boxes) for wave in some.waves) == AT_ONCE + 1


def test_boxes_are_judged_cluster_by_cluster_with_what_a_preview_needs(site: ConsoleSite) -> None:
    for number in range(1, LOADED + 12):
        add(site, number, f"{number % 10:08d}")
    devices = [device_id(f"{number:016d}") for number in range(1, 12)]
    with site.store.read() as tx:
        query = BoxQuery(present_since_s=site.now_s - 900)
        found = judged_in_clusters(tx, query, devices, lambda one, others: (one, others), now_s=site.now_s)
    assert list(found) == [devices[0], devices[10], *devices[1:10]], "by cluster: the first has two of those asked"
    for device, (one, others) in found.items():
        assert one.box.device == device
        cluster = {number for number in range(1, LOADED + 12) if number % 10 == int(device) % 10}
        assert {int(other.box.device) for other in others} == cluster - {int(device)}
        assert set(one.latest) == {TopicKind.INVENTORY, TopicKind.ALLOC}


def test_names_that_no_box_has_are_told_together(site: ConsoleSite) -> None:
    add(site, 1, "c0ffee00")
    add(site, 2, "c0ffee00")
    assert list(site.rollouts().not_found(["box-01", "box-0", "none"])) == ["box-0", "none"]
