"""The two scenarios of the field from a cloud: limits set by `edgegpu-cloud`, over MQTT, in a booted box with k3s."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from box.bed import NAME, WITH_K3S, Bed
from box.cloudbed import Cloud
from e2e.manifests import CORE, MEMORY, container, deployment, pod_spec
from lab.labrun import wait_until

from edgegpu_core.podview import CARDS_ANNOTATION, read_cards

pytestmark = pytest.mark.daily

HALL = "hall"
NAMESPACE = "baetyl-edge"
GPU_LINE = re.compile(r"^GPU 0: .+ \(UUID: (GPU-[0-9a-f-]{36})\)$")


@pytest.fixture(scope="module")
def cloud(bed: Bed) -> Iterator[Cloud]:
    """Yield a controller with one box that has pasted its line: two cards of 7611 MiB, and no services yet."""
    bed.fresh(WITH_K3S)
    with tempfile.TemporaryDirectory() as folder:
        made = Cloud(bed, Path(folder) / "cloud")
        made.start()
        try:
            made.paste(made.line(HALL))
            bed.offered()
            wait_until(lambda: "app_limits" in made.box(HALL).get("capabilities", ()), what="app limits")
            wait_until(lambda: made.box(HALL)["cluster"], what="the box's cluster", timeout_s=30)
            bed.cluster.kubectl("create", "namespace", NAMESPACE)
            yield made
        finally:
            made.stop()


def test_4_and_20_and_20_are_applied_each_on_one_card(cloud: Cloud) -> None:
    sizes = {"four": 4, "twenty": 20, "other": 20}
    run_apps(cloud.bed, dict.fromkeys(sizes, 1))
    for app, memory in sizes.items():  # first fit: the order in which they are asked for decides
        code, said = cloud.limits(HALL, f"{NAMESPACE}/{app}", "--wait", memory=memory)
        assert (code, said["report"]["state"]) == (0, "Applied"), said
    first, second = (card["uuid"] for card in inventory(cloud)["cards"])
    seen = {app: the_card(cloud.bed, app, memory) for app, memory in sizes.items()}
    assert seen == {"four": first, "twenty": first, "other": second}
    told = Counter[str]()
    for pod in allocations(cloud).values():
        for piece in pod["pieces"]:
            told[piece["card"]] += piece["memory_units"]
    assert told == {first: 24, second: 20}
    settled(cloud, "Applied")


def test_40_and_50_and_1_the_last_to_10_is_refused_then_forced_then_undone(cloud: Cloud) -> None:
    bed, one = cloud.bed, f"{NAMESPACE}/one"
    another_card(bed)
    sizes = {"forty": 40, "fifty": 50, "one": 1}
    before = run_apps(bed, sizes)
    cards = {the_card(bed, app, memory) for app, memory in sizes.items()}
    assert len(cards) == 1
    inventory(cloud)

    code, said = cloud.limits(HALL, one, "--preview", memory=10)
    assert (code, said["answer"]) == (1, "never_fits"), said
    assert (card_numbers(said["cards"]), shown(cloud, "one")) == ([(NAME, 4, 1)], None)

    code, said = cloud.limits(HALL, one, "--wait", memory=10)
    report = said["report"]
    assert (code, report["state"], report["code"]) == (1, "Rejected", "NO_ROOM"), said
    assert "needs 10 vcuda-memory on one card; card 0 has 4 free (the 1 that it holds itself" in report["text"]
    assert card_numbers(report["numbers"]["cards"]) == [(NAME, 4, 1)]
    assert running(bed, sizes) == before, "a refused change has touched what runs"
    assert the_card(bed, "one", 1) in cards

    code, said = cloud.limits(HALL, one, "--force", "--wait", memory=10)
    assert (code, said["report"]["state"], said["report"]["code"]) == (0, "Pending", "NO_ROOM"), said
    waits_for_the_scheduler(bed, "one", 10)
    view = shown(cloud, "one")
    assert (view["memory_units"], view["report"]["state"]) == (10, "Pending")
    settled(cloud, "Applied", "Pending")

    code, said = cloud.limits(HALL, one, "--wait", memory=1)
    assert (code, said["report"]["state"]) == (0, "Applied"), said
    assert the_card(bed, "one", 1) in cards
    others = {"forty": 40, "fifty": 50}
    assert running(bed, others) == {app: before[app] for app in others}
    settled(cloud, "Applied")


def another_card(bed: Bed) -> None:
    """Put one card of 24259 MiB in the place of the two."""
    bed.cluster.kubectl("delete", "deployments", "--all", "-n", NAMESPACE, "--now", "--wait")
    wait_until(lambda: not bed.cluster.pods(NAMESPACE), what="no pods are left", every_s=0.3)
    bed.insert_cards({"NVIDIA-T4-C": 24259})
    bed.cluster.wait_allocatable(NAME, 94, 100)


def run_apps(bed: Bed, sizes: Mapping[str, int]) -> dict[str, str]:
    """Start apps as the field's consoles make them, and wait until all run; returns the uids of their pods."""
    bed.cluster.apply(
        *(
            deployment(app, pod_spec(container(memory=memory, core=1)), namespace=NAMESPACE, strategy="Recreate")
            for app, memory in sizes.items()
        )
    )
    return running(bed, sizes)


