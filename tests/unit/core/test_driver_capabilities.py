"""What a container asks of the driver by NVIDIA's variable and does not get, and which steps give it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.cases import MODEL

from edgegpu_core.choices.driver_capabilities import capability_notes
from edgegpu_core.choices.modes import Capability
from edgegpu_core.choices.pod_choice import NO_CHOICE, PodChoice
from edgegpu_core.podview import pod_view

NVIDIAS = ["compute", "utility", "graphics", "video", "display", "ngx", "compat32", "all"]
FRIGATE = "compute,video,utility"
ASKS, SETTING = "its NVIDIA_DRIVER_CAPABILITIES asks for", "to isolation.capabilities in the node's plugin.yaml"
ANNOTATION = "set its pod's annotation edgegpu.io/capabilities to"
TWO, BOTH = "graphics, video", frozenset(Capability)


def notes(
    asked: str, *, had: frozenset[str] = frozenset(), choice: PodChoice = NO_CHOICE, node: tuple[str, ...] = ()
) -> list[str]:
    return list(capability_notes(asked, given=had, choice=choice, node=node))


KNOWN = "compute, utility, graphics, video, ngx, all, compat32, display"
TOLD = {
    "": "",
    "compute,utility": "",
    " Compute , utility,": "",
    FRIGATE: f"{ASKS} video, and it has no video: add video {SETTING}, {ANNOTATION} video, make the pod anew",
    "ngx": f"{ASKS} ngx, and it has no graphics: add graphics {SETTING}, {ANNOTATION} graphics, make the pod anew",
    "all": f"{ASKS} all, and it has no {TWO}: add {TWO} {SETTING}, {ANNOTATION} graphics,video, make the pod anew",
    "display,compat32": f"{ASKS} display, compat32, whose files no container gets here",
    "vidio": f"{ASKS} 'vidio', which NVIDIA's runtime does not know (it knows: {KNOWN})",
}


@pytest.mark.parametrize(("asked", "expected"), TOLD.items())
def test_each_name_is_told_with_what_gives_it(asked: str, expected: str) -> None:
    assert notes(asked) == ([expected] if expected else [])


def test_only_the_steps_that_are_missing_are_named() -> None:
    asks = f"{ASKS} video, and it has no video:"
    assert notes(FRIGATE, node=("video",)) == [f"{asks} {ANNOTATION} video, make the pod anew"]
    graphics = PodChoice(capabilities=("graphics",))
    opened = frozenset({"graphics"})
    assert notes(FRIGATE, had=opened, choice=graphics, node=("graphics", "video")) == [
        f"{asks} {ANNOTATION} graphics,video, make the pod anew"
    ]
    chosen = PodChoice(capabilities=("video",))
    assert notes(FRIGATE, choice=chosen, node=("video",)) == [f"{asks} make the pod anew"]
    assert notes(FRIGATE, had=frozenset({"video"}), choice=chosen, node=("video",)) == []


@given(st.lists(st.sampled_from(NVIDIAS), max_size=8), st.sets(st.sampled_from(Capability)))
def test_who_has_all_of_it_hears_of_nothing_that_a_node_can_open(asked: list[str], had: set[Capability]) -> None:
    openable = [name for name in asked if name not in {"display", "compat32"}]
    assert notes(",".join(openable), had=BOTH) == []
    told = " ".join(notes(",".join(asked), had=frozenset(had)))
    wanted = {"graphics": {"graphics"}, "ngx": {"graphics"}, "video": {"video"}, "all": {"graphics", "video"}}
    missing = {one for name in asked for one in wanted.get(name, set())} - had
    assert (f"add {', '.join(sorted(missing))} to" in told) == bool(missing)


@given(st.text(max_size=400))
def test_any_value_gives_few_and_short_words(asked: str) -> None:
    assert sum(map(len, notes(asked))) < 2000


def test_a_pod_s_own_value_is_read_and_the_last_counts() -> None:
    limits = {MODEL.memory_resource: "8", MODEL.core_resource: "20"}

    def read(*env: dict[str, object]) -> tuple[tuple[str, str], ...]:
        main = {"name": "main", "env": list(env), "resources": {"limits": limits}}
        view = pod_view({"metadata": {"uid": "u"}, "spec": {"containers": [main, {"name": "beside"}]}}, MODEL)
        assert view is not None
        return view.driver_capabilities

    name = "NVIDIA_DRIVER_CAPABILITIES"
    assert read({"name": "A", "value": "1"}) == ()
    assert read({"name": name, "value": "all"}, {"name": name, "value": FRIGATE}) == (("main", FRIGATE),)
    assert read({"name": name, "valueFrom": {"configMapKeyRef": {}}}) == ()
