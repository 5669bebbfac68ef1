"""Live app limits: the settler against the small API server and the plugin's own code on its socket."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.agent.test_app_limits_task import Box as ApiBox
from integration.agent.test_app_limits_task import Looks
from kits.limitsapi import Api
from kits.limitsbed import RECREATE, Bed, Paper
from kits.limitscases import manifest
from kits.limitsworld import PODS
from unit.plugin.test_isolation import CARD, Box

from edgegpu_agent.app_limits.live import LiveNote, PluginLimits
from edgegpu_agent.app_limits.settler import AppLimitsSettler
from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.deviceid import core_ids, memory_ids
from edgegpu_core.request import RequestedAmounts
from edgegpu_installer.layout import Layout
from edgegpu_plugin.containers.limit_requests import LimitRequests
from edgegpu_plugin.status import SOCKET_NAME, StatusServer
from edgegpu_sync.messages.spec import AppLimits, AskedItem
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.rules.settle import Settlement

HELD = 4


class PluginOfBox:
    """The plugin's limits and its socket, without its node: a test says which pods kubelet has given devices."""

    def __init__(self, folder: Path) -> None:
        self.box = Box(folder)
        self.socket = folder / SOCKET_NAME
        self.writes = 0
        requests = LimitRequests(self.box.limiter, changed=self._count)
        self._server = StatusServer(folder, self._document, change=requests.answer)
        self._thread = threading.Thread(target=self._server.run)
        self._booked = 0

    def start(self) -> None:
        self._server.open()
        self._thread.start()

    def stop(self) -> None:
        self._server.stop()
        self._thread.join(30)

    def give(self, pods: list[dict[str, Any]], *, units: int = HELD, limited: bool = True) -> None:
        """Give each pod's container units of one card, and start it."""
        for pod in pods:
            uid, at = pod["metadata"]["uid"], self._booked
            self.box.book(uid, memory_ids(CARD, 29)[at : at + units], core_ids(CARD)[at : at + 1], limited=limited)
            self.box.limiter.prepare(uid, "main")
            self._booked += units

    def take(self, pod: dict[str, Any]) -> None:
        """Take a pod's devices back, as when it is gone; the plugin forgets what it made for it."""
        self.box.release(pod["metadata"]["uid"])
        self.box.limiter.clean()

    def limits(self) -> list[tuple[int, int]]:
        """Return what each container is held to and what it holds, in units."""
        cards = [card for row in self._document()["pods"] for card in row["isolation"]["cards"]]
        return [(card["limit_units"], card["held_units"]) for card in cards]

    def _document(self) -> dict[str, Any]:
        states = self.box.limiter.states(self.box.state.snapshot(), by_runtime=False)
        rows = [
            {"uid": uid, "container": name, "isolation": one.to_json(), "pod": uid, "state": "allocated"}
            for (uid, name), one in states.items()
        ]
        return {"v": 1, "pods": rows}

    def _count(self) -> None:
        self.writes += 1


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        yield server


@pytest.fixture
def plugin(short_tmp: Path) -> Iterator[PluginOfBox]:
    folder = Layout(short_tmp).plugin_socket.parent
    folder.mkdir(parents=True)
    made = PluginOfBox(folder)
    made.start()
    yield made
    made.stop()


def bed_of(api: Api, plugin: PluginOfBox, *, replicas: int = 2, **isolation: Any) -> Bed:  # noqa: ANN401
    """Return an app of some pods with four units each, all given by this plugin."""
    bed = Bed(api, (94,))
    bed.settler = settler(bed, plugin)
    bed.world.add(manifest("Deployment", "asr", memory=HELD, replicas=replicas, **RECREATE))
    assert bed.world.running("asr") == [HELD] * replicas
    plugin.give(bed.world.pods("asr"), **isolation)
    return bed


def settler(bed: Bed, plugin: PluginOfBox) -> AppLimitsSettler:
    return bed.make(port=PluginLimits(plugin.socket))


def uids(bed: Bed) -> list[str]:
    return sorted(pod["metadata"]["uid"] for pod in bed.world.pods("asr"))


def look(bed: Bed, asked: Any, settled: Settlement) -> list[tuple[str, str]]:  # noqa: ANN401
    found = bed.settler.look(asked, settled, bed.notes)
    assert found.conditions is not None
    return [(one.type, one.text) for one in found.conditions]


