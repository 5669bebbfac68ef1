"""Measures the plugin: admissions, registration, memory, idle CPU, requests; and the extender's filter and bind."""

import random
import tempfile
import time
from pathlib import Path

from bench.bench_bind import run as run_bind
from bench.bench_extender import run as run_filter
from bench.figures import Figure, figure
from bench.nodekit import Node, node

from edgegpu_core.deviceid import DeviceKind

CARDS, MIB = 8, 141 * 1024
UNITS = MIB // 256
SMALL_CARDS, SMALL_MIB = 2, 24 * 1024
ADMISSIONS, RESTARTS, IDLE_S = 300, 60, 60.0
SETTLE_S = 35.0
"""After a registration the Node is looked at more often for half a minute."""

BETWEEN_S = 0.05
"""A binding reaches a kubelet, and us, after some time; admissions do not come faster."""

AT_ONCE = 100
"""Pods on the node when the next ones are admitted; then they are cleared and it begins anew."""


def run(build: Path) -> list[Figure]:
    """Measure all; takes about four minutes."""
    with (
        tempfile.TemporaryDirectory(prefix="eg-") as folder,
        node(Path(folder) / "small", cards=SMALL_CARDS, mib=SMALL_MIB, build=build) as small,
        node(Path(folder) / "large", cards=CARDS, mib=MIB, build=build) as large,
    ):
        for one in (small, large):
            _started(one)
        before = large.requests()
        figures = [
            figure("admission of one container", _admissions(large), unit="ms", limit=7.0),
            figure("API requests of one admitted pod", [(large.requests() - before) / ADMISSIONS], unit="", limit=4.0),
            figure("kubelet.sock to both first lists", _registrations(large), unit="ms", limit=150.0),
            figure("resident memory, right after registrations", [large.rss_mib()], unit="MiB", limit=70.0),
        ]
        # Only now: beside the admissions a third plugin would cost them time.
        with node(Path(folder) / "server", cards=SMALL_CARDS, mib=SMALL_MIB, build=build, role="server") as server:
            _started(server)
            figures += _idle(small, server)
    return [*figures, *run_filter(200), *run_bind(200)]


def _started(made: Node) -> None:
    made.kubelet.start()
    if not made.kubelet.complete.wait(30):
        raise TimeoutError("the plugin did not register within 30 s")


def _admissions(made: Node) -> list[float]:
    """Admit pods of many sizes to cards that fill up; milliseconds each."""
    order = random.Random(7)
    took = []
    for number in range(ADMISSIONS):
        if number % AT_ONCE == 0:
            made.clear()
        card = made.cards[number % CARDS].uuid
        amounts = {DeviceKind.MEMORY: order.randint(1, 40), DeviceKind.CORE: order.randint(1, 7)}
        uid = made.bind(number, amounts, card)
        kinds = list(DeviceKind)
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


def _idle(small: Node, server: Node) -> list[Figure]:
    """Look at processes of which nobody asks anything; they have registered some time before."""
    time.sleep(SETTLE_S)
    began, cpu, requests = time.monotonic(), small.cpu_s(), [one.requests() for one in (small, server)]
    time.sleep(IDLE_S)
    spent_s = time.monotonic() - began
    agents, servers = (
        (one.requests() - before) * 3600 / spent_s for one, before in zip((small, server), requests, strict=True)
    )
    return [
        figure("resident memory, two cards, idle", [small.rss_mib()], unit="MiB", limit=55.0),
        figure("idle CPU, two cards", [100 * (small.cpu_s() - cpu) / spent_s], unit="%", limit=0.1),
        figure("API requests of an idle hour", [agents], unit="", limit=120.0),
        figure("API requests of a server's idle hour", [servers], unit="", limit=120.0),
    ]
