"""App limits in the agent: the settler with its account and lease, and the checks of settled items after changes."""

import logging
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from edgegpu_agent.app_limits.drift_check import DriftResult
from edgegpu_agent.app_limits.lease import DURATION_S, NAME, NAMESPACE, LeaseKeeper
from edgegpu_agent.app_limits.live import PluginLimits
from edgegpu_agent.app_limits.settler import AppLimitsSettler
from edgegpu_agent.kube.apps import Apps
from edgegpu_agent.kube.client import AgentClient
from edgegpu_agent.kube.leases import Leases
from edgegpu_agent.kube.watches import App, AppWatch, Watches
from edgegpu_agent.ports import ActionStopped, ClusterIdentity, DriftChecks, SettledItem
from edgegpu_base.kube import KubeconfigError, KubeError, load_kubeconfig
from edgegpu_base.process.tasks import Task
from edgegpu_core.model import ResourceModel
from edgegpu_installer.layout import Layout
from edgegpu_plugin.config import schema
from edgegpu_plugin.errors import ConfigError
from edgegpu_sync.messages.spec import AppLimits as AppLimitsItem
from edgegpu_sync.messages.spec import AskedItem
from edgegpu_sync.messages.uplink import ItemState as State

_LOG = logging.getLogger(__name__)

LOOK_S = 60.0
"""Seconds between checks of an item without a watch: the account may not watch, or the API server is away."""

_APART_S, _AT_ONCE = 20.0, 3
"""The seconds between checks of an item that changes again and again, after so many checks at once."""

_LIVE_APART_S = 2.0
"""The same for live limits: until a new pod's container is checked, it may use all that it holds."""

_BUSY_S = 1.0
_ASK_S = 1.0
"""How long after a failure it is asked again which cluster this is; twice as long each time, `look_s` at most.

Until it is known the box is asked for no limits. An agent that starts just before k3s does, as an install starts both,
takes its lease and is refused the next moment."""
_NEVER = float("inf")
_STANDING = frozenset({State.APPLIED, State.PENDING})


@dataclass(slots=True)
class _Kept:
    """What is remembered of an item's checks; times are monotonic seconds."""

    since_s: float
    """When the item was checked last, or seen first."""
    saw: Hashable = None
    """The state of the item at that time."""
    not_before_s: float = 0.0
    paid_s: float = 0.0
    """Each check moves this 20 s on (2 s for live limits); the next one waits while it is more than three of them
    ahead."""
    interest: AppWatch | None = None
    """What to watch for the item; None before its first check, which finds its kind: a watch costs a thread."""
    regularly: bool = False
    """Whether it is checked after a while though no watch shows a change."""


