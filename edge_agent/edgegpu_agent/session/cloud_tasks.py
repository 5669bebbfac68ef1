"""The side of the agent that faces the cloud: identity, telemetry, and the link for as long as the box is enrolled."""

import logging
import random
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from edgegpu_base.process.tasks import Task

from edgegpu_agent import settings
from edgegpu_agent.identity.clock_floor import ClockFloor
from edgegpu_agent.identity.enrolment_client import CloudClient
from edgegpu_agent.identity.errors import IdentityError
from edgegpu_agent.identity.identity_files import BoxIdentity, CloudAddress
from edgegpu_agent.identity.status import IdentityStatus, Stand
from edgegpu_agent.identity.status_file import tell
from edgegpu_agent.identity.task import IdentityKeeper, IdentitySettings
from edgegpu_agent.journal.errors import BoxJournalError
from edgegpu_agent.session.capabilities import abilities
from edgegpu_agent.session.session import BoxLink, BoxPaths
from edgegpu_agent.session.watchdog import Vitals
from edgegpu_agent.settings import AgentConfig
from edgegpu_agent.telemetry.machine import MachineReader
from edgegpu_agent.telemetry.programs import Programs
from edgegpu_agent.telemetry.source import TelemetryReader
from edgegpu_agent.worker.ports import ClusterIdentity
from edgegpu_agent.worker.steps import AtStep
from edgegpu_installer.layout import Layout
from edgegpu_plugin.errors import ConfigError

if TYPE_CHECKING:
    from edgegpu_agent.app_limits.task import AppLimitsService

_LOG = logging.getLogger(__name__)

IDENTITY, JOURNALS = "identity", "agent"
"""Folders in the state folder."""

_AGAIN_S = 30.0

STANDING = "agent-identity.json"
"""In the run folder: how the identity stands, for the command line."""


def cloud_tasks(
    path: Path, layout: Layout, *, edgegpu: str, vitals: Vitals, at_step: AtStep | None = None
) -> list[Task]:
    """Return the tasks of a box that belongs to a cloud; none, and the reason said, where the file cannot be used.

    Args:
        path: agent.yaml.
        layout: where things are.
        edgegpu: the command line, which installs and examines.
        vitals: where loops are watched.
        at_step: told each step of a command, where somebody looks on.
    """
    try:
        config = settings.load(path)
    except ConfigError as error:
        for problem in error.problems:
            _LOG.error("%s", problem)
        text = f"cannot use {path}: {'; '.join(error.problems)}"
        remedy = "put the file right: the agent notices it"
        tell(layout.run / STANDING, IdentityStatus(stand=Stand.BROKEN, text=text, remedy=remedy))
        return []
    return CloudSupervisor(config, layout, edgegpu=edgegpu, vitals=vitals, at_step=at_step).tasks()