def test_within_what_is_held_no_pod_is_touched(api: Api, plugin: PluginOfBox) -> None:
    bed = bed_of(api, plugin)
    before = uids(bed)
    came = bed.settle(2, live=True)
    assert came == Settlement.applied("live: 2 of 4 units held; no pod was touched")
    assert plugin.limits() == [(2, 4), (2, 4)]
    assert bed.settle(3, live=True, rev=2).state is ItemState.APPLIED  # up again, below what is held
    assert plugin.limits() == [(3, 4), (3, 4)]
    assert bed.settle(HELD, live=True, rev=3).state is ItemState.APPLIED
    assert plugin.limits() == [(4, 4), (4, 4)]
    for _ in range(4):
        bed.world.step()
    assert uids(bed) == before
    assert bed.limits()["memory"] == str(HELD)
    assert not api.writes


def test_without_the_word_live_it_goes_the_usual_way(api: Api, plugin: PluginOfBox) -> None:
    bed = bed_of(api, plugin)
    before = uids(bed)
    assert bed.settle(2).state is ItemState.APPLIED
    assert bed.limits()["memory"] == "2"
    assert not set(uids(bed)) & set(before)
    assert plugin.writes == 0


@pytest.mark.parametrize(
    ("memory", "core"), [(5, 1), (2, 2), (0, 0)], ids=["more than is held", "another core", "no limits"]
)
def test_what_is_not_within_goes_the_usual_way(api: Api, plugin: PluginOfBox, memory: int, core: int) -> None:
    bed = bed_of(api, plugin)
    assert bed.settle(memory, core, live=True).state is ItemState.APPLIED
    assert api.writes
    assert plugin.writes == 0


def test_where_a_pod_is_not_held_all_go_the_usual_way(api: Api, plugin: PluginOfBox) -> None:
    bed = Bed(api, (94,))
    bed.settler = settler(bed, plugin)
    bed.world.add(manifest("Deployment", "asr", memory=HELD, replicas=3, **RECREATE))
    one, two, _elsewhere = bed.world.pods("asr")
    plugin.give([one])
    plugin.give([two], limited=False)
    assert bed.settle(2, live=True).state is ItemState.APPLIED
    assert bed.limits()["memory"] == "2"
    assert plugin.writes == 0


def move(bed: Bed, pod: dict[str, Any], node: str) -> None:
    """Let the API server have a pod on another node."""
    bed.world.api.store.objects[f"{PODS}/{pod['metadata']['name']}"]["spec"]["nodeName"] = node


def test_pods_on_other_boxes_are_named_and_nothing_is_changed(api: Api, plugin: PluginOfBox) -> None:
    bed = Bed(api, (94,))
    bed.settler = settler(bed, plugin)
    bed.world.add(manifest("Deployment", "asr", memory=HELD, replicas=9, **RECREATE))
    plugin.give(bed.world.pods("asr")[:2])
    for number, pod in enumerate(bed.world.pods("asr")[2:]):
        move(bed, pod, f"far-{number}")
    came = bed.settle(2, live=True)
    names = ", ".join(
        f"{pod['metadata']['name']} on far-{number}" for number, pod in enumerate(bed.world.pods("asr")[2:7])
    )
    assert came == Settlement.rejected(
        "PRECHECK",
        "no live limit reaches 7 of its 9 pods, which are not on box-1, whose agent sets the limits: "
        f"{names}, 2 more; set them without live, and new pods are made",
    )
    assert (plugin.writes, api.writes, bed.notes.value) == (0, [], None)
    assert bed.settle(2, rev=2).state is ItemState.APPLIED


def test_a_pod_that_came_to_another_box_is_told_of(api: Api, plugin: PluginOfBox) -> None:
    bed = bed_of(api, plugin)
    asked, came = bed.ask(2, live=True), bed.settle(2, live=True)
    far, _ = bed.world.pods("asr")
    plugin.take(far)
    move(bed, far, "far")
    told = [("Drifted", f"asked were 2 units; {far['metadata']['name']}: no live limit reaches it on far")]
    assert look(bed, asked, came) == told


