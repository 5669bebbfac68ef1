"""Live limits: what a container that the limiter holds may be held to below what it holds, and how long that lasts."""

import json
import shutil
import stat
from pathlib import Path

import pytest
from unit.plugin.test_isolation import CARD, CORE, MEMORY, MIB, OTHER, Box

from edgegpu_base.http_unix import ChangeRequest
from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.deviceid import core_ids, memory_ids
from edgegpu_core.podview import PodView
from edgegpu_core.request import ContainerRequest, ContainerRole, RequestedAmounts
from edgegpu_plugin.containers.held.container_state import ContainerIsolation
from edgegpu_plugin.containers.limit_requests import LimitRequests
from edgegpu_plugin.containers.live_limits import LiveLimit, LiveLimits
from edgegpu_plugin.errors import LiveLimitError, UnknownContainerError

UNIT = 256 * MIB


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = Box(tmp_path)
    made.book("u", MEMORY, CORE)
    made.limiter.prepare("u", "main")
    return made


def limit_of(box: Box) -> int:
    """Return the units in the limits file, which the limiter reads."""
    (folder,) = (box.run / "containers").iterdir()
    return int((folder / "limits").read_text().partition("memory_bytes=")[2].split()[0]) // UNIT


def card_of(state: ContainerIsolation) -> tuple[int, int]:
    (card,) = state.to_json()["cards"]
    return card["limit_units"], card["held_units"]


def test_a_limit_goes_down_and_up_to_what_is_held(box: Box) -> None:
    for units in (2, 1, 3, 4):
        assert card_of(box.limiter.set_live_limit("u", "main", {CARD: units})) == (units, 4)
        assert limit_of(box) == units
    assert LiveLimits(box.saved).all() == ()  # all that is held is no live limit
    box.limiter.set_live_limit("u", "main", {CARD: 2})
    assert card_of(box.limiter.set_live_limit("u", "main", {})) == (4, 4)
    assert limit_of(box) == 4


def test_the_limiter_never_sees_a_file_that_is_half_written(box: Box) -> None:
    """It opens the file again when its inode is another; so a change is a rename."""
    (folder,) = (box.run / "containers").iterdir()
    before = (folder / "limits").stat().st_ino
    with (folder / "limits").open("rb") as held:
        box.limiter.set_live_limit("u", "main", {CARD: 2})
        assert b"memory_bytes=%d " % (4 * UNIT) in held.read()
    assert (folder / "limits").stat().st_ino != before


def test_a_limit_outlives_plugin_container_and_machine_and_ends_with_the_pod(box: Box) -> None:
    box.limiter.set_live_limit("u", "main", {CARD: 2})
    assert stat.S_IMODE((box.saved / "live-limits.json").stat().st_mode) == 0o600
    box.limiter.prepare("u", "main")  # the container starts again
    assert limit_of(box) == 2
    shutil.rmtree(box.run)  # a reboot
    box.isolation(PluginIsolation.NONE).prepare("u", "main")
    assert limit_of(box) == 2
    after = box.isolation()
    after.clean()
    assert limit_of(box) == 2
    box.release("u")
    after.clean()
    assert LiveLimits(box.saved).all() == ()
    box.book("u", MEMORY, CORE)  # a static pod keeps its UID
    after.prepare("u", "main")
    assert limit_of(box) == 4


def test_a_limit_of_a_pod_that_is_gone_ends_also_where_no_folder_is_left(box: Box) -> None:
    box.limiter.set_live_limit("u", "main", {CARD: 2})
    shutil.rmtree(box.run)
    box.release("u")
    box.isolation().clean()
    assert LiveLimits(box.saved).all() == ()


def test_after_a_crash_between_the_two_files_the_next_plugin_writes_what_is_kept(box: Box) -> None:
    LiveLimits(box.saved).put(LiveLimit("u", "main", {CARD: 3}))  # it died before the limits file
    after = box.isolation()
    after.clean()
    assert limit_of(box) == 3


def test_fewer_devices_than_the_limit_are_no_reason_for_more(box: Box) -> None:
    LiveLimits(box.saved).put(LiveLimit("u", "main", {CARD: 9, OTHER: 1}))
    box.isolation().prepare("u", "main")
    assert limit_of(box) == 4


@pytest.mark.parametrize(
    ("card", "units", "words"),
    [
        (CARD, 5, "5 units cannot be its limit: the container holds 4 on card"),
        (CARD, 0, "at least 1"),
        (CARD, -1, "at least 1"),
        (OTHER, 1, "the container has no card GPU-11111111-2222-3333-4444-666666666666; it has GPU-"),
    ],
)
def test_no_other_limit_is_taken(box: Box, card: str, units: int, words: str) -> None:
    with pytest.raises(LiveLimitError, match=words):
        box.limiter.set_live_limit("u", "main", {card: units})
    assert limit_of(box) == 4


