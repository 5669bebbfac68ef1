"""The composition root of each process of `edgegpu-cloud serve`: it builds parts, lists tasks, runs them."""

import logging
import queue
import random
import resource
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgegpu_base.process.tasks import Task, TaskGroup
from edgegpu_cloud.alerts.findings import own_certificates
from edgegpu_cloud.controller.clock import SteadyClock, check_away
from edgegpu_cloud.enrolment.bodies import BrokerAddress
from edgegpu_cloud.enrolment.bootstrap import authority_of, ensure_console_certificate, renew_expiring, renew_lock
from edgegpu_cloud.enrolment.ca import days_left
from edgegpu_cloud.enrolment.controller_renewal import answer_renewals, ask_renewal, report_end, take_renewal
from edgegpu_cloud.enrolment.enrolment import EnrolmentService, EnrolmentTerms
from edgegpu_cloud.enrolment.issuing import complete_crl, write_crl
from edgegpu_cloud.enrolment.key_files import load_signing_key, read_file
from edgegpu_cloud.enrolment.key_sets import settle
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.http.release import BundleFolder
from edgegpu_cloud.http.urls import url_of
from edgegpu_cloud.layout import CloudConfig, CloudLayout, store_url
from edgegpu_cloud.outage_log import OutageLog
from edgegpu_cloud.ownership import locked
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.rollouts.runner import RolloutRunner
from edgegpu_cloud.store.records import AlarmNote
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_cloud.tables_watch import TablesWatch
from edgegpu_sync.link.events import Address, LinkEvent
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import CONTROLLER_FILTER

if TYPE_CHECKING:
    from edgegpu_cloud.alerts.service import AlertTask
    from edgegpu_cloud.controller.controller import Controller
    from edgegpu_cloud.fleet.operations.runner import OperationRunner
    from edgegpu_cloud.http.server import HttpsServer
    from edgegpu_sync.link.link import Link

_LOG = logging.getLogger(__name__)

_SESSION_S = 3_600
"""How long the broker keeps messages for this controller while it is away; what is lost later is asked for again."""
_UNDER_WAY = 100
DESCRIPTORS = 65_536
"""How many descriptors a process of `serve` takes, if it may; LimitNOFILE of the documented units is as high."""

_CARETAKER_INTERVAL_S = 6 * 3_600.0
_CRL_INTERVAL_S = 5.0
"""Seconds until a box that the console has revoked is on the CRL."""

