"""The check of the extender: it is called as the scheduler calls it."""

import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from edgegpu_base.tls import client_context
from edgegpu_installer.cluster.https import TlsTarget, ask
from edgegpu_installer.doctor.probe import BoxProbe, ProbeError
from edgegpu_installer.doctor.verdict import CheckProblem, CheckResult, broken, result_of, skipped, warning
from edgegpu_installer.layout import K3S_FOLDER, SCHEDULER_YAML
from edgegpu_installer.machine import k3s_config
from edgegpu_installer.machine.facts import NodeKind
from edgegpu_installer.machine.k3s_config import SCHEDULER_ARG
from edgegpu_installer.scheduler.file import ExtenderEntry, extender_entries
from edgegpu_installer.scheduler.manifest import SCHEDULER_FILE

_TIMEOUT_S = 5.0
_OK = 200
_LOG = "sudo journalctl -u edgegpu-plugin -e"
_ANEW = "sudo edgegpu install  # makes certificates and scheduler file anew"


def check_extender(probe: BoxProbe) -> CheckResult:
    """Call the extender's healthz with the address and the certificates of the scheduler's file."""
    settings = probe.settings
    if not settings.has_extender:
        return skipped("an agent node has no scheduler, and so no extender")
    entry = our_entry(probe)
    parts = urlsplit(entry.url)
    where = f"{parts.hostname}:{parts.port}"
    problems = list(_entry_troubles(entry, where, settings.listen))
    try:
        verify, context = bool(entry.ca) and not entry.insecure, None
        if parts.scheme == "https":
            context = client_context(ca_pem=entry.ca, cert_pem=entry.cert, key_pem=entry.key, verify=verify)
        way = TlsTarget(context=context, server_name=entry.server_name or None, timeout_s=_TIMEOUT_S)
        answer = ask(f"{parts.scheme}://{parts.netloc}/healthz", way)
    except OSError as error:
        problems.append(_no_answer(where, error))
    else:
        if answer.status != _OK:
            words = answer.body.decode(errors="replace").strip()
            problems.append(broken(f"the extender is not healthy: {answer.status} {words}", f"edgegpu status; {_LOG}"))
    how = "with the scheduler's certificate" if entry.cert else "without certificates"
    return result_of(problems, ok=f"answers on {where} {how}", details=[entry.url])


def our_entry(probe: BoxProbe) -> ExtenderEntry:
    """Return our extender's entry in the scheduler's file.

    Raises:
        ProbeError: there is no such file, or our extender is not in it.
    """
    path = scheduler_file(probe)
    text = probe.text(path)
    if text is None:
        raise ProbeError(f"there is no scheduler file {path}", remedy="sudo edgegpu install")
    try:
        known = [entry for entry in extender_entries(text) if entry.binds]
    except ValueError as error:
        raise ProbeError(f"cannot read {path}: {error}", remedy="sudo edgegpu install") from error
    if not known:
        raise ProbeError(f"{path} names no extender that binds", remedy="sudo edgegpu install")
    return known[0]


def scheduler_file(probe: BoxProbe) -> str:
    """Return the path of the scheduler's file: the one that k3s passes to it, else the installer's own."""
    k3s = probe.k3s
    if probe.facts.kind is NodeKind.KUBEADM_SERVER:
        return SCHEDULER_FILE
    if k3s is None:
        return f"{K3S_FOLDER}/{SCHEDULER_YAML}"
    given = k3s_config.scheduler_file(k3s.effective().values(SCHEDULER_ARG))
    return given[-1].text if given else k3s.scheduler_file


def _entry_troubles(entry: ExtenderEntry, where: str, listen: str) -> Iterator[CheckProblem]:
    if where != listen.replace("localhost", "127.0.0.1"):
        yield broken(f"the scheduler calls {where}, and the extender listens on {listen}", _ANEW)
    if entry.url.startswith("https:"):
        if not entry.ca or entry.insecure:
            yield broken("the scheduler does not check whom it talks to: tlsConfig has no caData", _ANEW)
        if not entry.cert or not entry.key:
            yield broken("the scheduler has no certificate for the extender", _ANEW)
    else:
        yield warning("the extender speaks without certificates: every process of this box may bind pods", _ANEW)
    if entry.ignorable:
        text = "ignorable: true: while the extender is down, pods are bound without a card: nothing is guaranteed"
        yield warning(text, _ANEW)


def _no_answer(where: str, error: OSError) -> CheckProblem:
    match error:
        case ssl.SSLCertVerificationError():
            text, remedy = f"the extender's certificate is not valid for the scheduler: {error.verify_message}", _ANEW
        case ssl.SSLError():
            text, remedy = f"the extender and the scheduler's certificate do not fit: {error.reason or error}", _ANEW
        case ConnectionRefusedError():
            text, remedy = f"nobody listens on {where}: GPU pods wait", f"sudo systemctl restart edgegpu-plugin; {_LOG}"
        case TimeoutError():
            text, remedy = f"the extender on {where} does not answer within {_TIMEOUT_S:g} s", _LOG
        case _:
            text, remedy = f"the extender on {where} cannot be called: {error}", f"{_ANEW}; {_LOG}"
    return broken(text, remedy)
