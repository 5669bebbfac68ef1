"""The cloud's preview beside the box's own settler on the same cluster: the same verdict, the same cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, event, given, note, settings
from hypothesis import strategies as st
from kits.details import box
from kits.limitsapi import Api
from kits.limitsbed import Bed
from kits.limitscases import manifest
from kits.limitsworld import MODEL, NODE, World

from edgegpu_agent.app_limits.cluster_snapshot import ClusterSnapshot
from edgegpu_agent.kube.apps import Apps
from edgegpu_agent.telemetry.messages import allocations, inventory
from edgegpu_cloud.fleet.limits.preview_bars import BarsPreview, CardPlace, bars_preview
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_core.limits.verdict import FitResult
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.messages.uplink import ItemState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgegpu_cloud.fleet.views import BoxDetails

RECREATE: dict[str, Any] = {"strategy": {"type": "Recreate"}}
ROLLING: dict[str, Any] = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}
UNITS = st.integers(1, 14)
CORES = st.sampled_from([1, 40, 60, 100, 200])


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with Api() as server:
        yield server


def reported(world: World) -> BoxDetails:
    """Return what the cloud knows of this cluster, in the words of the agent's own telemetry."""
    names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in world.pods()}
    rows = [
        {
            "uid": uid,
            "namespace": "default",
            "pod": names.get(uid, f"{uid}-0"),
            "container": "main",
            "phase": "Running",
            "memory_units": sum(share.memory_units for share in shares),
            "core": sum(share.core for share in shares),
            "cards": [{"uuid": share.card, "units": share.memory_units} for share in shares],
        }
        for uid, shares in world.held.items()
    ]
    cards = [
        {"uuid": slot.uuid, "index": slot.label, "units": slot.units, "healthy": slot.healthy} for slot in world.slots
    ]
    document = {"node": NODE, "unit_mib": 256, "cards": cards, "pods": rows, "role": "server"}
    told = inventory(document, (), node=NODE, cluster="")
    assert told is not None
    pods = {uid: pod.model_dump(mode="json") for uid, pod in allocations(document).items()}
    return box(cards=tuple(card.model_dump(mode="json") for card in told["cards"]), pods=pods, node=NODE)


def made(api: Api, units: list[int], others: dict[str, tuple[int, int]]) -> Bed:
    with api.store.lock:
        api.store.objects.clear()
    return Bed(api, tuple(units), others)


def previewed(bed: Bed, amount: RequestedAmounts) -> BarsPreview:
    wanted = ContainerLimits(
        namespace="default", app="asr", container="main", memory_units=amount.memory_units, core=amount.core
    )
    return bars_preview(reported(bed.world), (), wanted)


def places(bed: Bed) -> set[CardPlace]:
    """Return the cards that the app's pods have on the box."""
    uids = {pod["metadata"]["uid"] for pod in bed.world.pods("asr")}
    labels = {slot.uuid: slot.label for slot in bed.world.slots}
    return {CardPlace(NODE, labels[share.card]) for uid in uids for share in bed.world.held.get(uid, ())}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    units=st.lists(st.integers(4, 16), min_size=1, max_size=3),
    others=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 8)), max_size=3),
    before=UNITS,
    after=st.builds(RequestedAmounts, UNITS, CORES),
    replicas=st.integers(1, 2),
    strategy=st.sampled_from([RECREATE, ROLLING]),
)
def test_the_preview_and_the_box_agree_on_the_verdict_and_on_the_cards(
    api: Api,
    units: list[int],
    others: list[tuple[int, int]],
    before: int,
    after: RequestedAmounts,
    replicas: int,
    strategy: dict[str, Any],
) -> None:
    there: dict[str, tuple[int, int]] = {}
    for at, (card, held) in enumerate(others):
        here = card % len(units)
        if sum(amount for one, amount in there.values() if one == here) + held <= units[here]:
            there[f"other{at}"] = (here, held)
    bed = made(api, units, there)
    bed.world.add(manifest("Deployment", "asr", memory=before, replicas=replicas, **strategy))
    note(f"{units=} {there=} {before=} {after=} {replicas=} {strategy=}")
    assume(bed.world.running("asr") == [before] * replicas and (before, 1) != (after.memory_units, after.core))

    found = previewed(bed, after)
    apps = Apps(api.client())
    [workload] = apps.find("default", "asr")
    verdict = ClusterSnapshot(apps, lambda: MODEL).judge(workload, "main", after)
    event(f"{found.preview.answer.value}, {'recreate' if strategy is RECREATE else 'rolling'}")

    assert (found.preview.answer is FitResult.NEVER) == (verdict.answer is FitResult.NEVER)
    assert found.preview.cards == verdict.cards
    if found.preview.answer is FitResult.NEVER:
        assert found.preview.text == verdict.text
        lacking = [one for one in found.missing if one.missing_units or one.missing_core or one.in_use]
        assert len(units) - len(lacking) < max(1, after.core // 100)  # too few cards lack nothing
        return
    if strategy is RECREATE:
        assert found.preview.answer is verdict.answer

    came = bed.settle(after.memory_units, after.core, interrupt=True)
    assert came.state is ItemState.APPLIED, came
    for _ in range(3):
        bed.world.step()  # the old pods go
    expected = found.beside if strategy is ROLLING and found.preview.answer is FitResult.FITS else found.after_stop
    if replicas == 1 or strategy is RECREATE:  # of several rolling pods each finds what the one before has left
        assert places(bed) == set(expected or ())


def test_the_refusal_of_the_field_has_the_same_numbers_before_and_after(api: Api) -> None:
    bed = made(api, [94], {"forty": (0, 40), "fifty": (0, 50)})
    bed.world.add(manifest("Deployment", "asr", memory=1, **RECREATE))
    found = previewed(bed, RequestedAmounts(10, 1))
    [missing] = found.missing
    assert (found.preview.answer, missing.free_units, missing.missing_units) == (FitResult.NEVER, 4, 6)
    came = bed.settle(10)
    assert came.state is ItemState.REJECTED
    assert came.numbers is not None
    assert came.numbers.cards[0].free_units == missing.free_units
