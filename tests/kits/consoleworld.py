"""One of everything that pages and endpoints name, so that each of them has an object to answer with."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kits.console import ANNA, ConsoleSite
from kits.details import box, card, pod, reported, saying
from kits.people import LOCAL, PASSWORD
from kits.stores import open_store
from sqlalchemy import make_url

from edgegpu_cloud.alerts.service import AlertTask
from edgegpu_cloud.enrolment.manager import TokenRequest, token_id
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.specs import ContainerLimits, SharingSettings
from edgegpu_cloud.rollouts.rollouts import RolloutRequest
from edgegpu_cloud.store.alerts.tables import AlertFilter
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import EnrolmentAttempt
from edgegpu_sync.rules.ops import OPS
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kits.postgres import PostgresServer
    from kits.todaysstores import TodaysStores

    from edgegpu_sync.ids import DeviceId

ALARM = "XID 79: the card has fallen off the bus"


@dataclass(frozen=True, kw_only=True)
class SiteObjects:
    """What there is of the boxes of one site: the id of one of each kind, as an address has it."""

    device: str
    command: str
    operation: str
    rollout: str
    alarm: str
    alert: str
    token: str
    attempt: str
    webhook: str


def add_objects(site: ConsoleSite, device: DeviceId, where: str) -> SiteObjects:
    """Add one of each kind for a box; only the boxes of its site match the selector `where`, `site=hall`."""
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    name, place = fleet.box(device).name, where.removeprefix("site=")
    command = fleet.command(device, "doctor.run", {})
    refresh = {"op": "inventory.refresh"}
    operation = site.operations().start(OperationKind.COMMAND, refresh, where=BoxFilter(selector=where))
    limits = ContainerLimits(namespace="default", app="tts", container="main", memory_units=2, core=1)
    rollout = site.rollouts().start(RolloutRequest(change=limits, selector=where))
    with site.store.write() as tx:
        tx.notes.alarm("card.lost", device=device, text=ALARM, now_s=site.now_s)
    AlertTask(site.store, site.alert_config, controller="controller-1", clock=site.clock).look()
    alarm = next(one.number for one in fleet.alarms() if one.device == device)
    [alert] = site.alerts(ANNA).list(device, where=AlertFilter(kind="alarm"))
    made = site.enrolment(ANNA).make(TokenRequest(name=f"new-{place}", labels={"site": place}, uses=4, approval=True))
    attempt = f"{int(device):032x}"
    asked = {"host": f"host-of-{name}", "instance": "ab" * 32, "versions": {"agent": "0.2.0"}}
    with site.store.write() as tx:
        tx.enrolments.add_request(
            EnrolmentAttempt(id=attempt, token=made.token.digest, digest="cd" * 32, asked=asked, at_s=site.now_s)
        )
    return SiteObjects(
        device=device,
        command=command,
        operation=operation.operation.id,
        rollout=str(rollout),
        alarm=str(alarm),
        alert=str(alert.alert.number),
        token=token_id(made.token),
        attempt=attempt,
        webhook=site.alerts(ANNA).webhooks.create(f"https://hooks.{place}.example.com/").webhook.id,
    )


class ConsoleWorld:
    """A console with two sites, a box in each: `hall` and `yard` have what there is of each site's box.

    anna, otto and vera are people of the store too; lin has a link, `code`, by which she sets her first password.
    """

    def __init__(self, site: ConsoleSite) -> None:
        self.site = site
        self.fleet = Fleet(site.store, clock=site.clock, by="anna")
        self.hall, self.yard = (self._box(number, name) for number, name in ((1, "hall"), (2, "yard")))
        for name, role in (("anna", Role.ADMIN), ("otto", Role.OPERATOR), ("vera", Role.VIEWER)):
            site.people.redeem(site.people.create(name, role=role, by=LOCAL), "", PASSWORD)
            site.people.sign_in(name, PASSWORD, address="2001:db8::1", agent="curl/8.0")
            site.people.create_token(name, "backup", role=Role.VIEWER, by=LOCAL)
        self.code = site.people.create("lin", role=Role.VIEWER, by=LOCAL)

    def _box(self, number: int, place: str) -> SiteObjects:
        site, name = self.site, f"{place}-1"
        device = site.add(number, name, site=place)
        pods = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 4, 1))}
        told = reported(box(name, (card("0"), card("1")), pods), cluster=f"{number:036d}")
        versions = {"agent": "0.2.0", "plugin": "0.2.0"}
        site.report(device, saying(told, TopicKind.STATUS, state="birth", versions=versions, capabilities=list(OPS)))
        site.connect(device)
        asr = ContainerLimits(namespace="default", app="asr", container="main", memory_units=5, core=1)
        self.fleet.set_limits(device, asr)
        self.fleet.set_settings(device, SharingSettings(policy="best-fit"))
        return add_objects(site, device, f"site={place}")

    def on(self, site: ConsoleSite) -> ConsoleWorld:
        """Return the same world on a console over a copy of the store."""
        other = copy(self)
        other.site, other.fleet = site, Fleet(site.store, clock=site.clock, by="anna")
        return other

    def session_of(self, person: str) -> str:
        """Return the id of a person's session."""
        return self.site.people.sessions(person, by=LOCAL)[0].id

    def api_token_of(self, person: str) -> str:
        """Return the id of a person's API token."""
        return self.site.people.tokens(person, by=LOCAL)[0].id


@cache
def _made() -> tuple[bytes, ConsoleWorld]:
    """Return a SQLite file that has the world, and the world."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "controller.db"
        store = open_store(path)
        world = ConsoleWorld(ConsoleSite(store))
        store.close()
        return path.read_bytes(), world


@cache
def _made_on(server: PostgresServer) -> tuple[str, ConsoleWorld]:
    """Return the name of a database that has the world, and the world."""
    url = server.new_store()
    store = open_store(url)
    world = ConsoleWorld(ConsoleSite(store))
    store.close()
    return str(make_url(url).database), world


@contextmanager
def console_world(stores: TodaysStores) -> Iterator[ConsoleWorld]:
    """Yield the world on a copy of the first one's database: it costs less than another world."""
    if stores.server is None:
        data, world = _made()
        path = stores.new_file()
        path.write_bytes(data)
        url = f"sqlite:///{path}"
    else:
        template, world = _made_on(stores.server)
        url = stores.server.new_database(template)
    store = open_store(url)
    try:
        yield world.on(ConsoleSite(store))
    finally:
        store.close()
        if stores.server is not None:
            stores.server.drop(url)
