"""What is wrong in the fleet now, as findings: from the store, and from this controller's own files."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.x509 import load_pem_x509_certificate

from edgegpu_cloud.alerts.rules import AlertFinding, AlertKind
from edgegpu_cloud.fleet.views import PRESENT_S
from edgegpu_cloud.layout import CloudLayout
from edgegpu_cloud.phrases import Phrase, Verbatim, phrase, phrase_n
from edgegpu_cloud.store.alerts.conditions import Conditions
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.rules.evidence import one_line, printable
from edgegpu_sync.topics import TopicKind
from edgegpu_sync.wire import clipped

_DAY_S = 86_400
_TEXT = 500
_DRIFTED = "Drifted"


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """A certificate of this controller: its name, and when it ends (seconds since 1970)."""

    name: str
    not_after_s: float


def own_certificates(layout: CloudLayout) -> list[OwnCertificate]:
    """Return this controller's certificates: those of its processes, and of its authorities.

    One that cannot be read is left out: whoever needs it says so.
    """
    found = []
    for path in sorted([*layout.tls.glob("*.crt"), *layout.ca.glob("*.crt")]):
        try:
            certificate = load_pem_x509_certificate(path.read_bytes())
        except (OSError, ValueError):
            continue
        name = f"{path.parent.name}/{path.stem}"
        found.append(OwnCertificate(name, certificate.not_valid_after_utc.timestamp()))
    return found


def findings(
    tx: Transaction, *, now_s: float, certificate_days: int, own: Callable[[], Sequence[OwnCertificate]]
) -> list[AlertFinding]:
    """Return all that is wrong now.

    Args:
        tx: a transaction.
        now_s: seconds since 1970.
        certificate_days: a certificate that ends within so many days is one of them.
        own: returns this controller's certificates.
    """
    ends_s = now_s + certificate_days * _DAY_S
    return [
        *_offline(tx.conditions, now_s),
        *_drift(tx.conditions),
        *_not_applied(tx.conditions),
        *_unhealthy(tx.conditions),
        *_clusters(tx.conditions),
        *_certificates(tx.conditions, ends_s),
        *_own(own(), ends_s),
        *_alarms(tx.conditions),
    ]


def _text(text: str) -> str:
    """Return what a box has said in a form that steers nobody's terminal or page; a phrase that does not, as it is."""
    clean = one_line(text, _TEXT)
    return text if isinstance(text, Phrase) and text == clean else clean


def _date(at_s: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at_s))


def _offline(conditions: Conditions, now_s: float) -> Iterator[AlertFinding]:
    for one in conditions.offline(now_s - PRESENT_S):
        text = phrase("the box is offline")
        yield AlertFinding(kind=AlertKind.OFFLINE, device=one.device, text=text, since_s=one.number or None)


def _drift(conditions: Conditions) -> Iterator[AlertFinding]:
    for device, _, body in conditions.bodies(TopicKind.REPORTED, holding=_DRIFTED):
        for name, item in _items(body):
            for condition in item.get("conditions") or ():
                if condition.get("type") == _DRIFTED:
                    text = _drifted(name, condition.get("manager"), condition.get("text"))
                    yield AlertFinding(kind=AlertKind.DRIFT, device=device, about=about_of(name), text=text)
                    break


def _drifted(name: str, manager: object, told: object) -> str:
    who = Verbatim(_text(str(manager))) if manager else phrase("somebody")
    text = phrase("%(who)s has changed %(item)s", who=who, item=about_of(name))
    return phrase("%(what)s: %(text)s", what=text, text=Verbatim(_text(str(told)))) if told else text


def _items(body: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return list(body.get("items", {}).items())


def about_of(name: str) -> str:
    """Return the name of what a finding is about in a form that a row takes and that steers nobody's page."""
    return clipped(printable(name), 253)


def _not_applied(conditions: Conditions) -> Iterator[AlertFinding]:
    for one in conditions.problems():
        text = phrase_n(
            "%(num)d request refused or failed: its page, or `edgegpu-cloud box %(box)s`, has why",
            "%(num)d requests refused or failed: its page, or `edgegpu-cloud box %(box)s`, has why",
            int(one.number),
            box=one.name,
        )
        yield AlertFinding(kind=AlertKind.NOT_APPLIED, device=one.device, text=text)


def _unhealthy(conditions: Conditions) -> Iterator[AlertFinding]:
    devices = conditions.unhealthy()
    for device, _, body in conditions.bodies(TopicKind.HEALTH, devices=devices) if devices else ():
        for part in body.get("parts", ()):
            if part.get("state") == "bad":
                name, told = about_of(str(part.get("name"))), part.get("text")
                why = Verbatim(_text(str(told))) if told else phrase("no reason given")
                text = phrase("%(part)s is bad: %(why)s", part=name, why=why)
                yield AlertFinding(kind=AlertKind.UNHEALTHY, device=device, about=name, text=text)


def _clusters(conditions: Conditions) -> Iterator[AlertFinding]:
    for one in conditions.claims():
        text = phrase(
            "it reports the cluster %(claim)s, which does not count: it belongs to %(cluster)s",
            claim=Verbatim(about_of(one.text)),
            cluster=Verbatim(about_of(one.kind)) if one.kind else phrase("none"),
        )
        yield AlertFinding(kind=AlertKind.CLUSTER, device=one.device, text=text)
    for cluster, names in conditions.rivals().items():
        text = phrase(
            "%(boxes)s say that they apply the limits of one cluster: one of them is wrong", boxes=", ".join(names)
        )
        yield AlertFinding(kind=AlertKind.CLUSTER, about=about_of(cluster), text=text)


def _certificates(conditions: Conditions, ends_s: float) -> Iterator[AlertFinding]:
    for one in conditions.ending_certificates(ends_s):
        text = phrase(
            "the box's certificate ends on %(date)s and was not renewed: edgegpu agent status on the box",
            date=_date(one.number),
        )
        yield AlertFinding(kind=AlertKind.BOX_CERTIFICATE, device=one.device, text=text)


def _own(own: Sequence[OwnCertificate], ends_s: float) -> Iterator[AlertFinding]:
    for one in own:
        if one.not_after_s < ends_s:
            text = phrase(
                "the controller's certificate %(name)s ends on %(date)s: the log of serve says why",
                name=one.name,
                date=_date(one.not_after_s),
            )
            yield AlertFinding(kind=AlertKind.OWN_CERTIFICATE, about=one.name, text=text)


def _alarms(conditions: Conditions) -> Iterator[AlertFinding]:
    for one in conditions.unseen_alarms():
        yield AlertFinding(
            kind=AlertKind.ALARM,
            device=one.device,
            about=about_of(one.kind),
            text=_text(one.text),
            since_s=one.number,
        )