class AppLimitsService:
    """App limits on a box that has the account for them; the worker gets `settler`, and the agent runs `tasks`."""

    def __init__(
        self, client: AgentClient, layout: Layout, *, node: str, account: Path | None = None, look_s: float = LOOK_S
    ) -> None:
        """Build the service.

        Args:
            client: a client with the account for app limits.
            account: the account's kubeconfig; while that file is missing, app limits are no capability of this box.
            layout: the paths of this box, for the plugin's configuration.
            node: this agent's name among those of the cluster.
            look_s: seconds between two checks of an item without a watch.
        """
        self._layout, self._look_s, self._account, self._node = layout, look_s, account, node
        self._apps = Apps(client)
        leases = Leases(client, namespace=NAMESPACE, name=NAME, duration_s=DURATION_S)
        self._lease = LeaseKeeper(leases, me=node, told=self._lease_news)
        self.settler = AppLimitsSettler(
            self._apps,
            self._lease,
            model=self._model,
            installed=lambda: layout.has_sharing,
            port=PluginLimits(layout.plugin_socket),
        )
        self._stopping, self._wake = threading.Event(), threading.Event()
        self._watches = Watches(client, self._wake.set)
        self._kept: dict[str, _Kept] = {}
        self._uid, self._uid_known = "", False
        self._ask_s = 0.0
        self._said: dict[str, str] = {}

    def cluster(self) -> ClusterIdentity:
        """Return the cluster as far as it is known; only the task asks the API server."""
        return ClusterIdentity(self._uid, self._lease.holds())

    @property
    def has_account(self) -> bool:
        """Whether the account exists: an uninstall that keeps the agent removes it."""
        return self._account is None or self._account.exists()

    def tasks(self, checks: DriftChecks) -> list[Task]:
        """Return all tasks by name."""
        return [
            Task("lease", self._lease.run, self._stop_lease),
            Task("limits", lambda: self._run(checks), self._stop_looks),
        ]

    @property
    def trouble(self) -> str:
        """The problem that a person must fix; empty when there is none."""
        if not (denied := self._watches.denied):
            return ""
        return (
            f"the account for app limits may not watch, so settled limits are looked at each {self._look_s:.0f} s: "
            f"run `edgegpu install` on this box once: {denied}"
        )

    def _stop_lease(self) -> None:
        self.settler.stop()
        self._lease.stop()

    def _stop_looks(self) -> None:
        self._stopping.set()
        self._wake.set()

    def _lease_news(self) -> None:
        self._uid_known = False  # the box may be in another cluster now: k3s was set up anew
        self._ask_s = 0.0  # the API server answers: what it refuses at its start it does not refuse for long
        self._wake.set()

    def _run(self, checks: DriftChecks) -> None:
        checks.on_change(self._wake.set)
        wait_s: float | None = 0.0
        while not self._stopping.is_set():
            self._wake.wait(wait_s)
            self._wake.clear()
            try:
                wait_s = self._round(checks)
            except ActionStopped:
                self._stopping.wait()
        self._watches.follow({})

    def _round(self, checks: DriftChecks) -> float | None:
        """Check the items that are due; return the seconds until the next is due, None: wait for a wake-up."""
        self._learn_cluster()
        holder = self._lease.holder == self._node  # watches go on while the API server is away: nobody else takes over
        items = [one for one in checks.settled() if isinstance(one.asked.item, AppLimitsItem)] if holder else []
        now_s = time.monotonic()
        self._kept = {one.asked.name: self._kept.get(one.asked.name) or _Kept(now_s) for one in items}
        self._follow(items)
        self._warn()
        dues = [] if self._uid_known else [self._ask_s]
        if self._lease.holds():
            for one in items:
                if self._due_s(one) <= 0:
                    self._look(one, checks)
            self._follow(items)
            dues += [self._due_s(one) for one in items]
        return min((max(0.0, due) for due in dues if due != _NEVER), default=None)

    def _follow(self, items: list[SettledItem]) -> None:
        apps: dict[App, AppWatch] = {}
        for one in items:
            interest = self._kept[one.asked.name].interest
            if interest is not None and one.settlement.state in _STANDING:
                other = apps.get(_app(one), AppWatch())  # of another container of the same app
                apps[_app(one)] = AppWatch(interest.kinds & other.kinds, interest.pods or other.pods)
        self._watches.follow(apps)

    def _warn(self) -> None:
        if self.trouble:
            self._say("watch", self.trouble)
        elif self._said.pop("watch", ""):
            _LOG.info("the account for app limits may watch now")

    def _state(self, one: SettledItem) -> Hashable:
        """Return a value that differs once an item must be checked again; None while no watch would show that."""
        key = (one.asked.key, one.settlement.state)
        if one.settlement.state not in _STANDING:
            return key
        interest = self._kept[one.asked.name].interest
        waits = one.settlement.state is State.PENDING or (interest is not None and bool(interest.pods))
        shown = self._watches.state(_app(one), waits=waits)
        return None if shown is None else (key, shown)

    def _due_s(self, one: SettledItem) -> float:
        """Return in how many seconds an item must be checked."""
        kept, state, now_s = self._kept[one.asked.name], self._state(one), time.monotonic()
        if state is not None and state == kept.saw:
            return max(0.0, kept.since_s + self._look_s - now_s) if kept.regularly else _NEVER
        due_s = kept.since_s + self._look_s if state is None and kept.interest is not None else now_s
        return max(due_s, kept.not_before_s) - now_s

    def _learn_cluster(self) -> None:
        if self._uid_known:
            return
        try:
            self._uid_known = True  # set before the question, since the lease may change meanwhile
            self._uid = self._apps.cluster_uid()
            self._ask_s = 0.0
        except KubeError as error:
            self._uid_known = False
            self._ask_s = min(max(2 * self._ask_s, _ASK_S), self._look_s)
            self._say("cluster", f"cannot tell which cluster this is: {error}")

    def _look(self, one: SettledItem, checks: DriftChecks) -> None:
        name, kept = one.asked.name, self._kept[one.asked.name]
        state, now_s = self._state(one), time.monotonic()
        try:
            sight = self.settler.look(one.asked, one.settlement, one.notes)
        except KubeError as error:
            self._say(name, f"cannot look at {name}: {error}")
            kept.since_s, kept.not_before_s = now_s, now_s + self._look_s
            return
        self._said.pop(name, None)
        if sight == DriftResult():  # an item is being settled
            kept.not_before_s = now_s + min(_BUSY_S, self._look_s)
            return
        kept.saw, kept.since_s, kept.interest, kept.regularly = state, now_s, sight.interest, sight.regularly
        apart_s = _LIVE_APART_S if sight.regularly else _APART_S
        if state is not None:
            kept.paid_s = max(now_s, kept.paid_s) + apart_s
        kept.not_before_s = now_s + self._look_s if sight.set_again else kept.paid_s - _AT_ONCE * apart_s
        _tell(one.asked, sight, checks)

    def _say(self, about: str, words: str) -> None:
        if self._said.get(about) != words:
            self._said[about] = words
            _LOG.warning("%s", words)

    def _model(self) -> ResourceModel:
        try:
            return schema.load(self._layout.plugin_yaml).model()
        except ConfigError:
            return ResourceModel()


def _app(one: SettledItem) -> App:
    limits = one.asked.item
    assert isinstance(limits, AppLimitsItem)  # noqa: S101  (no other items are checked)
    return limits.namespace, limits.app


def _tell(asked: AskedItem, sight: DriftResult, checks: DriftChecks) -> None:
    if sight.landed is not None:
        checks.landed(asked.name, asked.key, sight.landed)
    if sight.conditions is not None:
        checks.noticed(asked.name, sight.conditions)
    if sight.again:
        checks.again(asked.name)


def app_limits(kubeconfig: Path, layout: Layout, *, node: str) -> AppLimitsService | None:
    """Return the service, or None where this box has no account for it: then app limits are no capability."""
    if not kubeconfig.exists():
        return None
    try:
        return AppLimitsService(AgentClient(load_kubeconfig(kubeconfig)), layout, node=node, account=kubeconfig)
    except (KubeconfigError, KubeError) as error:
        _LOG.error("no app limits here: %s", error)
        return None
