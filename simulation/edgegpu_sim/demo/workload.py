"""The load of a demo's box: a program for each running container uses the simulated cards, more and less by turns."""

import argparse
import math
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_agent.cli.clients.document import StatusDocument
from edgegpu_agent.cli.clients.plugin import fetch_status
from edgegpu_agent.cli.common import CliError
from edgegpu_base.kube import Json, KubeClient, KubeError, KubeObjects, load_kubeconfig
from edgegpu_sim.driver import SimDriver

STEP_S = 5.0
"""Seconds between two changes of the load; the demo's agents measure every ten."""

_IDLE_C, _BUSY_C = 38, 40
_REAL = ("stat", "maps", "ns", "task")
"""What the plugin reads of a process, beside its cgroup. A container's root has links in the place of device nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardLoad:
    """The load of one card."""

    percent: int
    celsius: int


def card_load(units: int, of_units: int, *, at_s: float, card: int) -> CardLoad:
    """Return the load that containers with so many units make at a time; none without containers.

    Args:
        units: what containers hold of the card.
        of_units: what the card has.
        at_s: seconds since any beginning.
        card: the card's place on its box: cards move one after the other.
    """
    if not units or not of_units:
        return CardLoad(percent=0, celsius=_IDLE_C)
    share = units / of_units
    slow, quick = math.sin(at_s / 45 + card), math.sin(at_s / 11 + 2 * card)
    percent = round(min(98.0, max(2.0, 100 * share * (0.62 + 0.24 * slow + 0.09 * quick))))
    return CardLoad(percent=percent, celsius=_IDLE_C + round(_BUSY_C * percent / 100))


def memory_mib(units: int, *, unit_mib: int, at_s: float, card: int) -> int:
    """Return the MiB that a container with so many units of a card uses there at a time."""
    return int(units * unit_mib * (0.72 + 0.16 * math.sin(at_s / 70 + card)))


@dataclass(frozen=True, slots=True)
class ContainerOfPod:
    """A container by the UID of its pod and by its name."""

    pod_uid: str
    name: str


def units_by_container(status: StatusDocument) -> dict[ContainerOfPod, Counter[str]]:
    """Return the units that each container holds, by the UUID of the card."""
    held: dict[ContainerOfPod, Counter[str]] = {}
    for pod in status.pods:
        for card in pod.cards:
            held.setdefault(ContainerOfPod(pod.uid, pod.container), Counter())[card.uuid] += card.units or 0
    return held


def running_ids(pods: Iterable[Json]) -> dict[ContainerOfPod, str]:
    """Return the runtime's id of each running container of these pods, as the API shows them, without its scheme."""
    return {
        ContainerOfPod(pod["metadata"]["uid"], one["name"]): one["containerID"].rpartition("/")[2]
        for pod in pods
        for one in (pod.get("status") or {}).get("containerStatuses") or ()
        if (one.get("state") or {}).get("running") is not None
    }


class Program:
    """The process of one container, which the folder PROC shows in its cgroup as the kernel would."""

    def __init__(self, driver: SimDriver, proc: Path, cgroup: str) -> None:
        words = ("-m", "edgegpu_sim.demo.program", driver.libraries / "libcuda.so.1")
        self._process = subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE, text=True)
        self._folder = proc / str(self._process.pid)
        self._folder.mkdir(exist_ok=True)
        for name in _REAL:
            self._folder.joinpath(name).symlink_to(f"/proc/{self._process.pid}/{name}")
        self._folder.joinpath("cgroup").write_text(f"0::/{cgroup}\n")

    @property
    def runs(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def hold(self, card: int, mib: int) -> None:
        """Let it hold so much of a card; one that has just ended holds nothing."""
        with suppress(BrokenPipeError):
            print(card, mib, file=self._process.stdin, flush=True)

    def end(self) -> None:
        """End it, and take it out of PROC."""
        with suppress(BrokenPipeError), self._process:
            self._process.terminate()
        shutil.rmtree(self._folder)


@dataclass(eq=False, slots=True)
class ContainerPrograms:
    """The programs of the running containers of one box."""

    driver: SimDriver
    proc: Path
    _running: dict[str, Program] = field(default_factory=dict, init=False)

    def keep(self, containers: Mapping[str, str]) -> Mapping[str, Program]:
        """Start and end programs until each of these containers, by the runtime's id, has one; and return them.

        Args:
            containers: the UID of each container's pod.
        """
        for id_, program in list(self._running.items()):
            if id_ not in containers or not program.runs:
                self._running.pop(id_).end()
        for id_, uid in containers.items():
            if id_ not in self._running:
                self._running[id_] = Program(self.driver, self.proc, f"kubepods/pod{uid}/{id_}")
        return self._running


class BoxLoad:
    """The load of the cards of one box."""

    def __init__(self, driver: SimDriver, socket: Path, *, node: str, objects: KubeObjects, proc: Path) -> None:
        self._driver, self._socket = driver, socket
        self._node, self._objects = node, objects
        self._programs = ContainerPrograms(driver, proc)

    def step(self, at_s: float) -> None:
        """Set the load of each card to that of a time; nothing while plugin or API do not answer."""
        try:
            status = fetch_status(self._socket)
            ids = running_ids(self._objects.list_pods(self._node))
        except (CliError, KubeError):
            return
        held = {container: units for container, units in units_by_container(status).items() if container in ids}
        programs = self._programs.keep({ids[container]: container.pod_uid for container in held})
        for place, card in enumerate(status.cards):
            load = card_load(sum(units[card.uuid] for units in held.values()), card.units, at_s=at_s, card=place)
            self._driver.utilisation(card.uuid, load.percent)
            self._driver.temperature(card.uuid, load.celsius)
            for container, units in held.items():
                if card.uuid in units:
                    mib = memory_mib(units[card.uuid], unit_mib=status.unit_mib, at_s=at_s, card=place)
                    programs[ids[container]].hold(int(card.gpu), mib)


def main() -> None:
    """Read the command line, and load the cards until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("driver", "socket", "kubeconfig", "proc"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--step", type=float, default=STEP_S, help="seconds between two changes")
    parser.add_argument("--hurry", type=float, default=1.0, help="so much faster than the clock")
    chosen = parser.parse_args()
    objects = KubeObjects(KubeClient(load_kubeconfig(chosen.kubeconfig)))
    load = BoxLoad(SimDriver(chosen.driver), chosen.socket, node=chosen.node, objects=objects, proc=chosen.proc)
    while True:
        load.step(time.monotonic() * chosen.hurry)
        time.sleep(chosen.step)


if __name__ == "__main__":
    main()
