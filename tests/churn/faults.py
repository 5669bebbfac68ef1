"""What goes wrong, one thing after the other with a pause between; cards fail beside that and return."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from churn.api import NAMESPACE, AwayError
from churn.bed import RECOVER_S, Bed
from churn.watcher import RETURN_S
from churn.windows import Windows
from churn.worker import Worker
from lab.labkit import LabError, wait_until

from edgegpu_sim.driver import SimDriver, SimDriverError

PAUSE_S = (3.0, 12.0)
_FATAL_XID = 109
"""One after which a card is offered again when it has been quiet."""
_AWAY_S = (3.0, 7.0)
_LOST_S = (4.0, 15.0)
_STOPPED_S = (2.0, 9.0)
_DEAD_S = (0.0, 2.5)

KINDS = (
    "plugin_kill",
    "plugin_stop",
    "extender_kill",
    "kubelet_kill",
    "kubelet_restart",
    "containerd_kill",
    "card_xid",
    "card_lost",
    "api_away",
)
"""Each kind of fault; a run of some length must have had all."""


class Faults(Worker):
    """Injects faults until `stop`; `owing` says which kinds never came."""

    def __init__(
        self,
        bed: Bed,
        windows: Windows,
        *,
        seed: str,
        part_s: float,
        refusal_owed: Callable[[], bool],
        only: tuple[str, ...] = (),
    ) -> None:
        """Prepare the first deck.

        Args:
            bed: what is disturbed.
            windows: where each fault is noted.
            seed: of all that is drawn.
            part_s: after so long the extender gets a process of its own, so that it can be killed by itself.
            refusal_owed: whether a pod has still to fail by a kill: the plugin is stopped in the middle of an admission
                then, and killed.
            only: these kinds alone, for a short run.
        """
        super().__init__("faults")
        self._bed, self._windows, self._rng = bed, windows, random.Random(seed)
        self.kinds = only or KINDS
        self._refusal_owed = refusal_owed
        self._part_at_s = time.monotonic() + part_s
        self._deck: list[str] = []
        self._returns: list[tuple[float, Callable[[], None]]] = []
        self.errors: list[str] = []
        """What did not come back by itself, which is the bed's fault or the product's, and in any case no success."""

    @property
    def owing(self) -> set[str]:
        """Which kinds have not come yet."""
        return set(self.kinds) - self._windows.counted().keys()

    def _run(self) -> None:
        while not self._pause(self._rng.uniform(*PAUSE_S)):
            try:
                self._next()
            except (LabError, SimDriverError, OSError) as error:
                self.errors.append(f"{type(error).__name__}: {error}"[:500])
        for _, back in self._returns:
            back()

    def _pause(self, seconds: float) -> bool:
        """Wait, and bring cards back meanwhile; returns whether the end has come."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            if self._end.wait(min(left_s, 0.3)):
                return True
            self._bring_back()
        return self._end.is_set()

    def _bring_back(self) -> None:
        at_s = time.monotonic()
        for due in [due for due in self._returns if due[0] <= at_s]:
            self._returns.remove(due)
            due[1]()

    def _next(self) -> None:
        if not self._bed.apart and time.monotonic() >= self._part_at_s:
            with self._windows.during("plugin_kill"):
                self._bed.part()
                self._wait_offered()
            self._deck = [kind for kind in ("plugin_stop", "extender_kill") if kind in self.kinds]
        if not self._deck:
            kinds = [kind for kind in self.kinds if self._bed.apart or kind != "extender_kill"]
            self._deck = self._rng.sample(kinds, len(kinds))
            if self._bed.apart and self._refusal_owed() and "plugin_stop" in kinds:
                self._deck.append("plugin_stop")
        getattr(self, f"_{self._deck.pop()}")()

    def _wait_offered(self) -> None:
        self._bed.wait_offered(self._windows.out(RETURN_S))

    # --- processes

    def _plugin_kill(self) -> None:
        with self._windows.during("plugin_kill"):
            self._bed.kill_plugin()
            self._end.wait(self._rng.uniform(*_DEAD_S))
            self._bed.start_plugin()
            self._wait_offered()

    def _plugin_stop(self) -> None:
        """Freeze the plugin; then it goes on, or is killed, as systemd does with one that feeds no watchdog."""
        with self._windows.during("plugin_stop"):
            self._bed.signal_plugin(signal.SIGSTOP)
            kill = self._rng.random() < 0.5
            if self._bed.apart and self._refusal_owed():
                kill = True
                self._wait_bound(max(_STOPPED_S))
            else:
                self._end.wait(self._rng.uniform(*_STOPPED_S))
            if not kill:
                self._bed.signal_plugin(signal.SIGCONT)
            else:
                self._bed.kill_plugin()
                self._bed.start_plugin()
            self._wait_offered()

    def _wait_bound(self, most_s: float) -> None:
        """Wait until a pod is bound that kubelet has not admitted; the frozen plugin keeps it waiting."""
        end_s = time.monotonic() + most_s
        while time.monotonic() < end_s and not self._end.wait(0.3):
            with suppress(AwayError):
                pods = self._bed.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
                if any("nodeName" in pod["spec"] and "startTime" not in pod["status"] for pod in pods):
                    return

    def _extender_kill(self) -> None:
        with self._windows.during("extender_kill"):
            self._bed.kill_extender()
            self._end.wait(self._rng.uniform(*_DEAD_S))
            self._bed.start_extender()

    def _kubelet_kill(self) -> None:
        with self._windows.during("kubelet_kill"):
            self._bed.server.kill()
            self._back()

    def _kubelet_restart(self) -> None:
        with self._windows.during("kubelet_restart"):
            self._bed.server.restart()
            self._wait_offered()

    def _containerd_kill(self) -> None:
        with self._windows.during("containerd_kill"):
            os.kill(containerd_of(self._bed.server.pid), signal.SIGKILL)
            self._back()

    def _back(self) -> None:
        self._bed.server.ready()
        self._wait_offered()

    # --- the API server

    def _api_away(self) -> None:
        """Nobody on the node reaches the API server, nor the scheduler the extender: all of it goes over loopback."""
        with self._windows.during("api_away"):
            self._bed.server.exec("ip", "link", "set", "lo", "down")
            try:
                self._end.wait(self._rng.uniform(*_AWAY_S))
            finally:
                self._bed.server.exec("ip", "link", "set", "lo", "up")
            wait_until(self._answers, what="the API server answers", every_s=0.3)

    def _answers(self) -> bool:
        return bool(self._bed.cluster.get("node", self._bed.node.name))

    # --- cards

    def _card_xid(self) -> None:
        card = self._card()
        if card:
            number = self._windows.begin("card_xid", card)
            self._driver().xid(card, _FATAL_XID)
            self._returns.append((time.monotonic() + RECOVER_S, lambda: self._windows.end(number)))

    def _card_lost(self) -> None:
        card = self._card()
        if card:
            number = self._windows.begin("card_lost", card)
            self._driver().vanish(card)

            def back() -> None:
                with suppress(SimDriverError):
                    self._driver().restore(card)
                self._windows.end(number)

            self._returns.append((time.monotonic() + self._rng.uniform(*_LOST_S), back))

    def _card(self) -> str:
        """Return a card that is in order; two stay so."""
        return "" if self._windows.out(0.0) else self._rng.choice(sorted(self._bed.totals))

    def _driver(self) -> SimDriver:
        driver = self._bed.node.driver
        if driver is None:
            raise LabError("the node has no simulated driver")
        return driver


def containerd_of(k3s: int) -> int:
    """Return the process id of the containerd that k3s has started.

    Raises:
        LabError: there is none.
    """
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = path.read_text().rpartition(")")
        except OSError:  # it has just ended
            continue
        if head.endswith("(containerd") and int(tail.split()[1]) == k3s:
            return int(path.parent.name)
    raise LabError(f"k3s, process {k3s}, has no containerd")
