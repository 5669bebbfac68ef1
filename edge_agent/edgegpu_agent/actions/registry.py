"""The actions and settlers of a real box."""

import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from edgegpu_agent.actions.bundles import Bundles
from edgegpu_agent.actions.evidence import CheckEvidence
from edgegpu_agent.actions.https import HttpsClient
from edgegpu_agent.actions.idempotent import refresh_inventory, rotate_identity, run_doctor
from edgegpu_agent.actions.logs import CollectLogs
from edgegpu_agent.actions.programs import ActionTimer
from edgegpu_agent.actions.redact import Redactor
from edgegpu_agent.actions.restarts import STEADY_S, NodeReadiness, NodeReady, restart_k3s, restart_plugin
from edgegpu_agent.actions.settlers import InstallerChange, settlers
from edgegpu_agent.actions.transactions import InstallerRunner, is_change_under_way
from edgegpu_agent.actions.units import Units
from edgegpu_agent.actions.upgrade import Upgrade
from edgegpu_agent.ports import Action, Acts, Settlers
from edgegpu_installer.layout import Layout
from edgegpu_installer.transaction.journal import TransactionJournal
from edgegpu_installer.transaction.lock import BEGUN
from edgegpu_sync.ids import op_name

UPGRADES, COLLECTED = "upgrades", "collected"
"""Folders below /var/lib/edgegpu: for bundles that are being downloaded, and for archives of logs."""


def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """What actions and settlers are built from.

    `stop` is set once, when the agent ends. `identity` is the folder with tls.crt, tls.key and cloud-ca.crt. `renew`
    gets a new certificate for a cause. It raises `refusals`, whose text becomes the result's; after those that are
    also in `retried` it is tried again. `refresh_telemetry` reads all telemetry, so that the agent sends its inventory.
    `ready` asks the cluster about this node (None: with kubelet's own certificate). `program` is the command line that
    runs the installer, `env` its environment.
    """

    stop: threading.Event
    identity: Path
    renew: Callable[[str], object] | None = None
    refusals: tuple[type[Exception], ...] = ()
    retried: tuple[type[Exception], ...] = ()
    refresh_telemetry: Callable[[], None] = _nothing
    ready: NodeReady | None = None
    layout: Layout = field(default_factory=Layout)
    program: Sequence[str] = ("/opt/edgegpu/current/bin/edgegpu",)
    proxy: str = ""
    """The proxy for uploads of archives and downloads of bundles; empty: none."""
    most_mib: int = 1_024
    """The limit for an archive of logs, whatever the command asks for."""
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    proc: Path = Path("/proc")
    speed: float = 1.0
    """How fast time runs for actions; more than 1 in tests, which then wait less."""
    steady_s: float = STEADY_S

    @property
    def timer(self) -> ActionTimer:
        """The timer of the actions."""
        return ActionTimer(self.stop, speed=self.speed)

    @property
    def installer(self) -> InstallerRunner:
        """The installer of this box."""
        journal = TransactionJournal(self.layout.tx)
        units = Units(layout=self.layout, timer=self.timer, env=self.env)
        return InstallerRunner(
            journal=journal,
            timer=self.timer,
            begun=self.layout.at(BEGUN),
            program=self.program,
            proc=self.proc,
            env=self.env,
            settles=units.k3s_settles,
        )

    def redactor(self) -> Redactor:
        """Return a redactor that knows the secrets stored on this box now."""
        return Redactor.of_box(self.layout, (self.identity / "tls.key", self.identity / "sign.key"))

    def web(self, *, certificate: bool) -> HttpsClient:
        """Return an HTTPS client that trusts the system's CAs and the cloud's; `certificate`: with this box's own."""
        cert, key = (self.identity / "tls.crt", self.identity / "tls.key") if certificate else (None, None)
        return HttpsClient(timer=self.timer, ca=self.identity / "cloud-ca.crt", cert=cert, key=key, proxy=self.proxy)


def acts(box: ActionContext) -> Acts:
    """Return the actions by op; `identity.rotate` only where there is a `renew`."""
    units = Units(layout=box.layout, timer=box.timer, env=box.env)
    busy = partial(is_change_under_way, box.layout)
    ready = box.ready or NodeReadiness(box.layout)
    found: dict[str, Action] = {
        "k3s.restart": restart_k3s(units, timer=box.timer, ready=ready, busy=busy, steady_s=box.steady_s),
        "plugin.restart": restart_plugin(units, timer=box.timer, busy=busy, steady_s=box.steady_s / 4),
        "inventory.refresh": refresh_inventory(
            box.layout.plugin_socket, timer=box.timer, refresh_telemetry=box.refresh_telemetry
        ),
        "logs.collect": _logs(box, units),
        "doctor.run": run_doctor(box.program, timer=box.timer, env=box.env),
        "evidence.check": CheckEvidence(box.program, box.timer, box.env),
        "agent.upgrade": _upgrade(box),
    }
    if box.renew is not None:
        found["identity.rotate"] = rotate_identity(
            box.renew, timer=box.timer, refusals=box.refusals, retried=box.retried
        )
    return {op_name(name): act for name, act in found.items()}


def _logs(box: ActionContext, units: Units) -> CollectLogs:
    return CollectLogs(
        folder=box.layout.state / COLLECTED,
        web=box.web(certificate=True),
        timer=box.timer,
        program=box.program,
        k3s=lambda: units.k3s().removesuffix(".service"),
        redactor=box.redactor,
        most_mib=box.most_mib,
        env=box.env,
    )


def _upgrade(box: ActionContext) -> Upgrade:
    return Upgrade(
        layout=box.layout,
        installer=box.installer,
        bundles=Bundles(layout=box.layout, timer=box.timer, env=box.env),
        web=box.web(certificate=False),
        folder=box.layout.state / UPGRADES,
    )


def standard_settlers(box: ActionContext) -> Settlers:
    """Return the settlers of all items but app limits."""
    change = InstallerChange(installer=box.installer, fresh=lambda: secrets.token_hex(4))
    return settlers(change, box.layout)
