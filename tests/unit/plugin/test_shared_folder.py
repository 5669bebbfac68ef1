"""Containers of a pod that have one folder, since an init container hands its devices on."""

from dataclasses import replace
from pathlib import Path

import pytest
from property.cases import box as container
from property.cases import pod_of
from unit.plugin.test_isolation import CARD, CORE, MEMORY, MIB, Box, folders

from edgegpu_core.deviceid import core_ids
from edgegpu_core.request import ContainerRole
from edgegpu_plugin.containers.container_folder import Charge


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def percent(box: Box) -> int:
    (folder,) = folders(box)
    return int((folder / "limits").read_text().partition("core_percent=")[2].split()[0])


@pytest.mark.parametrize("order", [("first", "main"), ("main", "first")])
@pytest.mark.parametrize("memory_first", [True, False])
def test_of_containers_with_one_folder_each_is_held_to_its_own_share_while_it_runs(
    box: Box, order: tuple[str, str], *, memory_first: bool
) -> None:
    """An init container hands its devices on: kubelet's call for the memory may be for either, in any order."""
    core = {"first": core_ids(CARD)[:50], "main": CORE}
    for name in order:
        box.book("u", MEMORY, core[name], name=name)

    def starts(name: str) -> None:
        calls: list[tuple[str, ...]] = [order, (name,)] if memory_first else [(name,), (name,)]
        for names in calls:
            box.limiter.prepare("u", *names)

    starts("first")
    assert percent(box) == 50
    assert [one.core for one in box.limiter.timed(box.state.snapshot())] == [{CARD: 50}]
    starts("main")
    assert percent(box) == 10
    assert [one.core for one in box.limiter.timed(box.state.snapshot())] == [{CARD: 10}]
    charge = {CARD: Charge(500, 1)}
    box.limiter.charge({("u", "first"): charge, ("u", "main"): charge})
    assert percent(box) == 10
    pod = replace(
        pod_of("u", container("first", 4, 50, role=ContainerRole.INIT), container("main", 4, 10)),
        running=(("main", "x"),),
    )
    box.state.replace_pods([pod])
    (folder,) = folders(box)
    (folder / "limits").write_text("edgegpu-limits 1\n")
    again = box.isolation()  # as after a start of the plugin, which has seen no start of a container
    assert [one.key for one in again.timed(box.state.snapshot())] == [("u", "main")]
    again.look({})
    assert percent(box) == 10


def test_of_containers_with_the_same_devices_the_one_that_has_them_last_has_the_live_limit(box: Box) -> None:
    for name in ("main", "first"):
        box.book("u", MEMORY, CORE, name=name)
    roles = (container("first", 4, 10, role=ContainerRole.INIT), container("main", 4, 10))
    box.state.replace_pods([replace(pod_of("u", *roles), running=(("main", "x"),))])
    for _ in range(2):
        box.limiter.prepare("u", "main", "first")
    box.limiter.set_live_limit("u", "main", {CARD: 1})
    (folder,) = folders(box)
    for _ in range(2):  # the container starts again
        assert f"memory_bytes={256 * MIB} " in (folder / "limits").read_text()
        box.limiter.prepare("u", "main", "first")


def test_while_the_pod_is_not_known_nobody_writes_into_a_folder_of_two(box: Box) -> None:
    for name, ids in (("main", CORE), ("first", core_ids(CARD)[:50])):
        box.book("u", MEMORY, ids, name=name)
    box.limiter.prepare("u", "main")
    again = box.isolation()
    again.look({})
    assert (percent(box), again.timed(box.state.snapshot())) == (10, [])
    roles = (container("first", 4, 50, role=ContainerRole.INIT), container("main", 4, 10))
    box.state.replace_pods([replace(pod_of("u", *roles), running=(("first", "x"),))])
    again.look({})
    assert percent(box) == 50


def test_of_three_containers_the_one_that_starts_last_has_the_folder(box: Box) -> None:
    core = {"one": core_ids(CARD)[:2], "two": core_ids(CARD)[:5], "main": core_ids(CARD)[:5]}
    for name, ids in core.items():
        box.book("u", MEMORY, ids, name=name)
    box.limiter.prepare("u", "one")
    assert [one.key for one in box.limiter.timed(box.state.snapshot())] == [("u", "one")]
    box.limiter.prepare("u", "two", "main")
    assert [one.core for one in box.limiter.timed(box.state.snapshot())] == [{CARD: 5}]
    box.limiter.set_live_limit("u", "main", {CARD: 1})
    assert f"memory_bytes={256 * MIB} " in (folders(box)[0] / "limits").read_text()


def test_of_a_whole_card_the_folder_is_that_of_its_last_container(box: Box) -> None:
    box.book("u", MEMORY, core_ids(CARD), name="first")
    box.book("u", core_ids(CARD), name="main")
    box.limiter.prepare("u", "first")
    box.limiter.prepare("u", "main")
    used_by = box.limiter.set_live_limit("u", "main", {CARD: 2})
    assert used_by.limits == {CARD: 2 * 256 * MIB}
    box.isolation().look({})
    whole = box.limiter.folders.of(core_ids(CARD))
    assert f"memory_bytes={512 * MIB} " in (whole / "limits").read_text()
