"""kubelet loses its record of containers that run: nothing of theirs is freed or removed before a witness says so."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from property.cases import box as container
from property.cases import pod_of
from unit.plugin.test_collector import Kubelet
from unit.plugin.test_isolation import CARD, CORE, MEMORY, Box, folders
from unit.plugin.test_reconciler import Bench, write_books

from edgegpu_core.deviceid import core_ids, memory_ids
from edgegpu_core.placement import Policy, Share
from edgegpu_plugin.containers.live_limits import LiveLimits
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.records.collector import Collector
from edgegpu_plugin.records.node_state import NodeState
from edgegpu_plugin.records.publisher import report_of
from edgegpu_plugin.records.reconciler import UNRECORDED_S
from edgegpu_plugin.status import pods_part

RUNNING = replace(
    pod_of("u", container("main", 4, 10), cards={"main": (CARD,)}, phase="Running"), running=(("main", "0" * 64),)
)
REMOVED, CUT, EMPTY, ANOTHER = "removed", "cut", "empty", "another"


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = Box(tmp_path)
    made.book("u", MEMORY, CORE)
    made.state.put_pod(RUNNING)
    made.limiter.prepare("u", "main")
    return made


def lose(folder: Path, how: str) -> None:
    """Do to kubelet's checkpoint what a user, a power cut, or kubelet after either does."""
    path = folder / "checkpoint"
    if how == REMOVED:
        path.unlink()
    elif how == CUT:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        entry = {"PodUID": "v", "ContainerName": "main", "ResourceName": "baidu.com/vcuda-memory"}
        later = [{**entry, "DeviceIDs": {"-1": [memory_ids(CARD, 29)[9]]}}] if how == ANOTHER else []
        path.with_name("new").write_text(json.dumps({"Data": {"PodDeviceEntries": later}}))
        path.with_name("new").replace(path)


@pytest.mark.parametrize("how", [REMOVED, CUT, EMPTY, ANOTHER])
def test_a_running_container_keeps_folder_units_and_live_limit(box: Box, tmp_path: Path, how: str) -> None:
    box.limiter.set_live_limit("u", "main", {CARD: 2})
    (folder,) = folders(box)
    lose(tmp_path, how)
    box.limiter.clean()
    assert folders(box) == [folder]
    assert (folder / "limits").is_file()
    assert LiveLimits(box.saved).units("u", "main") == {CARD: 2}
    assert box.state.snapshot().view.holding(RUNNING) == (Share(CARD, 4, 10),)
    assert report_of(box.state.snapshot(), boot="b").held["u"] == (Share(CARD, 4, 10),)
    assert getattr(box.state_of(), "state", "") == "enforced"


@pytest.mark.parametrize("how", [REMOVED, EMPTY, ANOTHER])
def test_so_it_is_for_a_plugin_that_starts_after_that(box: Box, tmp_path: Path, how: str) -> None:
    """It has no earlier record: what the API server shows to run keeps its place, and its folder, whichever that is."""
    box.limiter.set_live_limit("u", "main", {CARD: 2})
    lose(tmp_path, how)
    cards = box.state.cards()
    box.state = NodeState(model=box.state.model, policy=Policy.FIRST_FIT, checkpoint=tmp_path / "checkpoint")
    box.state.set_cards(cards)
    box.state.replace_pods([RUNNING])
    box.isolation().clean()
    assert len(folders(box)) == 1
    assert LiveLimits(box.saved).units("u", "main") == {CARD: 2}
    assert box.state.snapshot().unrecorded == (("u", "main"),)
    assert box.state.snapshot().view.holding(RUNNING) == (Share(CARD, 4, 10),)
    assert report_of(box.state.snapshot(), boot="b").waiting == frozenset(), "no equal pod waits for it to be served"
    box.state.put_pod(pod_of("v", container("main", 4, 10), created="later"))
    assert [want.pod.uid for want in box.state.snapshot().view.waiting_containers()] == ["v", "u"]


def test_it_goes_when_the_pod_has_gone(box: Box, tmp_path: Path) -> None:
    """Who is gone by the API server, kubelet and the runtime holds nothing from the next look on."""
    lose(tmp_path, EMPTY)
    kubelet = Kubelet()
    collector = Collector(box.state, kubelet)
    assert not collector.collect()
    box.state.drop_pod("u")
    for kubelet.known in (None, frozenset({"u"})):
        assert collector.collect()
        box.limiter.clean()
        assert len(folders(box)) == 1
    kubelet.known = frozenset()
    assert not collector.collect()
    assert box.state.recorded() == ()
    box.limiter.clean()
    assert folders(box) == []


def test_it_goes_without_podresources_as_well(box: Box, tmp_path: Path) -> None:
    """kubelet's record lacks it, and PodResources would show no more than that record; the others are asked as ever."""
    kubelet = Kubelet()
    collector = Collector(box.state, kubelet)
    kubelet.listed = None
    box.state.drop_pod("u")
    kubelet.known = frozenset()
    assert collector.collect(), "its devices are in kubelet's record"
    lose(tmp_path, ANOTHER)
    box.state.put_pod(pod_of("v", container("main", 1, 0)))
    for kubelet.known in (None, frozenset({"u"})):
        assert collector.collect()
        assert box.state.snapshot().view.ledger.pods() == ("u", "v")
    kubelet.known = frozenset()
    assert not collector.collect()
    assert box.state.snapshot().view.ledger.pods() == ("v",)


