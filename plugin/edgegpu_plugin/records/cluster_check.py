"""Detection of a kubelet that begins anew: k3s was removed and installed again, perhaps without the extender."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

_LOG = logging.getLogger(__name__)

MARK = "unknown-cluster"
"""The file in the state folder that is there while the cluster is unknown, over restarts of this process too."""


UNKNOWN = (
    "k3s was removed and installed again, and its API server has not taken this node's account: "
    "no new GPU pod is taken until `sudo edgegpu install` has run"
)


class ClusterCheck:
    """Whether this node may be in another cluster than the one that edgegpu was installed in.

    kubelet keeps its checkpoint over its restarts, and k3s's own uninstall removes it. A kubelet without one on a node
    that has run before is of a new k3s, whose scheduler has no extender. The cluster is known again once its API server
    has taken the plugin's account, which a new cluster does not have before `edgegpu install`.

    Who uninstalls k3s ends its containers. Where those of pods that held devices still run, the checkpoint alone was
    lost, and a kubelet that were offered nothing would end them: their pods would not fit on the node any more.
    """

    def __init__(
        self,
        state_folder: Path,
        checkpoint: Path,
        *,
        holders_run: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with what an earlier process of the plugin has found.

        Args:
            state_folder: where that is kept.
            checkpoint: kubelet's file.
            holders_run: returns whether containers of pods that hold devices, or held some, are alive on this machine.
            clock: a monotonic clock in seconds.
        """
        self._mark, self._checkpoint, self._clock = state_folder / MARK, checkpoint, clock
        self._holders_run = holders_run
        self._since_s = clock() if self._mark.exists() else None

    @property
    def is_unknown(self) -> bool:
        """Whether the cluster is not known."""
        return self._since_s is not None

    @property
    def problem(self) -> str:
        """The text that says so; empty while the cluster is known."""
        return UNKNOWN if self.is_unknown else ""

    @property
    def silence(self) -> dict[str, object] | None:
        """Why the API server says nothing of this node, as `Reflector.silence` has it; None while it does."""
        return {"why": UNKNOWN, "heard_at": None} if self.is_unknown else None

    def kubelet_started(self) -> None:
        """Take up a kubelet on a node that has run before."""
        if self._checkpoint.exists():
            return
        if self._holders_run():
            _LOG.warning("kubelet has lost its checkpoint, and containers run on: they keep what they have")
            return
        if self._since_s is None:
            _LOG.warning("kubelet begins anew: k3s was installed again, perhaps without the extender")
        self._since_s = self._clock()
        try:
            self._mark.touch()
        except OSError as error:
            _LOG.warning("cannot write %s: %s", self._mark, error.strerror)

    def heard(self, at_s: float | None) -> None:
        """Take the time of the API server's last data: it has taken the plugin's account."""
        if self._since_s is None or at_s is None or at_s <= self._since_s:
            return
        try:
            self._mark.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("cannot remove %s: %s", self._mark, error.strerror)
            return
        self._since_s = None
