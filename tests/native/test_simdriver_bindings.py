"""Memory, streams and time of the simulated driver, by NVIDIA's own Python bindings."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from native.limiterkit import HANG_TIMEOUT_S
from native.shareskit import reaches
from native.simkit import Child

from edgegpu_sim.driver import SimCard, SimDriver, SimVersions

PROGRAM = Path(__file__).with_name("bindingschild.py")
Play = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def newest(box: SimDriver, two_cards: list[SimCard], simdriver_build: Path) -> SimDriver:
    """The bindings ask for the newest variants, so the driver is as new."""
    return SimDriver.create(box.root, two_cards, build=simdriver_build, versions=SimVersions(cuda="13.5"))


@pytest.fixture
def start(newest: SimDriver) -> Iterator[Play]:
    with ExitStack() as stack:

        def begin(scenario: str) -> "subprocess.Popen[str]":
            process = subprocess.Popen(
                [sys.executable, PROGRAM, scenario],
                env={**os.environ, "LD_LIBRARY_PATH": str(newest.libraries)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield begin


def _play(start: Play, scenario: str) -> Any:  # noqa: ANN401 - JSON
    out, _ = start(scenario).communicate(timeout=HANG_TIMEOUT_S)
    return json.loads(out)


def test_the_bindings_allocate(start: Play) -> None:
    assert _play(start, "memory") == {"version": 13050, "held": 1 << 20, "too much": "ERROR_OUT_OF_MEMORY"}


def test_an_older_driver_has_its_own_version(newest: SimDriver, start: Play) -> None:
    cards = newest.root / "var/lib/nvidia-sim/cards"
    cards.write_text(cards.read_text().replace("cuda 13.5", "cuda 12.6"))
    assert _play(start, "memory")["version"] == 12060


def test_pools_hold_what_they_took_until_a_synchronisation(start: Play) -> None:
    assert _play(start, "pools") == {
        "taken": 30,
        "freed, not synchronised": 30,
        "synchronised": 20,
        "kept below the threshold": 20,
        "trimmed": 0,
        "own pool": 50,
        "destroyed, not freed": 30,
        "freed": 0,
        "too much": "ERROR_OUT_OF_MEMORY",
    }


def test_a_range_costs_nothing_and_its_backing_does(start: Play) -> None:
    assert _play(start, "virtual_memory") == {
        "reserved": 0,
        "created": 64,
        "released, still mapped": 64,
        "imported": 64,
        "unmapped": 0,
        "on the host": 0,
    }


def test_arrays(start: Play) -> None:
    assert _play(start, "arrays") == {"2D": 16, "3D": 20, "mipmap": 41, "destroyed": 4}


def test_a_graph_takes_its_memory_when_it_is_launched(start: Play) -> None:
    assert _play(start, "graphs") == {
        "instantiated": 0,
        "launched": 40,
        "launched again, not freed": "ERROR_INVALID_VALUE",
        "freed, not trimmed": 40,
        "trimmed": 0,
        "ten launches with a free node": 40,
        "too much": "ERROR_OUT_OF_MEMORY",
    }


def test_a_capture_runs_later_and_unsafe_calls_end_it(start: Play) -> None:
    seen = _play(start, "captures")
    assert 2.0 <= seen.pop("milliseconds") < 20
    assert seen == {
        "status": "CU_STREAM_CAPTURE_STATUS_ACTIVE",
        "captured": 0,
        "launched": 8,
        "an unsafe call": "ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "ended": "ERROR_STREAM_CAPTURE_INVALIDATED",
    }


def test_kernels_take_their_time_and_nobody_spins(start: Play) -> None:
    seen = _play(start, "times")
    assert 50 <= seen.pop("milliseconds") < 70
    assert seen == {
        "submitted at once": True,
        "stream": "ERROR_NOT_READY",
        "event": "ERROR_NOT_READY",
        "time": "ERROR_NOT_READY",
        "no busy waiting": True,
        "waited": True,
        "after": ["SUCCESS", "SUCCESS"],
    }


def test_a_stream_waits_for_events_and_values_and_no_other_stream_for_it(start: Play) -> None:
    seen = _play(start, "waits")
    assert 6 <= seen.pop("after the other") < 30
    assert seen == {"waits for a value": "ERROR_NOT_READY", "has it": "SUCCESS"}


def test_contexts_and_modules_cost_what_the_cards_file_says(newest: SimDriver, start: Play) -> None:
    cards = newest.root / "var/lib/nvidia-sim/cards"
    cards.write_text(cards.read_text().replace("context_mib 0", "context_mib 100\nmodule_mib 3"))
    assert _play(start, "contexts") == {
        "primary": 100,
        "own": 200,
        "filled": 303,
        "destroyed": 150,
        "reset": 100,
        "module": 103,
        "library": 100,
        "its kernel": 103,
        "unloaded": 100,
    }


def test_a_green_context_costs_a_context(newest: SimDriver, start: Play) -> None:
    cards = newest.root / "var/lib/nvidia-sim/cards"
    cards.write_text(cards.read_text().replace("context_mib 0", "context_mib 100"))
    assert _play(start, "green_contexts") == {
        "primary": 100,
        "multiprocessors": [40, 2, 8, 24],
        "created": 200,
        "filled": 210,
        "destroyed": 100,
    }


def test_memory_of_the_host_costs_the_card_nothing(start: Play) -> None:
    assert _play(start, "host_memory") == {
        "pinned": 0,
        "managed": [5, 3],
        "waits": "ERROR_NOT_READY",
        "written": 9,
        "freed twice": "ERROR_INVALID_VALUE",
    }


def test_memory_of_others_counts_where_it_was_made(start: Play) -> None:
    assert _play(start, "peers") == {
        "reaches": 1,
        "enabled": ["SUCCESS", "ERROR_PEER_ACCESS_ALREADY_ENABLED"],
        "disabled": ["SUCCESS", "ERROR_PEER_ACCESS_NOT_ENABLED"],
        "own": "ERROR_INVALID_CONTEXT",
        "the other's": 12,
        "opened": 12,
        "size": 12,
    }


def _round(sharers: list["subprocess.Popen[str]"]) -> list[int]:
    """Let all work for one and a half seconds at once."""
    for sharer in sharers:
        assert sharer.stdin is not None
        sharer.stdin.write("go\n")
        sharer.stdin.flush()
    return _done(sharers)


def _done(sharers: list["subprocess.Popen[str]"]) -> list[int]:
    """Return the milliseconds of kernels of each until now."""
    return [int(sharer.stdout.readline()) for sharer in sharers if sharer.stdout is not None]


def test_processes_share_a_card_in_equal_parts_and_a_killed_one_leaves_it(
    newest: SimDriver, start: Play, child: Callable[..., Child], two_cards: list[SimCard]
) -> None:
    sharers = [start("share"), start("share")]
    assert _done(sharers) == [0, 0], "both have begun"
    first, second = _round(sharers)
    reaches([first + second], 1000, 1700)  # one card's time
    reaches([min(first, second) / max(first, second)], 0.75)
    nvml = child(newest.libraries)
    nvml.call("nvmlInit")
    reaches([nvml.call("nvmlDeviceGetUtilizationRates", ["dev", 0])["gpu"]], 60)
    processes = nvml.call("nvmlDeviceGetComputeRunningProcesses", ["dev", 0])
    assert {process["pid"] for process in processes} == {sharer.pid for sharer in sharers}
    sharers[1].kill()
    sharers[1].wait()
    reaches([_round(sharers[:1])[0] - first], 1000, 1700)  # alone again
    processes = nvml.call("nvmlDeviceGetComputeRunningProcesses", ["dev", 0])
    assert {process["pid"] for process in processes} == {sharers[0].pid}
    assert newest.busy_ms(two_cards[0].uuid) > 1000
