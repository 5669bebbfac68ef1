"""A controller with one box and with all that people do, for the audit of what they did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kits.enrol import Office, office
from kits.people import LOCAL, PASSWORD, CheapHasher

from edgegpu_cloud.alerts.service import Alerts
from edgegpu_cloud.enrolment.key_files import load_signing_key
from edgegpu_cloud.enrolment.key_sets import add, request_with, sign
from edgegpu_cloud.enrolment.manager import EnrolmentManager, TokenRequest
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.fleet.summaries import refresh
from edgegpu_cloud.layout import AlertConfig
from edgegpu_cloud.people.passwords import Passwords
from edgegpu_cloud.people.people import People
from edgegpu_cloud.rollouts.rollouts import RolloutRequest, Rollouts
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import AuditEntry, AuditFilter, EnrolledBox, EnrolmentAttempt, Json, Latest
from edgegpu_cloud.store.settlements.records import RequestKey, StoredSettlement
from edgegpu_sync.ids import device_id
from edgegpu_sync.keys import public_text
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from edgegpu_cloud.fleet.audit.views import AuditView

DEVICE, HALL = device_id("0000000000000001"), "hall-1"
SPREAD = SharingSettings(policy="spread")
LATER_S = 4_000_000_000.0
"""Later than any store is made, which keeps settlements from then on."""
UPLOAD: Json = {"url": "https://anna:pw@logs.example.com/in?signature=SECRET", "max_mib": 1}
ALERT: Json = {"kind": "offline", "device": DEVICE, "about": "", "text": "the box is offline", "open_key": "o"}
TIMES: Json = {"since_s": 1.0, "firing_at_s": 1.0, "clear_since_s": None, "resolved_at_s": None}


@dataclass(frozen=True)
class AuditSite:
    """A controller with one box, and all that people do with it; everything is anna's."""

    office: Office
    fleet: Fleet
    people: People
    operations: Operations
    rollouts: Rollouts
    enrolment: EnrolmentManager
    alerts: Alerts

    def entry(self, kind: AuditKind) -> AuditView:
        """Return the newest entry of exactly this kind."""
        return next(one for one in self.fleet.audit(AuditFilter(what=kind.value)) if one.what == kind)

    def raise_alarm(self) -> None:
        with self.office.store.write() as tx:
            tx.notes.alarm("CLONED", device=DEVICE, text="a copy", now_s=self.office.clock())

    def raise_alert(self) -> None:
        with self.office.store.write() as tx:
            tx.alerts.add([{**ALERT, **TIMES, "silenced_until_s": 0.0, "silenced_by": ""}])

    def add_webhook(self) -> str:
        return self.alerts.webhooks.create("https://hooks.example.com/SECRET").webhook.id

    def restore(self) -> None:
        """Have the box found ahead of the store."""
        with self.office.store.write() as tx:
            box = tx.boxes.get([DEVICE])[DEVICE]
            tx.boxes.put([replace(box, sequence=replace(box.sequence, restored=True))])

    def reports(self, cluster: str) -> None:
        """Have the box report a cluster."""
        with self.office.store.write() as tx:
            box, body = tx.boxes.get([DEVICE])[DEVICE], {"cluster": cluster, "holder": True, "items": {}}
            stamp = Stamp(enrolment=1, epoch=Epoch(1, "0" * 16), n=1)
            one = Latest(device=DEVICE, kind=TopicKind.REPORTED, stamp=stamp, at_s=self.office.clock(), body=body)
            refresh(tx, [box], heard={DEVICE: {TopicKind.REPORTED: one}})

    def let_wait(self) -> str:
        """Have a box wait for approval; return the attempt's id."""
        token = self.enrolment.make(TokenRequest(lasts_s=60, approval=True)).token
        asked = {"host": "yard"}
        one = EnrolmentAttempt(id="1" * 32, token=token.digest, digest="d", asked=asked, at_s=self.office.clock())
        with self.office.store.write() as tx:
            tx.enrolments.add_request(one)
        return one.id

    def add_person(self, name: str = "bea", role: Role = Role.ADMIN) -> str:
        """Add a person with a password; return the text of a session's token."""
        self.people.redeem(self.people.create(name, role=role, by=LOCAL), "", PASSWORD)
        return self.people.sign_in(name, PASSWORD, address="10.0.0.1").session_token

    def refuse_sign_in(self) -> None:
        with pytest.raises(CloudError):
            self.people.sign_in("nobody", PASSWORD, address="10.0.0.1")

    def end_session(self) -> None:
        self.add_person()
        (one,) = self.people.sessions("bea", by=LOCAL)
        self.people.revoke_session(one.id, by=LOCAL)

    def add_token(self) -> None:
        self.add_person()
        self.people.create_token("bea", "ci", role=Role.VIEWER, by=LOCAL, days=7)

    def add_keys(self) -> None:
        """Take a set of keys with the controller's own one alone, as a further controller's request makes it."""
        cloud = self.office
        key = load_signing_key(cloud.layout.signing_key)
        link = sign(request_with(cloud.layout, cloud.store, public_text(key)), load_signing_key(cloud.layout.root_key))
        add(cloud.layout, cloud.store, link, by="anna", now_s=cloud.clock())

    def start_operation(self) -> str:
        args = {"op": "logs.collect", "args": UPLOAD}
        return self.operations.start(OperationKind.COMMAND, args, devices=[DEVICE]).operation.id

    def start_rollout(self) -> int:
        return self.rollouts.start(RolloutRequest(change=SPREAD))

    def pause_rollout(self) -> int:
        number = self.start_rollout()
        self.rollouts.pause(number)
        return number

    def report(self, **items: Json) -> None:
        """Store a report of the box."""
        stamp = Stamp(enrolment=1, epoch=Epoch(1, "0" * 16), n=1)
        body = {"cluster": "c" * 36, "items": items, "holder": True}
        with self.office.store.write() as tx:
            told = Latest(device=DEVICE, kind=TopicKind.REPORTED, stamp=stamp, at_s=self.office.clock(), body=body)
            if tx.boxes.latest([DEVICE], [told.kind]):
                tx.boxes.put_latest([told])
            else:
                tx.boxes.add_latest([told])

    def settle(self, item: str, rev: int, state: ItemState, *, code: str = "", text: str = "") -> None:
        one = StoredSettlement(
            key=RequestKey(item, rev, 0), enrolment=1, state=state, code=code, text=text, at_s=self.office.clock() + 4
        )
        with self.office.store.write() as tx:
            tx.settlements.add([(DEVICE, one)])

    def store_old(self, what: str, **detail: object) -> AuditView:
        """Store an entry as an earlier version wrote it; return how it is read."""
        with self.office.store.write() as tx:
            tx.notes.audit(AuditEntry(at_s=1.0, by="anna", what=what, device=DEVICE, detail=detail))
        return self.fleet.audit(limit=1)[0]


def audit_site(folder: Path) -> AuditSite:
    """Make a controller with one box."""
    cloud = office(folder)
    box = EnrolledBox(
        device=DEVICE, enrolment=1, public="A" * 43, instance="ab", name=HALL, labels={"site": "hall", "rack": "3"}
    )
    with cloud.store.write() as tx:
        add_box(tx, box, Author("anna", cloud.clock()))
    access = Access("anna")
    return AuditSite(
        cloud,
        Fleet(cloud.store, clock=cloud.clock, by="anna"),
        People(cloud.store, clock=cloud.clock, passwords=Passwords(CheapHasher())),
        Operations(cloud.store, clock=cloud.clock, access=access),
        Rollouts(cloud.store, clock=cloud.clock, access=access),
        EnrolmentManager(cloud.store, clock=cloud.clock, access=access),
        Alerts(cloud.store, AlertConfig(), access=access, clock=cloud.clock),
    )