def test_what_is_not_held_gets_no_limit(box: Box) -> None:
    box.book("free", memory_ids(OTHER, 29)[:2], core_ids(OTHER)[:1], limited=False)
    with pytest.raises(LiveLimitError, match=r"\(degraded\): its pod was admitted before the limiter was laid over"):
        box.limiter.set_live_limit("free", "main", {OTHER: 1})
    with pytest.raises(LiveLimitError, match=r"\(off\): isolation.mode is none"):
        box.isolation(PluginIsolation.NONE).set_live_limit("free", "main", {OTHER: 1})
    for uid, name in (("nobody", "main"), ("u", "other")):
        with pytest.raises(UnknownContainerError, match="no container of this pod and name holds devices"):
            box.limiter.set_live_limit(uid, name, {CARD: 1})
    assert LiveLimits(box.saved).all() == ()


def test_an_init_container_shares_its_folder_with_the_next_and_gets_none(box: Box) -> None:
    def told(role: ContainerRole) -> PodView:
        main = ContainerRequest("main", role, RequestedAmounts(4, 10))
        return PodView(uid="u", namespace="n", name="p", kubelet_uid="u", containers=(main,))

    box.state.replace_pods([told(ContainerRole.INIT)])
    with pytest.raises(LiveLimitError, match="an init container hands its devices on"):
        box.limiter.set_live_limit("u", "main", {CARD: 1})
    box.state.replace_pods([told(ContainerRole.SIDECAR)])
    box.limiter.set_live_limit("u", "main", {CARD: 1})


def test_a_static_pod_is_named_by_its_mirror_and_kept_under_kubelets_uid(box: Box) -> None:
    static = PodView(uid="u", namespace="n", name="p", kubelet_uid="u", is_static=True)
    box.state.learn_pods([static])
    box.state.replace_pods([PodView(uid="mirror", namespace="n", name="p", kubelet_uid="mirror", mirrors="u")])
    box.limiter.set_live_limit("mirror", "main", {CARD: 1})
    assert [one.uid for one in LiveLimits(box.saved).all()] == ["u"]  # as a start asks


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"version": 2, "limits": []}', '{"version": 1, "limits": [{"uid": "u"}]}']
)
def test_a_file_that_cannot_be_read_holds_containers_to_all_that_they_hold(box: Box, text: str) -> None:
    box.saved.mkdir(exist_ok=True)
    (box.saved / "live-limits.json").write_text(text)
    after = box.isolation()
    after.prepare("u", "main")
    assert limit_of(box) == 4
    after.set_live_limit("u", "main", {CARD: 2})
    assert json.loads((box.saved / "live-limits.json").read_text())["limits"][0]["memory_units"] == {CARD: 2}


def test_what_is_asked_on_the_socket_and_what_is_answered(box: Box) -> None:
    changes: list[int] = []
    requests = LimitRequests(box.limiter, changed=lambda: changes.append(limit_of(box)))

    def ask(method: str, body: object = None, *, target: str = "/v1/pods/u/main/live-limit") -> tuple[int, str]:
        found = requests.answer(ChangeRequest(method, target, b"" if body is None else json.dumps(body).encode()))
        return found.status, found.body.decode()

    status, text = ask("PUT", {"memory_units": {CARD: 2}})
    assert (status, json.loads(text)["cards"][0]["limit_units"]) == (200, 2)
    assert ask("DELETE")[0] == 200
    assert changes == [2, 4]
    assert ask("PUT", {"memory_units": {CARD: 5}})[0] == 409
    wrong: tuple[object, ...] = (
        None,
        {},
        {"memory_units": {}},
        {"memory_units": {CARD: "2"}},
        {"memory_units": {CARD: 2}, "more": 1},
    )
    for body in wrong:
        assert ask("PUT", body)[0] == 400
    assert ask("PUT", {"memory_units": {CARD: 2}}, target="/v1/pods/x/main/live-limit")[0] == 404
    assert ask("PUT", {"memory_units": {CARD: 2}}, target="/v1/pods/u/../live-limit")[0] == 404
    (box.saved / "live-limits.json").unlink(missing_ok=True)
    shutil.rmtree(box.saved, ignore_errors=True)
    box.saved.write_text("no folder")
    assert ask("PUT", {"memory_units": {CARD: 2}})[0] == 500
    assert limit_of(box) == 4
    assert changes == [2, 4]
