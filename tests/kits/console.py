"""A console on a store, as an application and as a server: who is signed in stands in a table."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kits.people import CheapHasher
from starlette.testclient import TestClient

from edgegpu_cloud.alerts.service import Alerts
from edgegpu_cloud.console.app import check_store
from edgegpu_cloud.console.context import fleet_of, rollouts_of
from edgegpu_cloud.console.live import ChangeWatcher, StoreChanges
from edgegpu_cloud.console.metrics import ConsoleMetrics
from edgegpu_cloud.console.visitor import SESSION_COOKIE, Visitor, Visitors
from edgegpu_cloud.console.web import ConsoleParts, make_console
from edgegpu_cloud.enrolment.install_lines import EnrolmentAddress
from edgegpu_cloud.enrolment.manager import EnrolmentManager
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.history.evidence import EvidenceService
from edgegpu_cloud.fleet.history.settlements import record_settlements
from edgegpu_cloud.fleet.idempotency import IdempotentRequests
from edgegpu_cloud.fleet.numbers import FleetCounter
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.summaries import refresh
from edgegpu_cloud.fleet.views import reported_items
from edgegpu_cloud.http.server import HttpsServer
from edgegpu_cloud.layout import AlertConfig, TokenConfig
from edgegpu_cloud.people.passwords import HashGate, Passwords
from edgegpu_cloud.people.people import People
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import EnrolledBox, Latest
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_cloud.store.telemetry.records import QUARTER_S, CardMoment
from edgegpu_sync.ids import DeviceId, device_id
from edgegpu_sync.messages.telemetry import CardSample
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kits.cert import Authority
    from starlette.types import ASGIApp

    from edgegpu_cloud.fleet.views import BoxDetails
    from edgegpu_cloud.rollouts.rollouts import Rollouts

NOW_S = 1_790_000_000.0
_CLOSED_WITHIN_S = 2.0
"""Connections that a client has just closed end here too before the server does."""
ANNA = Visitor(name="anna", role=Role.ADMIN, csrf="csrf-of-anna")
OTTO = Visitor(name="otto", role=Role.OPERATOR, csrf="csrf-of-otto")
VERA = Visitor(name="vera", role=Role.VIEWER, csrf="csrf-of-vera")
ADDRESS = EnrolmentAddress(url="https://cloud.example.com:8443", ca_sha256="ab" * 32, pin="A" * 43 + "=")


@dataclass
class TableVisitors:
    """The sessions of a test, by token."""

    table: dict[str, Visitor] = field(default_factory=lambda: {"anna": ANNA, "otto": OTTO, "vera": VERA})

    def visitor(self, token: str) -> Visitor | None:
        return self.table.get(token)


def all_items(client: TestClient, path: str) -> list[dict[str, Any]]:
    """Return all items of one of the API's lists, which it gives page by page."""
    found: list[dict[str, Any]] = []
    while path:
        page = client.get(path).json()
        found += page["items"]
        path = (page["next"] or "").removeprefix("/api/v1")
    return found


