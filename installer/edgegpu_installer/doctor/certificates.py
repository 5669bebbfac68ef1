"""The check of how long certificates are still valid: the extender's, the kubeconfig's, k3s's own."""

import base64
import binascii
import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

import yaml
from cryptography import x509

from edgegpu_installer.doctor.extender import our_entry
from edgegpu_installer.doctor.probe import BoxProbe, ProbeError
from edgegpu_installer.doctor.units import restart_k3s
from edgegpu_installer.doctor.verdict import CheckProblem, CheckResult, broken, result_of, skipped, warning
from edgegpu_installer.layout import K3S_DATA

_SOON = dt.timedelta(days=90)
"""When k3s starts with less time left, it renews its own certificates."""

_ROTATE = "sudo edgegpu install  # makes them anew"
_K3S = (
    "server/tls/serving-kube-apiserver.crt",
    "server/tls/client-scheduler.crt",
    "agent/serving-kubelet.crt",
    "agent/client-kubelet.crt",
)


@dataclass(frozen=True, slots=True)
class _Held:
    """A PEM text, what it is, and the command that renews it."""

    what: str
    pem: bytes
    remedy: str


def check_certificates(probe: BoxProbe) -> CheckResult:
    """Check every certificate that edgegpu depends on."""
    held = [*_files(probe), *_inline(probe), *_kubeconfig(probe)]
    problems: list[CheckProblem] = []
    details: list[str] = []
    ends: list[dt.datetime] = []
    for one in held:
        try:
            certificate = x509.load_pem_x509_certificate(one.pem)  # only the first: k3s's CA after it has serial 0
        except ValueError:
            problems.append(broken(f"{one.what} is no certificate", one.remedy))
            continue
        ends.append(certificate.not_valid_after_utc)
        details.append(f"{one.what}: until {certificate.not_valid_after_utc:%Y-%m-%d}")
        problems += _judged(one, certificate, probe.now())
    if not ends and not problems:
        return skipped("there are no certificates to look at")
    first = f"the first of {len(ends)} ends {min(ends):%Y-%m-%d}" if ends else ""
    return result_of(problems, ok=first, details=details)


def _judged(one: _Held, certificate: x509.Certificate, now: dt.datetime) -> Iterator[CheckProblem]:
    left = certificate.not_valid_after_utc - now
    if left < dt.timedelta():
        yield broken(f"{one.what} has ended on {certificate.not_valid_after_utc:%Y-%m-%d}", one.remedy)
    elif left < _SOON:
        yield warning(f"{one.what} ends in {left.days} days", one.remedy)
    if certificate.not_valid_before_utc > now:
        text = f"{one.what} holds only from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on"
        yield broken(text, "see the check `clock`")


def _files(probe: BoxProbe) -> Iterator[_Held]:
    for path in probe.settings.tls if probe.settings.has_extender else ():
        text = probe.text(path)
        if text is not None:
            yield _Held(str(path), text.encode(), _ROTATE)
    data = probe.k3s.data if probe.k3s is not None else K3S_DATA
    for name in _K3S:
        text = probe.text(f"{data}/{name}")
        if text is not None:
            yield _Held(
                f"k3s's {name.rpartition('/')[2]}",
                text.encode(),
                f"{restart_k3s(probe)}  # renews its own certificates",
            )


def _inline(probe: BoxProbe) -> Iterator[_Held]:
    """Yield the certificates in the scheduler's file; the check `scheduler` reports a bad file."""
    if not probe.settings.has_extender:
        return
    try:
        entry = our_entry(probe)
    except ProbeError:
        return
    for what, pem in (("the scheduler's client certificate", entry.cert), ("the scheduler's CA", entry.ca)):
        if pem:
            yield _Held(what, pem.encode(), _ROTATE)


def _kubeconfig(probe: BoxProbe) -> Iterator[_Held]:
    try:
        value = yaml.safe_load(probe.text(probe.settings.kubeconfig) or "") or {}
        users = [user.get("user") or {} for user in value.get("users") or ()]
        texts = [
            base64.b64decode(user["client-certificate-data"]) for user in users if "client-certificate-data" in user
        ]
    except (yaml.YAMLError, AttributeError, binascii.Error):
        return  # the check `kubeconfig` reports it
    for text in texts:
        yield _Held("the kubeconfig's certificate", text, _ROTATE)
