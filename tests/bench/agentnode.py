"""One box for measurements: the real agent's process beside the real plugin's, a controller's, and a mosquitto."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.nodekit import Node, node
from kits.agent import Agent, Cloud
from kits.faultproxy import FaultProxy
from kits.mqtt import wait_for

from edgegpu_agent.settings import MetricsSection
from edgegpu_agent.worker.answers import StatusAnswer
from edgegpu_agent.worker.telemetry import ALL_S, BATCH
from edgegpu_base.http_unix import NoHttpError, get
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_core.deviceid import DeviceKind
from edgegpu_installer.layout import PLUGIN_UNIT, Layout
from edgegpu_sim.ports import answers, free_port
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME = "bench"
KUBECONFIG = "etc/edgegpu/limits-kubeconfig"
WAIT_S = 60.0
AROUND_BYTES = 110
"""What TLS and MQTT put around a message: topic and properties, and its acknowledgement."""


class AgentNode:
    """What runs: the agent reaches the broker through `proxy`, which counts and can refuse; the cards are simulated."""

    def __init__(self, *, cloud: Cloud, agent: Agent, node: Node, proxy: FaultProxy, broker: int) -> None:
        self.cloud, self.agent, self.node, self.proxy = cloud, agent, node, proxy
        self._broker = broker

    def start(self) -> None:
        """Let the box enrol; return when the controller knows it, app limits included."""
        shutil.copyfile(self.node.kubeconfig.with_suffix(".agent"), self.agent.root / KUBECONFIG)
        self.agent.program("nvidia-smi", _smi([card.uuid for card in self.node.cards]))
        self.cloud.start("mosquitto", "controller")
        self.cloud.serves()
        self.agent.belongs(self.cloud.line(NAME))
        self.agent.start()
        box = self.cloud.online(NAME)
        if "app_limits" not in box.capabilities:
            raise RuntimeError(f"app limits are not wired: {', '.join(box.capabilities)}")

    def settle(self, apps: int) -> None:
        """Let the limits of so many apps be settled; they stand as asked already."""
        layout = Layout(self.agent.root)
        layout.units.mkdir(parents=True, exist_ok=True)
        (layout.units / PLUGIN_UNIT).touch()
        for at in range(apps):
            self.node.deploy(f"app-{at}", {DeviceKind.MEMORY: 4, DeviceKind.CORE: 1})
            limits = ContainerLimits(namespace="default", app=f"app-{at}", container="main", memory_units=4, core=1)
            self.cloud.fleet.set_limits(NAME, limits)

        def applied() -> bool:
            status = self.status()
            return status is not None and [one.state for one in status.items.values()].count(ItemState.APPLIED) == apps

        wait_for(applied, what="the limits are settled", timeout_s=WAIT_S)

    def status(self) -> StatusAnswer | None:
        """Return what the agent says of itself; None while it says nothing."""
        try:
            _, body = get(self.agent.root / "run/edgegpu/agent.sock", "/v1/status", timeout_s=5)
        except (OSError, NoHttpError):
            return None
        return StatusAnswer.model_validate_json(body)

    def connected(self) -> bool:
        """Say whether the agent is on the link, by its own word."""
        status = self.status()
        return status is not None and status.connected

    def comes_back(self, *, away_s: float) -> float:
        """Kill the broker, start it after `away_s`; return the seconds from its first answer until the agent is on."""
        self.proxy.refuse()
        self.cloud.kill("mosquitto")
        wait_for(lambda: not self.connected(), what="the agent is off the link", timeout_s=WAIT_S)
        time.sleep(away_s)
        self.cloud.start("mosquitto")
        wait_for(lambda: answers(self._broker), what="mosquitto answers", timeout_s=WAIT_S)
        began = time.monotonic()
        self.proxy.accept()
        wait_for(self.connected, what="the agent is on the link again", timeout_s=WAIT_S)
        return time.monotonic() - began

    def refresh(self) -> float:
        """Command `inventory.refresh`, wait for its end; return how long until the controller knew it accepted."""
        began, fleet = time.time(), self.cloud.fleet
        id_ = fleet.command(NAME, "inventory.refresh", {})
        wait_for(lambda: fleet.one_command(id_).ended, what="the command has ended", timeout_s=WAIT_S)
        done = fleet.one_command(id_)
        if done.state is not CommandState.SUCCEEDED or (done.data or {}).get("cards") != len(self.node.cards):
            raise RuntimeError(f"inventory.refresh: {done.state}, {done.text}, {done.data}")
        return next(one.at_s for one in done.history if one.state is not CommandState.RECEIVED) - began

    def agent_cpu_s(self) -> float:
        """Return the CPU seconds of the agent and of the programs that it has run."""
        assert self.agent.process is not None
        fields = Path(f"/proc/{self.agent.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")

    def passed(self) -> int:
        """Return the bytes that went between agent and broker until now, both ways."""
        return self.proxy.counted.up_bytes + self.proxy.counted.down_bytes

    def told_bytes(self) -> float:
        """Return what an idle box says by itself in an hour, of the sizes that the controller has from this one."""
        each = {
            TopicKind.INVENTORY: ALL_S,
            TopicKind.HEALTH: ALL_S,
            TopicKind.METRICS: float(MetricsSection().period_s * BATCH),
        }

        def told() -> bool:
            return each.keys() <= self.cloud.fleet.details(NAME).latest.keys()

        wait_for(told, what="the controller has a message of each kind", timeout_s=5 * WAIT_S)
        latest = self.cloud.fleet.details(NAME).latest
        return sum(
            3600 / every_s * (len(json.dumps(latest[kind].body, separators=(",", ":"))) + AROUND_BYTES)
            for kind, every_s in each.items()
        )


def _smi(uuids: Sequence[str]) -> str:
    """Return a stand-in that prints idle cards as nvidia-smi does."""
    rows = [f"{uuid}, {at}, NVIDIA H200, 144384, 560.35.03, 0, 3, 31, 76.20" for at, uuid in enumerate(uuids)]
    return "\n".join(["cat << 'END'", *rows, "END"])


@contextlib.contextmanager
def agent_node(folder: Path, *, cards: int, mib: int, build: Path) -> Iterator[AgentNode]:
    """Run a box with its plugin registered and its agent on the link."""
    with contextlib.ExitStack() as ends:
        agent = ends.enter_context(Agent(folder / "root"))
        run = agent.root / "run/edgegpu"
        made = ends.enter_context(node(folder / "node", cards=cards, mib=mib, build=build, run=run))
        made.kubelet.start()
        if not made.kubelet.complete.wait(WAIT_S):
            raise TimeoutError("the plugin did not register")
        cloud = Cloud(folder / "cloud")
        ends.callback(cloud.close)
        broker = free_port()
        asked = _move_broker(folder / "cloud/broker/mosquitto.conf", broker)
        proxy = ends.enter_context(FaultProxy(broker, port=asked))
        ends.callback(agent.kill)  # before the proxy, which waits for nobody
        whole = AgentNode(cloud=cloud, agent=agent, node=made, proxy=proxy, broker=broker)
        whole.start()
        yield whole


def _move_broker(conf: Path, port: int) -> int:
    """Let mosquitto listen for boxes at another port; return the one that boxes are told."""
    text = conf.read_text()
    found = re.search(r"^listener (\d+)", text, re.MULTILINE)
    assert found is not None
    conf.write_text(text.replace(found[0], f"listener {port}", 1))
    return int(found[1])
