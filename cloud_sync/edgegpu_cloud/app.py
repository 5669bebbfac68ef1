"""The composition root of each process of `edgegpu-cloud serve`: it builds parts, lists tasks, runs them."""

import logging
import queue
import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgegpu_base.process.tasks import Task, TaskGroup
from edgegpu_cloud.controller.clock import SteadyClock, check_away
from edgegpu_cloud.enrolment.bodies import BrokerAddress
from edgegpu_cloud.enrolment.bootstrap import authority_of, renew_expiring
from edgegpu_cloud.enrolment.enrolment import EnrolmentService, EnrolmentTerms
from edgegpu_cloud.enrolment.issuing import write_crl
from edgegpu_cloud.enrolment.key_files import load_signing_key, read_file
from edgegpu_cloud.enrolment.key_sets import settle
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.http.release import BundleFolder
from edgegpu_cloud.http.urls import url_of
from edgegpu_cloud.layout import CloudConfig, CloudLayout
from edgegpu_cloud.ownership import locked
from edgegpu_cloud.store.notes import SERVER_TIME
from edgegpu_cloud.store.records import AlarmNote
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.link.events import Address, LinkEvent
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import CONTROLLER_FILTER

if TYPE_CHECKING:
    from edgegpu_cloud.controller.controller import Controller
    from edgegpu_cloud.http.server import HttpsServer
    from edgegpu_sync.link.link import Link

_LOG = logging.getLogger(__name__)

_SESSION_S = 3_600
"""How long the broker keeps messages for this controller while it is away; what is lost later is asked for again."""
_UNDER_WAY = 100
DESCRIPTORS = 65_536
"""How many descriptors a process of `serve` takes, if it may; LimitNOFILE of the documented units is as high."""

_CARETAKER_INTERVAL_S = 6 * 3_600.0


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
        self._store = ControllerStore.open_file(layout.database)
        self._clock = self._steady(wall_s, asked=not options.clock_is_right)
        settle(layout, self._store)
        self._renew()
        write_crl(layout, self._store, clock=self._clock)
        self._server = self._https(BundleFolder(options.bundle, url_of(config))) if options.https else None
        self._linked = self._make_link(watch) if options.link else None

    @property
    def port(self) -> int:
        """The port of HTTPS; 0 where it is not served here."""
        return self._server.port if self._server is not None else 0

    def tasks(self) -> list[Task]:
        """Return the tasks that run side by side until the first ends."""
        tasks = [Task("caretaker", self._run_caretaker, lambda: self._care.put(None))]
        if self._server is not None:
            tasks.append(Task("https", self._server.run, self._server.stop))
        if self._linked is not None:
            link, controller = self._linked
            tasks += [Task("controller", controller.run, controller.stop), Task("link", link.run, link.stop)]
        return tasks

    def run(self) -> None:
        """Serve until the group is stopped."""
        try:
            self._group.run(self.tasks())
        finally:
            self._store.close()

    def _steady(self, wall_s: Callable[[], float], *, asked: bool) -> SteadyClock:
        with self._store.read() as tx:
            last_s = tx.notes.number(SERVER_TIME)
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
        service = EnrolmentService(
            self._store,
            authority=authority_of(layout, "boxes"),
            terms=EnrolmentTerms(
                broker=BrokerAddress(host=config.broker.host, port=config.broker.port),
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
        from edgegpu_sync.link.link import Link  # noqa: PLC0415

        inbox = queue.SimpleQueue[LinkEvent | None]()

        def put(event: LinkEvent) -> None:
            watch(event)
            inbox.put(event)

        link = Link(
            self._address,
            subscribe=[CONTROLLER_FILTER, *([broker_drops.TOPIC] if self._config.broker.watch_drops else [])],
            will=lambda: None,
            put=put,
            rng=random.Random(),  # noqa: S311  (jitter)
            clock=time.monotonic,
            max_inflight=_UNDER_WAY,
            receive_max=_UNDER_WAY,
            session_s=_SESSION_S,
        )
        return link, Controller(self._store, link, signer=self._signer, clock=self._clock, inbox=inbox)

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
        text = f"a box was enrolled anew, what it had is revoked: the broker has to read {self._layout.crl} again"
        self._care.put(AlarmNote("broker.CRL", text))

    def _renew(self) -> list[str]:
        lock = self._layout.tls / ".renew.lock"
        with locked(lock, lock):  # the other process of `serve` may renew certificates at the same time
            worn = [str(one) for one in renew_expiring(self._layout, self._config, now_s=self._clock())]
        for name in worn:
            _LOG.warning("renewed the certificate of %s", name)
        if "broker" in worn:
            text = "the broker's certificate was renewed: restart the broker before the old one ends"
            self._care.put(AlarmNote("broker.CERTIFICATE", text))
        return worn

    def _run_caretaker(self) -> None:
        """Raise alarms, renew this controller's own certificates in time, and keep the CRL complete."""
        while True:
            try:
                one = self._care.get(timeout=_CARETAKER_INTERVAL_S)
                if one is None:
                    return
                self._alarm(one)
            except queue.Empty:
                self._renew_files()

    def _alarm(self, one: AlarmNote) -> None:
        _LOG.warning("%s: %s", one.kind, one.text)
        try:
            with self._store.write() as tx:
                tx.notes.alarm(one.kind, device="", text=one.text, now_s=self._clock())
        except CloudError:
            _LOG.exception("cannot keep the alarm %s", one.kind)

    def _renew_files(self) -> None:
        try:
            write_crl(self._layout, self._store, clock=self._clock)  # a process may have died before it wrote the list
            self._renew()  # the HTTPS server notices by itself that its file has changed
        except CloudError:
            _LOG.exception("cannot renew this controller's certificates; tried again")


def _descriptors() -> int:
    """Raise the number of descriptors that this process may have as far as needed; return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(most, DESCRIPTORS) if most != resource.RLIM_INFINITY else DESCRIPTORS
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    return wanted
