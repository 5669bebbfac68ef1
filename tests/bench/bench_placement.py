"""Measures the plugin process: an admission's cost, registration, memory, idle CPU; and the extender's filter."""

import random
import tempfile
import time
from pathlib import Path

from bench.bench_extender import run as run_filter
from bench.figures import Figure, figure
from bench.nodekit import Node, node

from edgegpu_core.deviceid import Kind

CARDS, MIB = 8, 141 * 1024
UNITS = MIB // 256
ADMISSIONS, RESTARTS, IDLE_S = 300, 60, 20.0
SETTLE_S = 35.0
"""After a registration the Node is looked at more often for half a minute."""

BETWEEN_S = 0.05
"""A binding reaches a kubelet, and us, after some time; admissions do not come faster."""

AT_ONCE = 100
"""Pods on the node when the next ones are admitted; then they are cleared and it begins anew."""


def run(build: Path) -> list[Figure]:
    """Measure all; takes about two and a half minutes."""
    with (
        tempfile.TemporaryDirectory(prefix="eg-") as folder,
        node(Path(folder), cards=CARDS, mib=MIB, build=build) as made,
    ):
        made.kubelet.start()
        if not made.kubelet.complete.wait(30):
            raise TimeoutError("the plugin did not register within 30 s")
        figures = [
            figure("admission of one container", _admissions(made), unit="ms", limit=10.0),
            figure("kubelet.sock to both first lists", _registrations(made), unit="ms", limit=150.0),
            figure("resident memory", [made.rss_mib()], unit="MiB", limit=70.0),
            figure("idle CPU", [_idle(made)], unit="%", limit=0.5),
        ]
    return [*figures, run_filter(200)]


def _admissions(made: Node) -> list[float]:
    """Admit pods of many sizes to cards that fill up; milliseconds each."""
    order = random.Random(7)
    took = []
    for number in range(ADMISSIONS):
        if number % AT_ONCE == 0:
            made.clear()
        card = made.cards[number % CARDS].uuid
        amounts = {Kind.MEMORY: order.randint(1, 40), Kind.CORE: order.randint(1, 7)}
        uid = made.bind(number, amounts, card)
        kinds = list(Kind)
        order.shuffle(kinds)
        time.sleep(BETWEEN_S)
        took.append(made.kubelet.admit(uid, amounts, kinds) * 1000)
    return took


def _registrations(made: Node) -> list[float]:
    took = []
    for _ in range(RESTARTS):
        made.kubelet.stop()
        made.kubelet.start()
        if not made.kubelet.complete.wait(30):
            raise TimeoutError("the plugin did not register again within 30 s")
        took.append(max(made.kubelet.first_list_s.values()) * 1000)
    return took


def _idle(made: Node) -> float:
    time.sleep(SETTLE_S)
    began, cpu = time.monotonic(), made.cpu_s()
    time.sleep(IDLE_S)
    return 100 * (made.cpu_s() - cpu) / (time.monotonic() - began)
