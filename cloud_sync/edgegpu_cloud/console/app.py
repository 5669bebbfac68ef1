"""The composition root of the console's process."""

import importlib.metadata
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from edgegpu_base.process.tasks import Task, TaskGroup
from edgegpu_cloud.alerts.service import Alerts
from edgegpu_cloud.console.context import fleet_of, rollouts_of
from edgegpu_cloud.console.forwarded import ForwardedAddresses
from edgegpu_cloud.console.live import ChangeWatcher, StoreChanges
from edgegpu_cloud.console.metrics import ConsoleMetrics
from edgegpu_cloud.console.people_visitors import PeopleVisitors
from edgegpu_cloud.console.web import ConsoleParts, make_console
from edgegpu_cloud.controller.status import no_bundle
from edgegpu_cloud.enrolment.install_lines import EnrolmentAddress, enrolment_address, line_problems
from edgegpu_cloud.enrolment.manager import EnrolmentManager
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.history.evidence import EvidenceService
from edgegpu_cloud.fleet.idempotency import IdempotentRequests
from edgegpu_cloud.fleet.numbers import FleetCounter
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.http.server import CONNECTIONS, HttpsServer, ServerLimits
from edgegpu_cloud.http.urls import console_url, url_of
from edgegpu_cloud.layout import CloudConfig, CloudLayout, proxy_secret, store_url
from edgegpu_cloud.people.people import People
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_cloud.tables_watch import TablesWatch


def check_store(store: ControllerStore) -> None:
    """Read something of the store."""
    store.changed_boxes(None)


def _enrolment_address(layout: CloudLayout, config: CloudConfig) -> EnrolmentAddress:
    """Return where boxes enrol, and what is wrong there now; whether there is a bundle its own process knows."""
    address = enrolment_address(layout, url_of(config))
    return replace(address, problems=line_problems(address.url, has_bundle=not no_bundle(layout)))


class ConsoleApp:
    """The process that serves the console: `run` returns when its group is stopped, or raises what ended it."""

    def __init__(
        self,
        layout: CloudLayout,
        config: CloudConfig,
        *,
        group: TaskGroup,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Build the parts: the port is bound, nothing runs yet.

        Raises:
            CloudError: no console in the configuration, or a file, the store or the port cannot be used.
        """
        if config.console is None:
            raise CloudError(
                "cannot serve the console: controller.yaml has no section `console`",
                remedy="add it: docs/cloud/console.md says how",
            )
        self._group = group
        self._url = console_url(config, config.console)
        self._store = ControllerStore.open(store_url(layout, config.database), create=not config.database.url)
        self._watcher = ChangeWatcher(StoreChanges(self._store))

        application = make_console(self._parts(layout, config, clock))
        self._server = HttpsServer(
            ForwardedAddresses(
                application, proxies=config.console.trusted_proxies, secret=proxy_secret(config.console)
            ),
            host=config.console.host,
            port=config.console.port,
            cert=layout.cert("console"),
            key=layout.key("console"),
            patience=ServerLimits(connections=CONNECTIONS),
        )

    def _parts(self, layout: CloudLayout, config: CloudConfig, clock: Callable[[], float]) -> ConsoleParts:
        store, people = self._store, People(self._store, clock=clock)
        sources = config.console.metrics_from if config.console is not None else ()
        visitors = PeopleVisitors(people)
        return ConsoleParts(
            fleet=lambda visitor: fleet_of(store, visitor, clock=clock),
            rollouts=lambda visitor: rollouts_of(store, visitor, clock=clock),
            alerts=lambda visitor: Alerts(
                store, config.alerts, access=visitor.access, controller=config.controller_name, clock=clock
            ),
            evidence=lambda visitor: EvidenceService(store, access=visitor.access, clock=clock),
            enrolment=lambda visitor: EnrolmentManager(
                store, clock=clock, access=visitor.access, defaults=config.tokens
            ),
            operations=lambda visitor: Operations(store, clock=clock, access=visitor.access),
            metrics=ConsoleMetrics(FleetCounter(store, clock=clock), sources=sources),
            repeated=IdempotentRequests(store, clock=clock),
            enrolment_address=partial(_enrolment_address, layout, config),
            people=people,
            visitors=visitors,
            api_tokens=visitors.of_api_token,
            url=self._url,
            watcher=self._watcher,
            check_store=partial(check_store, store),
            clock=clock,
            version=importlib.metadata.version("edgegpu"),
        )

    @property
    def url(self) -> str:
        """The URL by which people reach the console."""
        return self._url

    @property
    def port(self) -> int:
        """The port that the console listens on."""
        return self._server.port

    def run(self) -> None:
        """Serve until the group is stopped."""
        tables = TablesWatch(self._store)
        try:
            self._group.run(
                [
                    Task("tables", tables.run, tables.stop),
                    Task("watcher", self._watcher.run, self._watcher.stop),
                    Task("console", self._server.run, self._server.stop),
                ]
            )
        finally:
            self._store.close()
