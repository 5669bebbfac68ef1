"""What is noted of containers, whatever holds them."""

from dataclasses import replace
from pathlib import Path

import pytest
from property.cases import box as container
from property.cases import pod_of
from unit.plugin.test_isolation import CORE, MEMORY, Box

from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.choices.pod_choice import GivenChoice
from edgegpu_plugin.containers.held.container_state import ContainerIsolation
from edgegpu_plugin.containers.limiter_files import PRELOADED
from edgegpu_plugin.pb import Mount


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_what_a_pod_asks_of_the_driver_and_does_not_get_is_noted_and_stays_enforced(box: Box) -> None:
    asks = replace(pod_of("u", container("main", 4, 10)), driver_capabilities=(("main", "video"),))
    box.state.replace_pods([asks])
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    told = box.state_of()
    note = str(getattr(told, "notes", [""])[0])
    assert (getattr(told, "state", ""), "asks for video" in note) == ("enforced", True)
    assert isinstance(told, ContainerIsolation)
    assert told.to_json()["notes"] == [note]
    (event,) = box.limiter.notes(box.state.snapshot(), by_runtime=False)
    assert (event.pod.uid, event.container, event.reason, event.text) == ("u", "main", "GPUCapabilities", note)
    box.release("u")
    box.book("u", MEMORY, CORE, given=GivenChoice(PluginIsolation.LIMITER, ("video",)))
    assert getattr(box.state_of(), "notes", None) == ()
    box.release("u")
    box.book("u", MEMORY, CORE, limited=False)  # nothing holds it, so that it has all
    assert getattr(box.state_of(), "notes", None) == ()
    box.release("u")
    box.book("u", MEMORY, CORE, mounts=[Mount(PRELOADED, "/library")])  # NVIDIA's runtime gives what its pod asks
    assert getattr(box.state_of(), "notes", None) == ()