def test_a_pod_that_has_ended_by_the_api_is_dropped_with_kubelets_record(box: Box, tmp_path: Path) -> None:
    box.state.put_pod(replace(RUNNING, phase="Succeeded", running=()))
    lose(tmp_path, EMPTY)
    assert box.state.snapshot().view.ledger.pods() == ()
    assert box.state.snapshot().unrecorded == ()


def test_devices_that_kubelet_gives_anew_replace_those_that_it_had_lost(box: Box, tmp_path: Path) -> None:
    lose(tmp_path, EMPTY)
    write_books(tmp_path, u={"baidu.com/vcuda-memory": memory_ids(CARD, 29)[5:9], "baidu.com/vcuda-core": CORE})
    assert box.state.snapshot().unrecorded == ()
    box.limiter.clean()
    assert folders(box) == [], "that of the devices which it had before"


BARE, TMPFS = "bare", "tmpfs"


def device_ids(box: Box) -> tuple[tuple[str, ...], ...]:
    """Return the devices of the box's first card that its container has."""
    (card, *_) = box.state.cards()
    return tuple(memory_ids(card.uuid, 29)[:4]), tuple(core_ids(card.uuid)[:10])


@pytest.fixture(params=[BARE, TMPFS])
def mountable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    """A box whose containers' folder is an ordinary one, or a file system of its own, as under the plugin's unit."""
    root = tmp_path / "run" / "containers"
    root.mkdir(parents=True)
    if request.param == TMPFS:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(root)], check=True)
    try:
        machine = Box(tmp_path, proc=Path("/proc"))
        card = f"GPU-{uuid4()}"  # the folder's name comes of it: tests that run beside this one look at all mounts too
        machine.state.set_cards((replace(machine.state.cards()[0], uuid=card),))
        machine.book("u", *device_ids(machine))
        machine.state.put_pod(replace(RUNNING, cards={"main": (card,)}))
        machine.limiter.prepare("u", "main")
        yield machine
    finally:
        if request.param == TMPFS:
            subprocess.run(["umount", "--lazy", str(root)], check=True)


READER = ("cat",)
LEADERLESS = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@contextmanager
def mounted(folder: Path, mount: Path, *program: str) -> Iterator[int]:
    """Have a process that lives with a folder mounted as a container has it; its id comes out."""
    mount.mkdir()
    steps = 'mount --make-rprivate / && mount --bind "$1" "$2" && echo mounted && shift 2 && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", steps, "sh", str(folder), str(mount), *(program or READER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"mounted\n"
            yield child.pid
        finally:
            child.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
def test_what_is_mounted_in_a_container_stays_whatever_kubelet_and_the_api_say(mountable: Box, tmp_path: Path) -> None:
    """Its programs do not use the card just now: none of them has the usage file open."""
    (folder,) = folders(mountable)
    mountable.release("u")
    mountable.state.replace_pods([])
    assert not mountable.limiter.has_mounted()
    with mounted(folder, tmp_path / "inside"):
        assert mountable.limiter.has_mounted()
        mountable.limiter.clean()
        assert folders(mountable) == [folder]
    mountable.limiter.clean()
    assert folders(mountable) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
def test_nobody_starts_in_the_folder_of_one_whose_devices_kubelet_gave_away(mountable: Box, tmp_path: Path) -> None:
    (folder,) = folders(mountable)
    before = (folder / "usage").stat().st_ino
    mountable.release("u")
    mountable.book("v", *device_ids(mountable))
    with mounted(folder, tmp_path / "inside"):
        with pytest.raises(PluginError, match="of which kubelet has lost its record"):
            mountable.limiter.prepare("v", "main")
        assert (folder / "usage").stat().st_ino == before
    mountable.limiter.prepare("v", "main")


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
def test_it_is_seen_of_a_process_whose_first_thread_has_ended(mountable: Box, tmp_path: Path) -> None:
    """The kernel shows the process's mounts through its other threads alone."""
    (folder,) = folders(mountable)
    with mounted(folder, tmp_path / "inside", sys.executable, "-c", LEADERLESS) as number:
        # ENOENT for the moment in which it has let go of its root and not yet of its mounts.
        with pytest.raises(OSError, match=r"Invalid argument|No such file"):  # noqa: PT012  (until it has ended)
            while Path(f"/proc/{number}/mountinfo").read_bytes():
                os.sched_yield()
        assert mountable.limiter.has_mounted()


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
def test_a_folder_of_like_name_elsewhere_is_no_containers(mountable: Box, tmp_path: Path) -> None:
    """Any program of the machine may have one mounted: it does not make a new k3s an old one."""
    stranger = tmp_path / "containers" / ("0" * 32)
    stranger.mkdir(parents=True)
    with mounted(stranger, tmp_path / "inside"):
        assert not mountable.limiter.has_mounted()


def test_it_is_said_with_a_remedy_once_it_has_lasted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, phase="Running")
    bench.offer(0, 1)
    bench.reconciler.step()
    lose(tmp_path, EMPTY)
    bench.reconciler.step()
    assert bench.pods.told == []
    bench.now_s += UNRECORDED_S
    bench.reconciler.step()
    (event,) = bench.pods.told
    assert event.startswith("u GPUUnrecorded: container main runs, and kubelet has no record of its devices")
    assert event.endswith(": delete the pod")
    (row,) = pods_part(bench.state.snapshot(), (), (), (), bench.reconciler.unrecorded)
    assert row["state"] == "unrecorded"
    assert row["cards"] == [{"index": "1", "uuid": "GPU-1", "units": 4}]
    assert not bench.pods.evicted
    assert not bench.pods.deleted
