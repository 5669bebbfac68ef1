"""Which containers have the limiter and are degraded all the same, and what is said of them."""

from pathlib import Path

from unit.plugin.test_isolation import CARD, CORE, MEMORY, MIB, Box, folders, used

from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.choices.pod_choice import GivenChoice
from edgegpu_plugin.containers.held.reasons import PRELOAD_ONLY
from edgegpu_plugin.containers.limiter_files import PRELOADED
from edgegpu_plugin.pb import Mount


def test_a_container_that_has_more_of_the_driver_than_compute_is_not_surely_held(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.book("u", MEMORY, CORE, given=GivenChoice(PluginIsolation.LIMITER, ("graphics", "video")))
    box.limiter.prepare("u", "main")
    assert box.limiter.opened_for("u", "main") == {"graphics", "video"}
    told = box.state_of()
    assert (getattr(told, "state", ""), getattr(told, "limits", {})) == ("degraded", {CARD: 1024 * MIB})
    assert getattr(told, "reason", "").startswith("its pod has opened graphics, video: the card memory that this takes")
    assert box.limiter.set_live_limit("u", "main", {CARD: 2}).limits == {CARD: 512 * MIB}
    box.book("v", MEMORY, CORE)
    assert box.limiter.opened_for("v", "main") == frozenset()


def test_who_makes_its_usage_file_larger_is_told(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    (folder,) = folders(box)
    (folder / "usage").write_bytes(used((7, 5 * MIB)) + b"more")
    assert box.limiter.look({})
    told = box.state_of()
    assert "made their usage file larger" in getattr(told, "reason", "")
    assert getattr(told, "counted", {}) == {CARD: 5 * MIB}


def test_a_container_into_which_the_limiter_is_preloaded_is_limited_and_degraded(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.book("u", MEMORY, CORE, mounts=[Mount(PRELOADED, "/list")])
    box.limiter.prepare("u", "main")
    (told,) = box.limiter.states(box.state.snapshot(), by_runtime=True).values()
    assert (told.state, told.reason, dict(told.limits)) == ("degraded", PRELOAD_ONLY, {CARD: 1024 * MIB})
    assert told.reason.startswith("preload only: ")
    live = box.limiter.set_live_limit("u", "main", {CARD: 2})
    assert (live.state, live.reason, dict(live.limits)) == ("degraded", PRELOAD_ONLY, {CARD: 512 * MIB})