def test_a_container_that_is_about_to_start_gets_the_limit_before(api: Api, plugin: PluginOfBox) -> None:
    bed = bed_of(api, plugin)
    asked, came = bed.ask(2, live=True), bed.settle(2, live=True)
    for one in PluginLimits(plugin.socket).held().values():
        PluginLimits(plugin.socket).limit(one, HELD)
    for pod in bed.world.pods("asr"):
        pod["status"]["phase"] = "Pending"
    assert look(bed, asked, came) == [("Live", "live: 2 of 4 units held")]
    assert plugin.limits() == [(2, 4), (2, 4)]


def test_while_the_plugin_is_silent_it_goes_the_usual_way(api: Api, plugin: PluginOfBox) -> None:
    bed = bed_of(api, plugin)
    plugin.stop()
    assert bed.settle(2, live=True).state is ItemState.APPLIED
    assert bed.limits()["memory"] == "2"


def test_a_later_item_that_is_not_live_ends_the_live_limit(api: Api, plugin: PluginOfBox) -> None:
    bed = bed_of(api, plugin)
    bed.settle(2, live=True)
    assert bed.settle(HELD, rev=2).state is ItemState.APPLIED
    assert plugin.limits() == [(4, 4), (4, 4)]
    assert not api.writes


def test_a_refusal_by_the_plugin_puts_the_other_pods_back(api: Api, plugin: PluginOfBox) -> None:
    bed = bed_of(api, plugin)
    port = PluginLimits(plugin.socket)
    held = port.held()
    plugin.box.release(uids(bed)[1])

    class Late(PluginLimits):
        """The plugin as it was before the second pod ended."""

        def held(self) -> Any:  # noqa: ANN401
            return held

    bed.settler = bed.make(port=Late(plugin.socket))
    came = bed.settle(2, live=True)
    assert (came.state, came.code, came.restored) == (ItemState.FAILED, "ERROR", True)
    assert "no container of this pod and name holds devices" in came.text
    assert plugin.limits() == [(4, 4)]
    assert not api.writes


def test_its_condition_and_the_limit_of_pods_that_come_later(api: Api, plugin: PluginOfBox) -> None:
    bed = bed_of(api, plugin)
    asked, came = bed.ask(2, live=True), bed.settle(2, live=True)
    assert look(bed, asked, came) == [("Live", "live: 2 of 4 units held")]
    assert bed.settler.look(asked, came, bed.notes).regularly
    gone, kept = bed.world.pods("asr")
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    plugin.take(gone)
    for _ in range(6):
        bed.world.step()
    (fresh,) = [pod for pod in bed.world.pods("asr") if pod["metadata"]["name"] != kept["metadata"]["name"]]
    (told,) = look(bed, asked, came)
    assert told == ("Drifted", f"asked were 2 units; {fresh['metadata']['name']}: nothing holds it to its memory")
    plugin.give([fresh])
    assert sorted(plugin.limits()) == [(2, 4), (4, 4)]
    assert look(bed, asked, came) == [("Live", "live: 2 of 4 units held")]
    assert plugin.limits() == [(2, 4), (2, 4)]


