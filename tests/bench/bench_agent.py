"""Measures the agent's process on the link: memory, idle CPU, way back to a broker, commands, bytes when idle."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.agentnode import agent_node
from bench.figures import Figure, figure

if TYPE_CHECKING:
    from bench.agentnode import AgentNode

CARDS, MIB = 8, 141 * 1024
COMMANDS, BREAKS, APPS = 40, 15, 5
IDLE_S, LOOK_S = 60.0, 2.0
HOUR_S = 3600.0
SETTLE_S = 35.0
"""Half a minute after it began its link the agent hands back what only the start needed."""

LONGEST_AWAY_S, LONGEST_PAUSE_S = 3.0, 0.25
"""Breaks end at any point of the wait between two tries, commands come at any point between two looks."""


def run(build: Path) -> list[Figure]:
    """Measure all; takes some two and a half minutes."""
    with (
        tempfile.TemporaryDirectory(prefix="eg-") as folder,
        agent_node(Path(folder), cards=CARDS, mib=MIB, build=build) as made,
    ):
        began, order = time.monotonic(), random.Random(5)
        made.settle(APPS)
        accepted = _commands(made, order)
        time.sleep(max(0.0, SETTLE_S - (time.monotonic() - began)))
        idle = _idle(made)
        back, after = _breaks(made, order)
    return [
        *idle,
        figure("agent resident, after breaks of the link", after, unit="MiB", limit=55.0),
        figure("reconnect after the broker is back (p95)", back, unit="s", limit=5.0, share=0.95),
        figure("command accepted (p95)", accepted, unit="s", limit=1.0, share=0.95),
    ]


def _commands(made: AgentNode, order: random.Random) -> list[float]:
    took = []
    for _ in range(COMMANDS):
        time.sleep(order.uniform(0, LONGEST_PAUSE_S))
        took.append(made.refresh())
    return took


def _breaks(made: AgentNode, order: random.Random) -> tuple[list[float], list[float]]:
    """Take the broker away again and again; return the seconds of each way back, and the memory after each."""
    back, after = [], []
    for _ in range(BREAKS):
        back.append(made.comes_back(away_s=order.uniform(0, LONGEST_AWAY_S)))
        after.append(made.agent.rss_mib)
    return back, after


def _idle(made: AgentNode) -> list[Figure]:
    """Look at both processes for a minute in which nobody asks for anything."""
    agent, both = [], []
    began, cpu, passed = time.monotonic(), made.agent_cpu_s(), made.passed()
    reads, writes = made.node.calls_of("agent")
    while time.monotonic() < began + IDLE_S:
        agent.append(made.agent.rss_mib)
        both.append(agent[-1] + made.node.rss_mib())
        time.sleep(LOOK_S)
    spent = time.monotonic() - began
    read, written = (now - before for now, before in zip(made.node.calls_of("agent"), (reads, writes), strict=True))
    kept_up = (made.passed() - passed) * HOUR_S / spent
    return [
        figure("agent resident, idle", agent, unit="MiB", limit=60.0),
        figure("agent and plugin resident, idle", both, unit="MiB", limit=130.0),
        figure("agent idle CPU", [100 * (made.agent_cpu_s() - cpu) / spent], unit="%", limit=0.5),
        figure("agent idle, API reads an hour, of 5 settled limits", [read * HOUR_S / spent], unit="", limit=10.0),
        figure("agent idle, API writes an hour: its lease", [written * HOUR_S / spent], unit="", limit=425.0),
        figure("agent idle, bytes an hour in TLS", [(kept_up + made.told_bytes()) / 1000], unit="kB", limit=100.0),
    ]
