"""The box's session with its cloud: identity and telemetry, and the link with its worker while the box is enrolled."""

import logging
import random
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgegpu_agent import settings
from edgegpu_agent.identity.clock_floor import ClockFloor
from edgegpu_agent.identity.enrolment_client import CloudClient
from edgegpu_agent.identity.errors import IdentityError
from edgegpu_agent.identity.identity_files import BoxIdentity, CloudAddress
from edgegpu_agent.identity.status import STATUS_FILE, EnrolmentState, IdentityStatus, write_status
from edgegpu_agent.identity.task import IdentityKeeper, IdentitySettings
from edgegpu_agent.journal.errors import BoxJournalError
from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_agent.ports import BoxContext, ClusterIdentity, LinkPort
from edgegpu_agent.session.capabilities import BoxCapabilities, box_capabilities
from edgegpu_agent.session.link_routes import BoxRoutes
from edgegpu_agent.session.local_api import SOCKET_NAME, LocalApi
from edgegpu_agent.session.machine import LinkMemory, TransactionHistory, boot_clock, goodbye_reason, journal_of
from edgegpu_agent.session.watchdog import LoopHealth, LoopHealthTable
from edgegpu_agent.settings import AgentConfig, CloudSection
from edgegpu_agent.telemetry.machine import MachineReader
from edgegpu_agent.telemetry.programs import Programs
from edgegpu_agent.telemetry.source import TelemetryReader
from edgegpu_agent.worker.answers import StatusAnswer
from edgegpu_agent.worker.steps import AtStep
from edgegpu_agent.worker.worker import Worker, WorkerParts
from edgegpu_base.process.memory import Footprint
from edgegpu_base.process.tasks import Task, TaskGroup
from edgegpu_installer.layout import Layout
from edgegpu_installer.transaction.journal import TransactionJournal
from edgegpu_plugin.errors import ConfigError
from edgegpu_sync.link.events import Address, LinkDown, LinkEvent, LinkUp
from edgegpu_sync.link.link import Link
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import box_filter

if TYPE_CHECKING:
    from edgegpu_agent.app_limits.task import AppLimitsService

_LOG = logging.getLogger(__name__)

IDENTITY, JOURNALS = "identity", "agent"
"""Subfolders of the state folder."""

_AGAIN_S = 30.0

KEEPALIVE_S = 30
_LINK_HANGS_S = 4.0 * KEEPALIVE_S
"""The link gives a connection up after 1.8 keep-alives; a longer silence means that its loop hangs."""

_WORKER_HANGS_S = 90.0
"""The worker's loop runs each second, and waits for nothing but the disk."""

_LAST_WORDS_S = 2.0


def cloud_tasks(
    path: Path, layout: Layout, *, edgegpu: str, vitals: LoopHealthTable, at_step: AtStep | None = None
) -> list[Task]:
    """Return the tasks of a box that belongs to a cloud; log the reason and return none where agent.yaml is wrong.

    Args:
        path: agent.yaml.
        layout: the paths of this box.
        edgegpu: the program `edgegpu`, which runs the installer and the doctor.
        vitals: the table of watched loops.
        at_step: called at each step of a command; for tests of faults.
    """
    try:
        config = settings.load(path)
    except ConfigError as error:
        for problem in error.problems:
            _LOG.error("%s", problem)
        text = f"cannot use {path}: {'; '.join(error.problems)}"
        remedy = "put the file right: the agent notices it"
        write_status(layout.run / STATUS_FILE, IdentityStatus(stand=EnrolmentState.BROKEN, text=text, remedy=remedy))
        return []
    return CloudSupervisor(config, layout, edgegpu=edgegpu, vitals=vitals, at_step=at_step).tasks()


