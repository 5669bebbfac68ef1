"""A container's state stands in its folder, for its programs to read."""

import threading
from pathlib import Path

import pytest
from unit.plugin.test_isolation import CARD, CORE, MEMORY, Box, folders

from edgegpu_core.deviceid import core_ids
from edgegpu_plugin.containers.held.state_file import StateLook
from edgegpu_plugin.containers.usage_file import USAGE_BYTES


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def told(box: Box) -> str | None:
    box.limiter.tell_inside(by_runtime=False)
    (folder,) = folders(box)
    state = folder / "state"
    return state.read_text() if state.exists() else None


def test_it_is_told_what_it_is_held_to_and_anew_at_each_start(box: Box) -> None:
    box.book("u", MEMORY, CORE)
    box.limiter.tell_inside(by_runtime=False)
    assert not (box.run / "containers").exists(), "a start makes the folder, and nothing else"
    box.limiter.prepare("u", "main")
    assert told(box) == "enforced\n"
    (folder,) = folders(box)
    (folder / "usage").write_bytes(b"\xff" * USAGE_BYTES)
    reason = getattr(box.state_of(), "reason", "")
    assert told(box) == f"degraded: {reason}\n"
    assert str(folder) in reason
    box.limiter.prepare("u", "main")
    assert not (folder / "state").exists(), "it would say what was true of the last run"
    assert told(box) == "enforced\n"


def test_of_containers_with_one_folder_who_has_it_now_is_told(box: Box) -> None:
    """One that has ended says nothing any more: it has no folder, and would be `degraded`."""
    for name, core in (("first", core_ids(CARD)[:50]), ("main", CORE)):
        box.book("u", MEMORY, core, name=name)
        box.limiter.prepare("u", name)
    assert told(box) == "enforced\n"


def test_what_cannot_be_written_is_logged_once_and_again_after_it_could(
    box: Box, caplog: pytest.LogCaptureFixture
) -> None:
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    (folder,) = folders(box)
    for _ in range(2):
        (folder / "state").unlink(missing_ok=True)
        (folder / "state").mkdir()  # nothing can be renamed over it
        for _ in range(3):
            box.limiter.tell_inside(by_runtime=False)
        (folder / "state").rmdir()
        box.limiter.tell_inside(by_runtime=False)
        assert (folder / "state").read_text() == "enforced\n"
    assert len([one for one in caplog.messages if "state" in one]) == 2


def test_a_node_tells_as_long_as_there_are_containers(box: Box) -> None:
    told_of = threading.Event()
    look = StateLook(told_of.set, box.limiter.folders, look_s=0.01)
    runs = threading.Thread(target=look.run)
    runs.start()
    assert not told_of.wait(0.2), "there are none"
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    assert told_of.wait(10)
    look.stop()
    runs.join(10)
    assert not runs.is_alive()