class ConsoleSite:
    """A store with a console over it."""

    def __init__(self, store: ControllerStore, *, now_s: float = NOW_S) -> None:
        self.store, self.now_s = store, now_s
        self.signed_in = TableVisitors()
        self.address = ADDRESS
        self.alert_config, self.token_config = AlertConfig(), TokenConfig()
        self.visitors: Visitors = self.signed_in
        self.api_tokens = {f"egt_{name}": replace(one, csrf="") for name, one in self.signed_in.table.items()}
        self.gate = HashGate()
        self.people = People(store, clock=self.clock, passwords=Passwords(CheapHasher(), self.gate))
        self.repeated = IdempotentRequests(store, clock=self.clock)
        self.watcher = ChangeWatcher(StoreChanges(store))
        self.metrics_from: tuple[str, ...] = ()
        self.app = self._make()

    def use(self, visitors: Visitors) -> None:
        """Take the sessions from somewhere else."""
        self.visitors = visitors
        self.app = self._make()

    def _make(self) -> ASGIApp:
        return make_console(
            ConsoleParts(
                fleet=lambda visitor: fleet_of(self.store, visitor, clock=self.clock),
                rollouts=self.rollouts,
                alerts=self.alerts,
                evidence=lambda visitor: EvidenceService(self.store, access=visitor.access, clock=self.clock),
                enrolment=self.enrolment,
                operations=self.operations,
                metrics=ConsoleMetrics(FleetCounter(self.store, clock=self.clock), sources=self.metrics_from),
                repeated=self.repeated,
                enrolment_address=lambda: self.address,
                people=self.people,
                visitors=self.visitors,
                api_tokens=self.api_tokens.get,
                url="https://cloud.example.com:8444",
                watcher=self.watcher,
                check_store=partial(check_store, self.store),
                clock=self.clock,
                version="0.0.0",
            )
        )

    def alerts(self, visitor: Visitor) -> Alerts:
        """Return the alerts as a person sees and silences them."""
        return Alerts(self.store, self.alert_config, access=visitor.access, controller="controller-1", clock=self.clock)

    def operations(self, visitor: Visitor = ANNA) -> Operations:
        """Return the operations as a person sees and starts them."""
        return Operations(self.store, clock=self.clock, access=visitor.access)

    def rollouts(self, visitor: Visitor = ANNA) -> Rollouts:
        """Return the rollouts as a person sees and starts them."""
        return rollouts_of(self.store, visitor, clock=self.clock)

    def enrolment(self, visitor: Visitor) -> EnrolmentManager:
        """Return enrolment as a person sees and changes it."""
        return EnrolmentManager(self.store, clock=self.clock, access=visitor.access, defaults=self.token_config)

    def clock(self) -> float:
        return self.now_s

    def add(self, number: int, name: str, **labels: str) -> DeviceId:
        """Enrol a box that has said nothing yet."""
        device = device_id(f"{number:016d}")
        box = EnrolledBox(device=device, enrolment=1, public="A" * 43, instance="ab" * 32, name=name, labels=labels)
        with self.store.write() as tx:
            add_box(tx, box, Author("setup", self.now_s))
        return device

    def report(self, device: DeviceId, details: BoxDetails) -> None:
        """Store the last messages of a box, as `kits.details.box` makes them, as heard now."""
        self.hear({device: [replace(one, device=device, at_s=self.now_s) for one in details.latest.values()]})

    def hear(self, messages: Mapping[DeviceId, Iterable[Latest]]) -> None:
        """Store messages of boxes, one of each kind at most, in one transaction."""
        heard = {device: {one.kind: one for one in new} for device, new in messages.items()}
        devices = list(heard)
        new = [one for of_box in heard.values() for one in of_box.values()]
        with self.store.write() as tx:
            there = tx.boxes.latest(devices, list({one.kind for one in new}))
            tx.boxes.put_latest([one for one in new if (one.device, one.kind) in there])
            tx.boxes.add_latest([one for one in new if (one.device, one.kind) not in there])
            tx.summaries.mark(devices)
            refresh(tx, tx.boxes.get(devices).values(), heard=heard)
            said = {device: of[TopicKind.REPORTED].body for device, of in heard.items() if TopicKind.REPORTED in of}
            items = {device: reported_items(body) for device, body in said.items()}
            enrolments = {device: body["enrolment"] for device, body in said.items()}
            record_settlements(tx, items, enrolments, now_s=self.now_s)

    def measure(self, device: DeviceId, *quarters: tuple[int, float, int], card: str = "GPU-0") -> None:
        """Store the use of a card: quarters of an hour ago, core of 100, MiB of memory."""
        moments = [
            CardMoment(int(self.now_s) - ago * QUARTER_S, CardSample(uuid=card, core_used=core, memory_used_mib=memory))
            for ago, core, memory in quarters
        ]
        with self.store.write() as tx:
            tx.telemetry.add_use({device: moments})

    def connect(self, device: DeviceId) -> None:
        """Mark a box as connected, and heard now."""
        with self.store.write() as tx:
            box = tx.boxes.get([device])[device]
            tx.boxes.put([replace(box, online=True, seen_at_s=self.now_s)])

    def client(self, person: str = "anna", language: str = "en") -> TestClient:
        """Return a client with a person's session; an empty name: nobody is signed in."""
        cookies = {SESSION_COOKIE: person} if person else {}
        headers = {"accept-language": language}
        return TestClient(
            self.app, base_url="https://console", cookies=cookies, headers=headers, follow_redirects=False
        )

    def api(self, person: str = "anna") -> TestClient:
        """Return a client of the API with a person's API token; an empty name: none."""
        headers = {"authorization": f"Bearer egt_{person}"} if person else {}
        return TestClient(self.app, base_url="https://console/api/v1", headers=headers, follow_redirects=False)

    @contextmanager
    def served(self, folder: Path, authority: Authority) -> Iterator[str]:
        """Serve it over HTTPS; yields the URL."""
        pair = authority.pair("console", hosts=["127.0.0.1"])
        cert, key = folder / "console.crt", folder / "console.key"
        cert.write_text(pair.cert)
        key.write_text(pair.key)
        server = HttpsServer(self.app, host="127.0.0.1", port=0, cert=cert, key=key)
        threads = [threading.Thread(target=run, daemon=True) for run in (server.run, self.watcher.run)]
        for thread in threads:
            thread.start()
        try:
            yield f"https://127.0.0.1:{server.port}"
        finally:
            self.watcher.stop()
            end_s = time.monotonic() + _CLOSED_WITHIN_S
            while server.connections and time.monotonic() < end_s:
                time.sleep(0.01)
            server.stop()
            for thread in threads:
                thread.join(20)