_ANSWER_RENEWALS = "pass on controllers' certificates"
_COUNT_THROTTLED = "store how many requests to enrol were throttled"
_WRITE_CRL = "write the list of revoked certificates"
_RENEW_CERTIFICATES = "renew this controller's certificates"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `serve`.

    `bundle` is the folder of the release. Without `link` there is HTTPS alone, without `https` the controller alone.
    `clock_is_right`: the clock may be far above the time that boxes received last.
    """

    bundle: Path
    link: bool = True
    https: bool = True
    clock_is_right: bool = False


class CloudApp:
    """One process of `serve`: `run` returns when its group is stopped, or raises what ended it."""

    def __init__(
        self,
        layout: CloudLayout,
        config: CloudConfig,
        options: ServeOptions,
        *,
        group: TaskGroup,
        watch: Callable[[LinkEvent], None] = lambda _: None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """Build the parts: the port is bound, nothing runs yet; `watch` receives the link's events.

        Raises:
            CloudError: a file, the store, or the port cannot be used, or the clock seems to be wrong.
        """
        self._layout, self._config, self._group = layout, config, group
        self._care = queue.SimpleQueue[AlarmNote | None]()
        self._asked = False
        self._outages = OutageLog(_LOG)
        self._store = ControllerStore.open(store_url(layout, config.database), create=not config.database.url)
        self._clock = self._steady(wall_s, asked=not options.clock_is_right)
        settle(layout, self._store)
        self._renew()
        self._write_crl()
        self._enrolment: EnrolmentService | None = None
        self._server = self._https(BundleFolder(options.bundle, url_of(config))) if options.https else None
        self._linked = self._make_link(watch) if options.link else None

    @property
    def port(self) -> int:
        """The port of HTTPS; 0 where it is not served here."""
        return self._server.port if self._server is not None else 0

    def tasks(self) -> list[Task]:
        """Return the tasks that run side by side until the first ends."""
        tables = TablesWatch(self._store)
        tasks = [
            Task("caretaker", self._run_caretaker, lambda: self._care.put(None)),
            Task("tables", tables.run, tables.stop),
        ]
        if self._server is not None:
            tasks.append(Task("https", self._server.run, self._server.stop))
        if self._linked is not None:
            link, controller = self._linked
            tasks += [Task("controller", controller.run, controller.stop), Task("link", link.run, link.stop)]
            rollouts = RolloutRunner(self._store, leadership=controller.leases, clock=self._clock)
            tasks.append(Task("rollouts", rollouts.run, rollouts.stop))
            alerts = self._alert_task(controller)
            tasks.append(Task("alerts", alerts.run, alerts.stop))
            runner = self._runner(controller)
            tasks.append(Task("operations", runner.run, runner.stop))
        return tasks

    def _runner(self, controller: "Controller") -> "OperationRunner":
        from edgegpu_cloud.fleet.operations.runner import OperationRunner  # noqa: PLC0415  (as `_make_link`)

        return OperationRunner(self._store, leadership=controller.leases, clock=self._clock)

    def run(self) -> None:
        """Serve until the group is stopped."""
        try:
            self._group.run(self.tasks())
        finally:
            self._store.close()

    def _steady(self, wall_s: Callable[[], float], *, asked: bool) -> SteadyClock:
        with self._store.read() as tx:
            last_s = tx.leases.newest_server_time()
        if asked:
            check_away(last_s=last_s, now_s=wall_s())
        return SteadyClock(
            last_s=last_s, wall_s=wall_s, leapt=lambda text: self._care.put(AlarmNote("clock.LEAPT", text))
        )

    def _https(self, release: BundleFolder) -> "HttpsServer":
        from edgegpu_cloud.http.app import make_app  # noqa: PLC0415  (the controller's process needs none of it)
        from edgegpu_cloud.http.server import CONNECTIONS, HttpsServer, ServerLimits  # noqa: PLC0415

        layout, config = self._layout, self._config
        ca_pem = authority_of(layout, "servers").cert_pem
        host, port = config.broker.for_boxes
        self._enrolment = service = EnrolmentService(
            self._store,
            authority=authority_of(layout, "boxes"),
            terms=EnrolmentTerms(
                broker=BrokerAddress(host=host, port=port),
                broker_ca=ca_pem,
                root=read_file(layout.root_public).strip(),
                box_days=config.certificates.box_days,
            ),
            revoked=self._revoked,
            clock=self._clock,
        )
        app = make_app(service, release, ca_pem=ca_pem, clock=self._clock)
        patience = ServerLimits(connections=min(CONNECTIONS, _descriptors() // 2))
        cert, key = layout.cert("https"), layout.key("https")
        return HttpsServer(app, host=config.https.host, port=config.https.port, cert=cert, key=key, patience=patience)

    def _make_link(self, watch: Callable[[LinkEvent], None]) -> "tuple[Link, Controller]":
        from edgegpu_cloud.controller import broker_drops  # noqa: PLC0415  (the process of HTTPS needs none of it)
        from edgegpu_cloud.controller.controller import Controller  # noqa: PLC0415
        from edgegpu_cloud.controller.leases import PartitionLeases, place_of  # noqa: PLC0415
        from edgegpu_cloud.controller.partitions import LeaseTimes  # noqa: PLC0415
        from edgegpu_sync.link.link import Link  # noqa: PLC0415

        inbox = queue.SimpleQueue[LinkEvent | None]()

        def put(event: LinkEvent) -> None:
            watch(event)
            inbox.put(event)

        broker = self._config.broker
        shared = bool(self._config.database.url)  # a file in this folder, whose lock is held, is nobody else's
        drops = [broker_drops.TOPIC, broker_drops.REFUSED_FILTER] if broker.watch_drops else []
        link = Link(
            self._address,
            subscribe=drops if shared else [CONTROLLER_FILTER, *drops],
            will=lambda: None,
            put=put,
            rng=random.Random(),  # noqa: S311  (jitter)
            clock=time.monotonic,
            max_inflight=_UNDER_WAY,
            receive_max=_UNDER_WAY,
            session_s=0 if shared else _SESSION_S,
        )
        times = self._config.leases
        leases = PartitionLeases(
            self._store,
            self._config.controller_name,
            shared=shared,
            place=place_of(self._layout.folder),
            host=socket.gethostname(),
            times=LeaseTimes(renew_s=times.renew_s, lost_s=times.lost_s, look_s=min(1.0, times.renew_s / 3)),
            clock=self._clock,
        )
        guarded, blocks = bool(broker.guard), broker.block_floods
        brake = broker_drops.FloodBrake(self._store, guarded=guarded, blocks=blocks, clock=self._clock)
        controller = Controller(
            self._store,
            link,
            signer=self._signer,
            clock=self._clock,
            inbox=inbox,
            leases=leases,
            retention=self._config.retention,
            brake=brake,
        )
        return link, controller

    def _alert_task(self, controller: "Controller") -> "AlertTask":
        from edgegpu_cloud.alerts.service import AlertTask  # noqa: PLC0415  (the process of HTTPS needs none of it)

        return AlertTask(
            self._store,
            self._config.alerts,
            controller=self._config.controller_name,
            own=lambda: own_certificates(self._layout),
            leadership=controller.leases,
            clock=self._clock,
        )

    def _signer(self) -> Signer:
        """Return the key in effect; a change of keys that its author has not finished is finished first."""
        settle(self._layout, self._store)
        return Signer.of(load_signing_key(self._layout.signing_key))

    def _address(self) -> Address:
        layout, config = self._layout, self._config
        return Address(
            host=config.broker.host,
            port=config.broker.controller_port,
            client_id=config.controller_name,
            ca=layout.ca_cert("servers"),
            cert=layout.cert("controller"),
            key=layout.key("controller"),
        )

    def _revoked(self) -> None:
        write_crl(self._layout, self._store, clock=self._clock)
        text = phrase(
            "a box was enrolled anew, what it had is revoked: the broker has to read %(crl)s again",
            crl=self._layout.crl,
        )
        self._care.put(AlarmNote("broker.CRL", text))

    def _write_crl(self) -> None:
        """Write the list of the revoked where the authority of boxes is; a further controller has none."""
        if self._layout.ca_key("boxes").exists():
            write_crl(self._layout, self._store, clock=self._clock)

    def _renew(self) -> None:
        if not self._layout.ca_key("controllers").exists():
            self._ask_renewal()
            return
        ensure_console_certificate(self._layout, self._config, now_s=self._clock())
        lock = renew_lock(self._layout)
        with locked(lock, lock):  # the other process of `serve` may renew certificates at the same time
            worn = [str(one) for one in renew_expiring(self._layout, self._config, now_s=self._clock())]
        for name in worn:
            _LOG.warning("renewed the certificate of %s", name)
        if "broker" in worn:
            text = phrase("the broker's certificate was renewed: restart the broker before the old one ends")
            self._care.put(AlarmNote("broker.CERTIFICATE", text))
        report_end(self._layout, self._config, self._store)

    def _ask_renewal(self) -> None:
        """Ask for a new certificate of a further controller in time: its authority is elsewhere."""
        report_end(self._layout, self._config, self._store)
        left = days_left(read_file(self._layout.cert("controller")), now_s=self._clock())
        days = self._config.certificates.server_days
        if left >= days / 3:
            return
        ask_renewal(self._layout, self._config, self._store)
        self._asked = True
        if left < days / 4:  # it has asked for long
            text = phrase(
                "the certificate of %(name)s ends in %(days)s days, and no new one has come: "
                "does `serve` run where the authorities are?",
                name=self._config.controller_name,
                days=round(left),
            )
            self._care.put(AlarmNote("controller.CERTIFICATE", text))

    def _pass_certificates(self) -> None:
        """Answer the requests of further controllers where the authority is; elsewhere take the own answer."""
        try:
            if self._layout.ca_key("controllers").exists():
                told = answer_renewals(self._layout, self._config, self._store, now_s=self._clock())
                for name, refusal in told.items():
                    if refusal:
                        self._alarm(
                            AlarmNote(
                                "controller.CERTIFICATE", phrase("no new certificate: %(refusal)s", refusal=refusal)
                            )
                        )
                    else:
                        _LOG.warning("renewed the certificate of %s, which has asked for it", name)
            elif self._asked:
                answer = take_renewal(self._layout, self._config, self._store)
                self._asked = answer is None
                if answer:
                    self._alarm(
                        AlarmNote("controller.CERTIFICATE", phrase("no new certificate: %(answer)s", answer=answer))
                    )
        except CloudError as error:
            self._outages.failed(_ANSWER_RENEWALS, error)
        else:
            self._outages.worked(_ANSWER_RENEWALS)

    def _run_caretaker(self) -> None:
        """Raise alarms, renew this controller's own certificates in time, and keep the CRL complete."""
        renew_s, listed = time.monotonic() + _CARETAKER_INTERVAL_S, ""
        while True:
            try:
                one = self._care.get(timeout=_CRL_INTERVAL_S)
                if one is None:
                    return
                self._alarm(one)
            except queue.Empty:
                listed = self._complete_crl(listed)
                self._pass_certificates()
                self._tell_throttled()
                if time.monotonic() >= renew_s:
                    self._renew_files()
                    renew_s = time.monotonic() + _CARETAKER_INTERVAL_S

    def _tell_throttled(self) -> None:
        try:
            if self._enrolment is not None:
                self._enrolment.tell_throttled()
        except CloudError as error:
            self._outages.failed(_COUNT_THROTTLED, error)
        else:
            self._outages.worked(_COUNT_THROTTLED)

    def _complete_crl(self, listed: str) -> str:
        """Write the CRL where the console has revoked a box; return the mark of the certificates that it has now."""
        if not self._layout.ca_key("boxes").exists():
            return listed
        try:
            with self._store.read() as tx:
                revoked = tx.enrolments.revoked_mark()
            if revoked != listed and complete_crl(self._layout, self._store, clock=self._clock):
                text = phrase("a box was revoked: the broker has to read %(crl)s again", crl=self._layout.crl)
                self._alarm(AlarmNote("broker.CRL", text))
        except (CloudError, ValueError) as error:
            self._outages.failed(_WRITE_CRL, error)
            return ""
        self._outages.worked(_WRITE_CRL)
        return revoked

    def _alarm(self, one: AlarmNote) -> None:
        _LOG.warning("%s: %s", one.kind, one.text)
        try:
            with self._store.write() as tx:
                tx.notes.alarm(one.kind, device="", text=one.text, now_s=self._clock())
        except CloudError as error:
            _LOG.error("cannot keep the alarm %s: %s", one.kind, error)

    def _renew_files(self) -> None:
        try:
            self._write_crl()  # a process may have died before it wrote the list
            self._renew()  # the HTTPS server notices by itself that its file has changed
        except CloudError as error:
            self._outages.failed(_RENEW_CERTIFICATES, error)
        else:
            self._outages.worked(_RENEW_CERTIFICATES)


def _descriptors() -> int:
    """Raise the number of descriptors that this process may have as far as needed; return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(most, DESCRIPTORS) if most != resource.RLIM_INFINITY else DESCRIPTORS
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    return wanted
