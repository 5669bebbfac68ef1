"""A controller's folder, a store, the enrolment over it, and a box's hand: keys, requests and signatures of its own."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from kits.stores import open_store

from edgegpu_base.x509 import new_key
from edgegpu_cloud.enrolment import tokens
from edgegpu_cloud.enrolment.bodies import (
    ApprovalPending,
    BrokerAddress,
    EnrolAsk,
    EnrolmentGranted,
    RenewalAnswer,
    RenewAsk,
)
from edgegpu_cloud.enrolment.bootstrap import authority_of, found
from edgegpu_cloud.enrolment.enrolment import RENEW_DOMAIN, EnrolmentService, EnrolmentTerms
from edgegpu_cloud.enrolment.issuing import write_crl
from edgegpu_cloud.enrolment.key_files import PrivateKey
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.layout import CloudConfig, CloudLayout
from edgegpu_cloud.store.records import ONLY_FOR, Token
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.keys import public_text
from edgegpu_sync.wire import to_base64

if TYPE_CHECKING:
    from pathlib import Path

    from edgegpu_sync.messages.downlink import KeySetLink

NOW_S = 1_790_000_000.0


class Clock:
    """The time, as a test sets it."""

    def __init__(self, now_s: float = NOW_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Box:
    """What a box does for its identity, and what another one may try in its place."""

    token: str = ""
    host: str = "box-1"
    names: str = "box"
    request: str = field(default_factory=lambda: secrets.token_hex(8))
    instance: str = field(default_factory=lambda: secrets.token_hex(32))
    tls: PrivateKey = field(default_factory=new_key)
    sign: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    csr: str = ""

    def __post_init__(self) -> None:
        self.csr = self.csr or self.new_csr()

    def new_csr(self) -> str:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.names)])
        csr = x509.CertificateSigningRequestBuilder().subject_name(name).sign(self.tls, hashes.SHA256())
        return csr.public_bytes(serialization.Encoding.PEM).decode()

    def ask(self, **more: object) -> dict[str, Any]:
        plain = {
            "token": self.token,
            "request": self.request,
            "csr": self.csr,
            "sign_key": public_text(self.sign),
            "instance": self.instance,
            "host": self.host,
            "versions": {"agent": "0.2.0"},
        }
        return {**plain, **more}

    def enrol(self, desk: EnrolmentService, **more: object) -> EnrolmentGranted | ApprovalPending:
        return desk.enrol(EnrolAsk.model_validate(self.ask(**more)), address="10.1.2.3")

    def enrolled(self, desk: EnrolmentService, **more: object) -> EnrolmentGranted:
        answer = self.enrol(desk, **more)
        assert isinstance(answer, EnrolmentGranted)
        return answer

    def renewal(self, granted: EnrolmentGranted, **more: object) -> tuple[bytes, str]:
        plain = {"device": granted.device, "enrolment": granted.enrolment, "csr": self.csr, "nonce": "n1"}
        body = json.dumps({**plain, "instance": self.instance, **more}).encode()
        return body, to_base64(self.sign.sign(RENEW_DOMAIN + body))

    def renew(self, desk: EnrolmentService, granted: EnrolmentGranted, **more: object) -> RenewalAnswer:
        body, signature = self.renewal(granted, **more)
        return desk.renew(RenewAsk.model_validate_json(body), signed=body, signature=signature, address="10.1.2.3")


@dataclass
class Office:
    """A controller that enrols: everything but HTTP."""

    layout: CloudLayout
    config: CloudConfig
    store: ControllerStore
    clock: Clock
    fleet: Fleet
    crls: list[int]
    desk: EnrolmentService = field(init=False)

    def token(self, *, uses: int = 1, approval: bool = False, name: str = "", only_for: str = "") -> str:
        text = tokens.mint()
        labels = {ONLY_FOR: only_for} if only_for else {}
        one = Token(
            digest=tokens.digest(text),
            by="operator anna",
            at_s=self.clock(),
            expires_at_s=self.clock() + 3_600,
            uses=uses,
            approval=approval,
            name=name,
            labels=labels,
        )
        with self.store.write() as tx:
            tx.enrolments.add_token(one)
        return text

    def alarms(self) -> list[str]:
        return [alarm.kind for alarm in self.fleet.alarms()]


def office(folder: Path, *, clock: Clock | None = None, **config: object) -> Office:
    """Make a controller's folder and open what enrols in it."""
    layout, clock = CloudLayout(folder), clock or Clock()
    settings = CloudConfig.model_validate({"version": 1, **config})
    links: list[KeySetLink | None] = []
    found(layout, settings, root_public="", now_s=clock(), more=lambda _, first: links.append(first))
    store = open_store(layout.database)
    (first,) = links
    assert first is not None
    with store.write() as tx:
        tx.notes.add_link(1, first)
    crls: list[int] = []
    made = Office(layout, settings, store, clock, Fleet(store, clock=clock, by="operator anna"), crls)
    made.desk = desk_over(made, store)
    return made


def desk_over(here: Office, store: ControllerStore) -> EnrolmentService:
    """Return an enrolment over a store of the office's database."""
    layout, clock = here.layout, here.clock
    host, port = here.config.broker.for_boxes
    terms = EnrolmentTerms(
        broker=BrokerAddress(host=host, port=port),
        broker_ca=authority_of(layout, "servers").cert_pem,
        root=layout.root_public.read_text().strip(),
        box_days=here.config.certificates.box_days,
    )

    def revoked() -> None:
        write_crl(layout, store, clock=clock)
        here.crls.append(1)

    return EnrolmentService(store, authority=authority_of(layout, "boxes"), terms=terms, revoked=revoked, clock=clock)


def subject(pem: str) -> dict[str, str]:
    names = x509.load_pem_x509_certificate(pem.encode()).subject
    short = {NameOID.COMMON_NAME: "CN", NameOID.ORGANIZATIONAL_UNIT_NAME: "OU"}
    return {short[one.oid]: str(one.value) for one in names}