class CloudSupervisor:
    """Builds the link when there is an identity, and anew when it is another one."""

    def __init__(
        self, config: AgentConfig, layout: Layout, *, edgegpu: str, vitals: Vitals, at_step: AtStep | None = None
    ) -> None:
        """Put it together; nothing runs yet."""
        self._layout, self._config, self._edgegpu, self._vitals = layout, config, edgegpu, vitals
        self._at_step = at_step
        programs = Programs()
        self._machine = MachineReader(root=layout.root, programs=programs, release=_release())
        node = self._node = socket.gethostname().lower()
        self._telemetry = TelemetryReader(
            socket=layout.plugin_socket,
            machine=self._machine,
            programs=programs,
            node=node,
            period_s=config.metrics.period_s,
        )
        self._clock = ClockFloor(layout.state / "clock.json")
        self._identity = self._identity_keeper(node)
        self._changed = threading.Event()
        self._stopping = False
        self._box: BoxLink | None = None

    def _identity_keeper(self, node: str) -> IdentityKeeper:
        layout, cloud = self._layout, self._config.cloud

        def client(ca_pem: bytes) -> CloudClient:
            return CloudClient(
                url=cloud.url, ca_pem=ca_pem, check_dates=lambda: self._clock.is_right, proxy=cloud.proxy
            )

        return IdentityKeeper(
            IdentitySettings(
                folder=layout.state / IDENTITY,
                token=layout.cloud_token,
                standing=layout.run / STANDING,
                root=layout.root,
                cloud=CloudAddress(url=cloud.url, ca_sha256=cloud.ca_sha256),
                host=node,
                agent=self._machine.agent,
            ),
            clock=self._clock,
            client=client,
            rng=random.Random(),  # noqa: S311  (jitter)
            changed=self._other_identity,
            renewed=self._new_certificate,
        )

    def tasks(self) -> list[Task]:
        """Return all tasks by name; those of an enrolled box run within `cloud`."""
        return [
            Task("identity", self._identity.run, self._identity.stop),
            Task("telemetry", self._telemetry.run, self._telemetry.stop),
            Task("cloud", self.run, self.stop),
        ]

    def run(self) -> None:
        """Hold the link of whoever this box is, until `stop`.

        Raises:
            Exception: what a task of the link failed with.
        """
        wait_s: float | None = None
        while not self._stopping:
            self._changed.wait(wait_s)
            self._changed.clear()
            looked, identity = self._identity.looked, self._identity.identity
            wait_s = None
            if identity is not None and not self._stopping:
                wait_s = self._serve(identity)
            elif looked:
                self._vitals.begun()  # a box that is not enrolled, or not yet, is ready to be

    def _serve(self, identity: BoxIdentity) -> float | None:
        """Hold the link; return after how many seconds it is tried again where it could not be begun."""
        try:
            self._box = box = self._build(identity)
        except (BoxJournalError, IdentityError) as error:
            _LOG.error("not on the link: %s", error)
            self._identity.trouble(f"not on the link: {error}")
            self._vitals.begun()  # it says why it has no worker; to be ended for it would help nobody
            return _AGAIN_S
        self._identity.trouble("")
        if self._stopping or self._identity.identity != identity:
            box.stop()
        box.run()
        self._box = None
        return None

    def _build(self, identity: BoxIdentity) -> BoxLink:
        limits = self._app_limits()
        self._telemetry.know_cluster(limits.cluster if limits is not None else ClusterIdentity)
        return BoxLink(
            identity,
            instance=self._identity.instance,
            abilities=abilities(
                identity,
                layout=self._layout,
                edgegpu=self._edgegpu,
                telemetry=self._telemetry,
                keeper=self._identity,
                limits=limits,
                max_mib=self._config.uploads.max_mib,
                proxy=self._config.cloud.proxy,
            ),
            places=BoxPaths(
                journals=self._layout.state / JOURNALS,
                run=self._layout.run,
                proc=self._layout.at("/proc"),
                tx=self._layout.tx,
            ),
            clock=self._clock,
            vitals=self._vitals,
            standing=lambda: self._identity.standing,
            at_step=self._at_step,
        )

    def _app_limits(self) -> "AppLimitsService | None":
        """Return what settles app limits where this box has the account for it; else it is not loaded either."""
        kubeconfig = self._layout.at(self._config.limits.kubeconfig)
        if not kubeconfig.exists():
            return None
        from edgegpu_agent.app_limits.task import app_limits  # noqa: PLC0415  (two MiB)

        return app_limits(kubeconfig, self._layout, node=self._node)

    def stop(self) -> None:
        """Let `run` end."""
        self._stopping = True
        self._other_identity()

    def _new_certificate(self) -> None:
        """Where the old one had ended, the link waits minutes for its next try."""
        box = self._box
        if box is not None:
            box.link.wake()

    def _other_identity(self) -> None:
        self._changed.set()
        box = self._box
        if box is not None:
            box.stop()


def _release() -> Path:
    """Return the folder of the environment that this module is of: VERSION is in it."""
    return Path(__file__).resolve().parents[3]