def test_somebody_who_writes_the_template_is_told_of_as_ever(api: Api, plugin: PluginOfBox) -> None:
    bed = bed_of(api, plugin)
    asked, came = bed.ask(2, live=True), bed.settle(2, live=True)
    resources = bed.world.workload("Deployment", "asr")["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources["limits"]["baidu.com/vcuda-memory"] = "6"
    ((kind, text),) = look(bed, asked, came)
    assert kind == "Drifted"
    assert "stands at 6 vcuda-memory" in text


def test_a_crash_between_note_and_limits_is_made_good(api: Api, plugin: PluginOfBox) -> None:
    bed = bed_of(api, plugin)
    bed.settle(2, live=True)
    for one in PluginLimits(plugin.socket).held().values():
        PluginLimits(plugin.socket).limit(one, HELD)
    assert bed.notes.value is not None
    bed.settler = settler(bed, plugin)
    assert bed.settle(2, live=True).state is ItemState.APPLIED
    assert plugin.limits() == [(2, 4), (2, 4)]


def test_a_box_that_holds_nothing_knows_no_live_limits(api: Api, plugin: PluginOfBox) -> None:
    plugin.box.limiter = plugin.box.isolation(PluginIsolation.NONE)
    bed = bed_of(api, plugin, limited=False)
    assert bed.settle(2, live=True).state is ItemState.APPLIED
    assert bed.limits()["memory"] == "2"


@pytest.fixture
def site(short_tmp: Path) -> Iterator[ApiBox]:
    made = ApiBox(short_tmp)
    yield made
    made.api.stop()


def live_item(site: ApiBox, *, units: int) -> tuple[AskedItem, Paper]:
    """Return a live item that was settled for an app without pods, with its notes."""
    asked = site.app("asr")
    assert isinstance(asked.item, AppLimits)
    found = site.api.registry.get("deployments", "default", "asr")
    notes = Paper()
    LiveNote(found["metadata"]["uid"], RequestedAmounts(HELD, 1)).write(notes)
    return replace(asked, item=asked.item.model_copy(update={"memory_units": units, "live": True})), notes


def add_pod(site: ApiBox) -> dict[str, Any]:
    """Add a running pod of the app."""
    template = manifest("Deployment", "asr", memory=HELD)["spec"]["template"]
    owner = {"kind": "ReplicaSet", "name": "asr-1", "controller": True}
    pod = {"metadata": {"name": "asr-1-x", "labels": template["metadata"]["labels"], "ownerReferences": [owner]}}
    made: dict[str, Any] = site.api.registry.create("pods", pod | {"spec": template["spec"]})
    return made


def run_pod(site: ApiBox) -> None:
    site.api.registry.bind("default", "asr-1-x", {"target": {"name": "box-1"}})
    site.api.registry.patch("pods", "default", "asr-1-x", {"status": {"phase": "Running"}}, sub="status")


def wait_for(plugin: PluginOfBox, limits: list[tuple[int, int]]) -> None:
    ends = time.monotonic() + 60
    while plugin.limits() != limits:
        assert time.monotonic() < ends, plugin.limits()
        threading.Event().wait(0.01)


def test_a_new_pod_gets_the_limit_when_its_watch_shows_it(site: ApiBox, plugin: PluginOfBox) -> None:
    asked, notes = live_item(site, units=2)
    with Looks(site.client(), site.root, look_s=3600) as looks:
        looks.settled(asked, notes=notes)
        assert looks.hear()[1][0].type == "Live"
        while ("watch", "pods") not in site.calls("pods"):
            threading.Event().wait(0.01)
        plugin.give([add_pod(site)])
        run_pod(site)
        wait_for(plugin, [(2, HELD)])


def test_pods_that_change_again_and_again_get_the_limit_within_seconds(site: ApiBox, plugin: PluginOfBox) -> None:
    """Six changes at the pace of other items would take a minute."""
    asked, notes = live_item(site, units=2)
    plugin.give([add_pod(site)])
    run_pod(site)
    (one,) = PluginLimits(plugin.socket).held().values()
    with Looks(site.client(), site.root, look_s=3600) as looks:
        looks.settled(asked, notes=notes)
        while ("watch", "pods") not in site.calls("pods"):
            threading.Event().wait(0.01)
        wait_for(plugin, [(2, HELD)])
        began = time.monotonic()
        for number in range(6):
            PluginLimits(plugin.socket).limit(one, HELD)  # as a new pod has it
            site.api.registry.patch(
                "pods", "default", "asr-1-x", {"metadata": {"annotations": {"change": str(number)}}}
            )
            wait_for(plugin, [(2, HELD)])
        assert time.monotonic() - began < 40


def test_a_limit_that_was_ended_on_the_box_is_set_again_though_no_watch_shows_it(
    site: ApiBox, plugin: PluginOfBox
) -> None:
    asked, notes = live_item(site, units=2)
    plugin.give([add_pod(site)])
    run_pod(site)
    with Looks(site.client(), site.root, look_s=1.0) as looks:
        looks.settled(asked, notes=notes)
        for _ in range(3):  # first, once the watches stand, and the first time that nothing has changed
            assert looks.hear()[1][0].type == "Live"
        (one,) = PluginLimits(plugin.socket).held().values()
        PluginLimits(plugin.socket).limit(one, HELD)
        wait_for(plugin, [(2, HELD)])
