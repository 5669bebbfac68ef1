"""App limits in the agent: the settler with its account and lease, and a look each minute at what it has settled."""

import logging
import threading
import time
from pathlib import Path

from edgegpu_agent.acts.act import ActStop
from edgegpu_agent.daemon.looks import Board, Settled
from edgegpu_agent.daemon.worker.ports import Cluster
from edgegpu_agent.kube import AgentClient, Apps, KubeError, Leases
from edgegpu_agent.limits.lease import DURATION_S, NAME, NAMESPACE, LeaseKeeper
from edgegpu_agent.limits.looking import Sight
from edgegpu_agent.limits.settler import AppLimitsSettler
from edgegpu_core.model import ResourceModel
from edgegpu_installer.layout import Layout
from edgegpu_plugin import config
from edgegpu_plugin.errors import ConfigError
from edgegpu_plugin.kube import KubeconfigError
from edgegpu_plugin.tasks import Task
from edgegpu_sync.spec import Asked

_LOG = logging.getLogger(__name__)

LOOK_S = 60.0
_UID_AGAIN_S = 60.0


class AppLimits:
    """The part of one box that has the account for it; `settler` goes to the worker, `tasks` are run beside it."""

    def __init__(
        self, client: AgentClient, layout: Layout, *, node: str, account: Path | None = None, look_s: float = LOOK_S
    ) -> None:
        """Put it together.

        Args:
            client: of the account for app limits.
            account: the account's kubeconfig; while that is gone, app limits are no capability of this box.
            layout: where the plugin is configured.
            node: this agent's name among those of the cluster.
            look_s: between two looks.
        """
        self._client, self._layout, self._look_s, self._account = client, layout, look_s, account
        self._apps = Apps(client)
        self._lease = LeaseKeeper(Leases(client, namespace=NAMESPACE, name=NAME, duration_s=DURATION_S), me=node)
        self.settler = AppLimitsSettler(self._apps, self._lease, model=self._model, installed=self._installed)
        self._stopping = threading.Event()
        self._uid, self._uid_at_s = "", float("-inf")
        self._said: dict[str, str] = {}

    def cluster(self) -> Cluster:
        """Return the cluster as far as it is known: what asks the API server is the task, never this."""
        return Cluster(self._uid, self._lease.holds())

    @property
    def able(self) -> bool:
        """Whether the account is there: an uninstall that leaves the agent takes it away."""
        return self._account is None or self._account.exists()

    def tasks(self, board: Board) -> list[Task]:
        """Return all tasks by name."""
        return [
            Task("lease", self._lease.run, self._stop_lease),
            Task("limits", lambda: self._looks(board), self._stopping.set),
        ]

    def _stop_lease(self) -> None:
        self.settler.stop()
        self._lease.stop()

    def _looks(self, board: Board) -> None:
        while not self._stopping.wait(min(self._look_s, 1.0 if not self._uid else self._look_s)):
            self._learn_cluster()
            try:
                for one in board.settled():
                    self._look(one, board)
            except ActStop:
                self._stopping.wait()

    def _learn_cluster(self) -> None:
        """The cluster under a box may become another one: k3s set up anew."""
        now = time.monotonic()
        if now - self._uid_at_s < _UID_AGAIN_S:
            return
        try:
            self._uid = self._apps.cluster_uid()
        except KubeError as error:
            self._say("cluster", f"cannot tell which cluster this is: {error}")
        self._uid_at_s = now

    def _look(self, one: Settled, board: Board) -> None:
        name = one.asked.name
        try:
            sight = self.settler.look(one.asked, one.settlement, one.notes)
        except KubeError as error:
            self._say(name, f"cannot look at {name}: {error}")
            return
        self._said.pop(name, None)
        _tell(one.asked, sight, board)

    def _say(self, about: str, words: str) -> None:
        if self._said.get(about) != words:
            self._said[about] = words
            _LOG.warning("%s", words)

    def _model(self) -> ResourceModel:
        try:
            return config.load(self._layout.plugin_yaml).model()
        except ConfigError:
            return ResourceModel()

    def _installed(self) -> bool:
        return self._layout.has_sharing


def _tell(asked: Asked, sight: Sight, board: Board) -> None:
    if sight.landed is not None:
        board.landed(asked.name, asked.key, sight.landed)
    if sight.conditions is not None:
        board.noticed(asked.name, sight.conditions)
    if sight.again:
        board.again(asked.name)


def app_limits(kubeconfig: Path, layout: Layout, *, node: str) -> AppLimits | None:
    """Return the part, or None where this box has no account for it: then it is not among the capabilities."""
    if not kubeconfig.exists():
        return None
    try:
        return AppLimits(AgentClient.of_kubeconfig(kubeconfig), layout, node=node, account=kubeconfig)
    except (KubeconfigError, KubeError) as error:
        _LOG.error("no app limits here: %s", error)
        return None