class CloudSupervisor:
    """The supervisor that builds the link when there is an identity, and again when the identity changes."""

    def __init__(
        self,
        config: AgentConfig,
        layout: Layout,
        *,
        edgegpu: str,
        vitals: LoopHealthTable,
        at_step: AtStep | None = None,
    ) -> None:
        """Build all parts; nothing runs yet."""
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
                standing=layout.run / STATUS_FILE,
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
        """Return all tasks by name; the task `cloud` runs those of an enrolled box."""
        return [
            Task("identity", self._identity.run, self._identity.stop),
            Task("telemetry", self._telemetry.run, self._telemetry.stop),
            Task("cloud", self.run, self.stop),
        ]

    def run(self) -> None:
        """Hold the link for the present identity, until `stop`.

        Raises:
            Exception: the error that a task of the link failed with.
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
                self._vitals.report_ready()  # a box that is not enrolled is ready too

    def _serve(self, identity: BoxIdentity) -> float | None:
        """Hold the link; return the seconds until the next try where it could not be built."""
        try:
            self._box = box = self._build(identity)
        except (BoxJournalError, IdentityError) as error:
            _LOG.error("not on the link: %s", error)
            self._identity.trouble(f"not on the link: {error}")
            self._vitals.report_ready()  # the status says why there is no worker; a restart by systemd would not help
            return _AGAIN_S
        self._identity.trouble("")
        if self._stopping or self._identity.identity != identity:
            box.stop()
        self._telemetry.set_listener(box.worker.measured)
        box.run()
        self._telemetry.set_listener(None)
        self._box = None
        return None

    def _build(self, identity: BoxIdentity) -> "BoxLink":
        limits = self._app_limits()
        self._telemetry.set_cluster_source(limits.cluster if limits is not None else ClusterIdentity)
        return BoxLink(
            identity,
            cloud=self._config.cloud,
            instance=self._identity.instance,
            box_capabilities=box_capabilities(
                identity,
                layout=self._layout,
                edgegpu=self._edgegpu,
                telemetry=self._telemetry,
                keeper=self._identity,
                limits=limits,
                max_mib=self._config.uploads.max_mib,
                proxy=self._config.cloud.proxy,
            ),
            layout=self._layout,
            clock=self._clock,
            vitals=self._vitals,
            standing=lambda: self._identity.standing,
            at_step=self._at_step,
        )

    def _app_limits(self) -> "AppLimitsService | None":
        """Return the service for app limits where this box has the account for it; else do not even load its module."""
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
        """Wake the link: where the old certificate had expired, it would wait minutes for its next try."""
        box = self._box
        if box is not None:
            box.link.wake()

    def _other_identity(self) -> None:
        self._changed.set()
        box = self._box
        if box is not None:
            box.stop()


class BoxLink:
    """The link, worker and local API of one identity; `run` it once, and build another for another identity."""

    def __init__(  # noqa: PLR0913 - all that a box is
        self,
        identity: BoxIdentity,
        *,
        cloud: CloudSection,
        instance: str,
        box_capabilities: BoxCapabilities,
        layout: Layout,
        clock: ClockFloor,
        vitals: LoopHealthTable,
        standing: Callable[[], IdentityStatus],
        at_step: AtStep | None = None,
    ) -> None:
        """Open the journal and build all parts.

        Args:
            identity: this box.
            cloud: the settings, of which the routes to the broker are made.
            instance: the hash of this machine.
            box_capabilities: the actions, settlers and probes of this box.
            layout: the paths of this box.
            clock: decides whether dates in certificates count; learns each time that a controller has signed.
            vitals: the table of watched loops.
            standing: returns the identity's status, for the local API.
            at_step: called at each step of a command; for tests of faults.

        Raises:
            BoxJournalError: the journal cannot be used.
            IdentityError: the key cannot be used.
        """
        self._identity, self._clock, self._vitals, self._at_step = identity, clock, vitals, at_step
        self._limits_trouble = box_capabilities.limits_trouble
        self._standing, self._installer = standing, TransactionJournal(layout.tx)
        self._group, self._stopping = TaskGroup(), box_capabilities.stopping
        journals = layout.state / JOURNALS
        self._memory = LinkMemory(journals / "link.json", identity.id)
        self._routes = BoxRoutes(identity.device.broker, cloud, self._memory)
        self._journal = self._open(journal_of(journals, identity))
        try:
            self.worker = Worker(self._parts(instance, box_capabilities, layout.root))
        except Exception:
            self._journal.close()  # the next try opens it again
            raise
        self._footprint = Footprint()
        self.link = self._link_of(self.worker)
        self.worker.attach(self._uplink())
        self._api = LocalApi(layout.run / SOCKET_NAME, status=self._status, history=self.worker.history)
        self._more = box_capabilities.tasks(self.worker.drift_checks)

    def _heard(self, event: LinkEvent) -> None:
        if isinstance(event, LinkUp):
            self._footprint.soon()
            self._routes.connected(event)
        elif isinstance(event, LinkDown):
            self._footprint.now()  # frees memory for what the libraries need to reconnect
        self.worker.put(event)

    def _link_of(self, worker: Worker) -> Link:
        return Link(
            self._address,
            subscribe=[box_filter(self._identity.id)],
            will=worker.will,
            put=self._heard,
            rng=random.Random(),  # noqa: S311  (jitter)
            clock=time.monotonic,
            keepalive_s=KEEPALIVE_S,
            recall=self._memory.recall,
            remember=self._memory.remember,
        )

    def _status(self) -> StatusAnswer:
        """Return the status with the identity's, since another agent may have written the identity's status file."""
        more = {"identity": self._standing().document(), "limits_trouble": self._limits_trouble()}
        status = self.worker.status()
        return status.model_copy(update=more | (self._routes.status() if status.connected else {}))

    def _open(self, path: Path) -> BoxJournal:
        if self._at_step is None:
            return BoxJournal(path, wall_s=time.time)
        from edgegpu_agent.worker.fault_steps import at_commit  # noqa: PLC0415  (not needed in the field)

        return BoxJournal(path, wall_s=time.time, hook=partial(at_commit, self._at_step))

    def _uplink(self) -> LinkPort:
        if self._at_step is None:
            return self.link
        from edgegpu_agent.worker.fault_steps import SteppedUplink  # noqa: PLC0415

        return SteppedUplink(self.link, self._journal, self._at_step)

    def _parts(self, instance: str, box_capabilities: BoxCapabilities, root: Path) -> WorkerParts:
        """Return the parts of the worker."""
        acts, settlers = box_capabilities.acts, box_capabilities.settlers
        if self._at_step is not None:
            from edgegpu_agent.worker import fault_steps  # noqa: PLC0415

            acts, settlers = fault_steps.acts(acts, self._at_step), fault_steps.settlers(settlers, self._at_step)
        return WorkerParts(
            journal=self._journal,
            root=self._identity.device.root,
            keys=self._identity.device.keys,
            me=BoxContext(
                device=self._identity.id,
                enrolment=self._identity.device.enrolment,
                instance=instance,
                signer=Signer.of(self._identity.sign_key()),
                versions=box_capabilities.versions,
            ),
            clock=boot_clock(root),
            rng=random.Random(),  # noqa: S311  (jitter)
            acts=acts,
            settlers=settlers,
            sharing=box_capabilities.sharing,
            telemetry=box_capabilities.telemetry,
            lacks=box_capabilities.lacks,
            clean=box_capabilities.clean,
            server_time=self._clock.learn_signed,
            transactions=TransactionHistory(self._installer).ended,
        )

    def run(self) -> None:
        """Hold the link until `stop`.

        Raises:
            Exception: the error that a task failed with.
        """
        _LOG.info("on the link as %s, enrolment %d", self._identity.id, self._identity.device.enrolment)
        if not self._group.ended:
            self._vitals.watch(
                {
                    "worker": LoopHealth(lambda: self.worker.age_s, _WORKER_HANGS_S),
                    "link": LoopHealth(lambda: self.link.alive_s, _LINK_HANGS_S),
                }
            )
            self._group.start(self.tasks())
            self._group.wait()
        self._stopping.set()
        self._vitals.watch({})
        if not self.worker.began.is_set() or self.worker.finished.wait(_LAST_WORDS_S):
            self._journal.close()

    def stop(self) -> None:
        """Let `run` end, after the goodbye message."""
        self._stopping.set()
        self._group.end()

    def tasks(self) -> list[Task]:
        """Return all tasks by name."""
        return [
            Task("worker", self.worker.run, lambda: self.worker.stop(goodbye_reason(self._installer))),
            Task("link", self._run_link, self._stop_link),
            Task("answers", self._api.run, self._api.stop),
            Task("footprint", self._footprint.run, self._footprint.stop),
            *self._more,
        ]

    def _run_link(self) -> None:
        self.worker.began.wait()
        if not self.worker.finished.is_set():
            self._vitals.report_ready()  # the journal is open and the worker runs; the broker may be away
        self.link.run()

    def _stop_link(self) -> None:
        """Stop the link once the worker has sent its goodbye message."""
        self.worker.finished.wait(_LAST_WORDS_S)
        self.link.stop()

    def _address(self) -> Address:
        identity = self._identity
        broker = identity.device.broker
        return Address(
            host=broker.host,
            port=broker.port,
            routes=self._routes.routes(),
            client_id=identity.id,
            ca=identity.broker_ca,
            cert=identity.tls_cert,
            key=identity.tls_key,
            check_dates=self._clock.is_right,
        )


def _release() -> Path:
    """Return the folder of this module's environment, which contains VERSION."""
    return Path(__file__).resolve().parents[3]