def running(bed: Bed, sizes: Mapping[str, int]) -> dict[str, str]:
    """Wait until each app's one pod runs; returns their uids."""
    return {app: bed.cluster.wait_phase(NAMESPACE, app, "Running")["metadata"]["uid"] for app in sizes}


def the_card(bed: Bed, app: str, memory: int) -> str:
    """Return the one card that an app's pod sees, after checking that every record names it, and so many units."""
    pod = bed.cluster.wait_phase(NAMESPACE, app, "Running")
    meta = pod["metadata"]
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {MEMORY: str(memory), CORE: "1"}
    [line] = bed.cluster.sees(NAMESPACE, meta["name"])
    match = GPU_LINE.match(line)
    assert match, line
    card = match.group(1)
    assert read_cards(meta["annotations"][CARDS_ANNOTATION], meta["uid"], NAME) == {"main": (card,)}
    pods = json.loads(bed.edgegpu("pods", "-n", NAMESPACE, "--json").stdout)["pods"]
    rows = [row for row in pods if row["pod"] == meta["name"]]
    assert [[one["uuid"] for one in row["cards"]] for row in rows] == [[card]]
    return card


def waits_for_the_scheduler(bed: Bed, app: str, memory: int) -> None:
    """Check that an app's one pod has so many units in its limits and is held back by the scheduler, not refused."""
    said = bed.cluster.wait_event(NAMESPACE, app, f"Insufficient {MEMORY}")
    assert "UnexpectedAdmissionError" not in said
    [pod] = bed.cluster.pods(NAMESPACE, app)
    assert pod["status"]["phase"] == "Pending"
    assert pod["spec"]["containers"][0]["resources"]["limits"][MEMORY] == str(memory)
    [why] = [one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled"]
    assert (why["status"], why["reason"]) == ("False", "Unschedulable")


def inventory(cloud: Cloud) -> dict[str, Any]:
    """Return the box's cards as the controller has them now."""
    cloud.done("command", HALL, "inventory.refresh", timeout_s=60)
    told: dict[str, Any] = cloud.read("box", HALL)["latest"]["up/inventory"]
    return told


def allocations(cloud: Cloud) -> dict[str, Any]:
    """Return who holds what as the controller has it."""
    told: dict[str, Any] = cloud.read("box", HALL)["latest"]["up/alloc"]["pods"]
    return told


def shown(cloud: Cloud, app: str) -> Any:  # noqa: ANN401  (JSON, or None)
    """Return what `limits show` says of an app."""
    return next((one for one in cloud.read("limits", "show", HALL) if one["app"] == app), None)


def card_numbers(cards: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Return node, units that are free, and units that the app holds itself, of each card."""
    return [(card["node"], card["free_units"], card["held_by_app_units"]) for card in cards]


def settled(cloud: Cloud, *states: str) -> None:
    """Check that the box has settled all that is desired, and in which states."""
    view = cloud.box(HALL)
    assert view["applied_rev"] == view["observed_rev"] == view["rev"]
    assert {one["state"] for one in view["items"].values()} == set(states), view["items"]
