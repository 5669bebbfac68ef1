"""The load of a demo's box: the cards move, and what each container uses of them counts as its own."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from edgegpu_agent.demo.model import DemoService
from edgegpu_agent.demo.plan import CARD_8G_MIB
from edgegpu_sim.demo.embedded import embedded
from edgegpu_sim.demo.processes import Processes
from edgegpu_sim.driver import SimDriver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edgegpu_sim.demo.embedded import EmbeddedBed

pytestmark = pytest.mark.usefixtures("simdriver_build")
WAIT_S = 120


@contextmanager
def loaded(folder: Path, *services: DemoService) -> Iterator[tuple[EmbeddedBed, Processes]]:
    """Yield a box with these services and its load, which changes quickly."""
    with embedded((CARD_8G_MIB,), policy="first-fit") as bed, Processes(folder, {}) as processes:
        for service in services:
            bed.apply(bed.manifest(service))
        paths = ("--driver", bed.driver, "--socket", bed.socket, "--kubeconfig", bed.kubeconfig, "--proc", bed.proc)
        words = (*paths, "--node", bed.node, "--step", "0.2", "--hurry", "60")
        processes.start("load", [sys.executable, "-m", "edgegpu_sim.demo.workload", *words])
        yield bed, processes


def cgroups(bed: EmbeddedBed) -> set[str]:
    """Return the cgroups of the programs that run for containers."""
    return {file.read_text().strip() for file in bed.proc.glob("*/cgroup")}


def wanted_cgroups(bed: EmbeddedBed, *services: str) -> set[str]:
    """Return the cgroups that the containers of these services have by the API."""
    return {
        f"0::/kubepods/pod{pod['metadata']['uid']}/{one['containerID'].removeprefix('sim://')}"
        for service in services
        for pod in bed.pods(service)
        for one in pod["status"].get("containerStatuses", ())
    }


def test_the_cards_of_a_demos_box_move(short_tmp: Path) -> None:
    with loaded(short_tmp, DemoService("counter", 20)) as (bed, processes):
        seen: set[str] = set()
        query = ("--query-gpu=utilization.gpu,memory.used,temperature.gpu", "--format=csv,noheader,nounits")
        env = {"LD_LIBRARY_PATH": str(bed.driver / "usr/lib/x86_64-linux-gnu")}

        def moved() -> bool:
            seen.add(processes.call([bed.driver / "usr/bin/nvidia-smi", *query], env).text)
            columns = zip(*(line.split(",") for line in seen), strict=True)
            return all(len(set(column)) > 3 for column in columns)

        processes.wait("load", moved, what="utilisation, memory and temperature to move", timeout_s=WAIT_S)


def test_what_a_container_uses_is_its_own_and_nothing_is_used_outside_of_pods(short_tmp: Path) -> None:
    units = {"counter": 8, "tracker": 20}
    used: dict[str, int] = {}
    with loaded(short_tmp, *(DemoService(*one) for one in units.items())) as (bed, processes):

        def is_measured() -> bool:  # each program uses from 0.56 to 0.88 of what its container holds
            status = bed.status()
            names = {(pod.uid, pod.container): pod.pod.rpartition("-")[0].rpartition("-")[0] for pod in status.pods}
            rows = [(names.get((one.uid, one.container), "no pod"), one.used_mib or 0) for one in status.use.rows]
            used.clear()
            used.update(rows)
            return all(0.5 < used.get(service, 0) / (256 * units[service]) < 0.9 for service in units)

        processes.wait("load", is_measured, what="the plugin to measure both", timeout_s=WAIT_S)
    assert set(used) == set(units)


def test_the_program_of_a_container_ends_with_it(short_tmp: Path) -> None:
    with loaded(short_tmp, DemoService("counter", 8), DemoService("tracker", 20)) as (bed, processes):

        def has(*services: str) -> bool:
            wanted = wanted_cgroups(bed, *services)
            return len(wanted) == len(services) and cgroups(bed) == wanted

        processes.wait("load", lambda: has("counter", "tracker"), what="two programs", timeout_s=WAIT_S)
        bed.delete("tracker")
        processes.wait("load", lambda: has("counter"), what="the end of the other program", timeout_s=WAIT_S)
        assert SimDriver(bed.driver).used_mib(bed.status().cards[0].uuid) <= 8 * 256
