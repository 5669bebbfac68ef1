"""Containers that run with the limiter of another version of edgegpu, whose usage file has another form."""

import mmap
import os
from pathlib import Path

import pytest
from property.cases import box as container
from property.cases import pod_of
from unit.plugin.test_isolation import CARD, CORE, MEMORY, MIB, Box, folders, used

from edgegpu_plugin.containers.held.bypass import CountedContainer
from edgegpu_plugin.containers.held.uncounted import UncountedMemory
from edgegpu_plugin.containers.held.usage_sizes import UsageSizes
from edgegpu_plugin.containers.usage_file import USAGE_BYTES
from edgegpu_plugin.errors import LiveLimitError, PluginError

KEY = ("u", "main")
OTHER_BYTES = USAGE_BYTES + 8192


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A container that was started by another version: its usage file is larger, and says what this one cannot read."""
    box = Box(tmp_path)
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    (folder,) = folders(box)
    (folder / "form").write_text(f"2 {OTHER_BYTES}\n")
    (folder / "usage").write_bytes(b"\x01" * OTHER_BYTES)
    return box


def usage_of(box: Box) -> Path:
    return folders(box)[0] / "usage"


def test_it_is_said_that_its_figures_cannot_be_read(box: Box) -> None:
    told = box.state_of()
    assert getattr(told, "state", "") == "degraded"
    assert "another version of edgegpu" in getattr(told, "reason", "")
    with pytest.raises(LiveLimitError, match="another version of edgegpu"):
        box.limiter.set_live_limit("u", "main", {CARD: 2})


def test_what_it_holds_is_not_charged_twice_and_nothing_is_written_into_its_file(box: Box) -> None:
    """Its own limiter counts what the driver counts of it; with that as uncounted it would get no more memory."""
    usage = usage_of(box)
    memory = UncountedMemory()
    held = {KEY: CountedContainer([usage], {CARD: 1024 * MIB})}
    assert memory.look({(KEY, CARD): 500 * MIB}, held) == set()
    assert usage.read_bytes() == b"\x01" * OTHER_BYTES


def test_its_file_is_cut_back_to_its_own_size(box: Box) -> None:
    usage, sizes = usage_of(box), UsageSizes()
    held = {KEY: CountedContainer([usage], {})}
    assert not sizes.look(held)
    assert usage.stat().st_size == OTHER_BYTES
    usage.write_bytes(b"\x01" * (OTHER_BYTES + 1))
    assert sizes.look(held)
    assert usage.stat().st_size == OTHER_BYTES


def test_its_next_start_waits_for_its_processes_and_has_a_file_of_this_version(box: Box) -> None:
    left = f"of the container's last run .*process {os.getpid()}"
    with (
        usage_of(box).open("r+b") as file,
        mmap.mmap(file.fileno(), 0),
        pytest.raises(PluginError, match=left),
    ):
        box.limiter.prepare("u", "main")
    box.limiter.prepare("u", "main")
    assert usage_of(box).read_bytes() == bytes(USAGE_BYTES)
    usage_of(box).write_bytes(used((7, 5 * MIB)))
    assert getattr(box.state_of(), "counted", {}) == {CARD: 5 * MIB}


@pytest.mark.parametrize("said", [None, "", "3", "3 -1", "x y", "3 999999999999"])
def test_where_the_form_is_not_said_it_is_the_first_one(box: Box, said: str | None) -> None:
    """The first versions made no such file; what is in it is the plugin's alone."""
    form = usage_of(box).with_name("form")
    if said is None:
        form.unlink()
    else:
        form.write_text(said)
    usage_of(box).write_bytes(used((7, 5 * MIB)))
    assert "another version of edgegpu" in getattr(box.state_of(), "reason", "")


def test_nothing_that_a_container_writes_into_its_file_is_another_form(box: Box) -> None:
    """Else it would hide from the plugin what it holds past its own count."""
    box.limiter.prepare("u", "main")
    data = bytearray(used((7, 5 * MIB)))
    data[4] = 2
    usage_of(box).write_bytes(data)
    assert "not whole" in getattr(box.state_of(), "reason", "")
    memory = UncountedMemory()
    assert memory.look({(KEY, CARD): 500 * MIB}, {KEY: CountedContainer([usage_of(box)], {CARD: 1024 * MIB})}) == {KEY}


def test_a_container_that_has_never_started_is_of_no_version(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.book("u", MEMORY, CORE)
    box.state.put_pod(pod_of("u", container("main", 4, 10)))
    assert getattr(box.state_of(), "reason", "") == "it has not started yet"
