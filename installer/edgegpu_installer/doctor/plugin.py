"""Checks of the plugin: its service, its configuration, and the resources that it registered with kubelet."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from edgegpu_core.injection import NodeVersions, major_minor
from edgegpu_core.reasons import (
    BY_NAME_REMEDY,
    MPS_REASON,
    NEWER_DRIVER_REMEDY,
    NO_MEMORY_REASON,
    loose_words,
    node_words,
    start_wait_words,
    unknown_functions,
)
from edgegpu_installer.doctor.probe import BoxProbe, SkippedCheck
from edgegpu_installer.doctor.units import is_known, last_words, restart_k3s, service_troubles, unit
from edgegpu_installer.doctor.verdict import (
    NOT_INSTALLED,
    CheckProblem,
    CheckResult,
    broken,
    info,
    note,
    result_of,
    skipped,
    warning,
)
from edgegpu_installer.machine.facts import NodeKind
from edgegpu_installer.machine.other_plugins import other_plugins

SERVICE = "edgegpu-plugin"
_LOG = f"sudo journalctl -u {SERVICE} -e"
_START = f"sudo systemctl restart {SERVICE}"
_TAKEN = "already connected"
"""What kubelet 1.37 answers to a second Register of a socket."""

_FIRST_WITH_IDS = (1, 36)
"""The first kubelet that writes device ids into a pod's status by default (feature gate ResourceHealthStatus)."""
_MANY_IDS, _ID_BYTES = 400, 85


def check_plugin(probe: BoxProbe) -> CheckResult:
    """Check the plugin's service, its configuration and its status document."""
    service = unit(probe, SERVICE)
    if not is_known(service):
        return result_of(
            [broken("edgegpu is not installed: there is no edgegpu-plugin.service", "sudo edgegpu install")]
        )
    problems: list[CheckProblem] = []
    details: list[str] = []
    if probe.settings.problem:
        problems.append(
            broken(probe.settings.problem, f"sudoedit /etc/edgegpu/plugin.yaml && edgegpu config check && {_START}")
        )
    problems += [*_renamed(probe), *service_troubles(probe, service)]
    try:
        status = probe.status
    except SkippedCheck as unseen:
        problems += [broken(unseen.shut.text, _LOG)] if service.is_running else []
        details += last_words(probe, SERVICE)
    else:
        details.append(f"edgegpu-plugin {status.get('version', '')}, role {status.get('role', '')}")
        problems += _status_troubles(status)
    return result_of(problems, ok=f"runs as {'server' if probe.settings.has_extender else 'agent'}", details=details)


def _renamed(probe: BoxProbe) -> Iterator[CheckProblem]:
    """Yield that the machine has another name in its cluster than plugin.yaml has."""
    name, configured = probe.facts.certified_name, probe.settings.node
    if name and name != configured:
        yield broken(
            f"this machine is node {name} in its cluster, and node_name in /etc/edgegpu/plugin.yaml is {configured}: "
            "its cards are not offered under its name",
            f"sudo edgegpu install  # writes {name}; or give the machine its old name and restart k3s",
        )


def _status_troubles(status: Mapping[str, Any]) -> Iterator[CheckProblem]:
    problem = (status.get("driver") or {}).get("problem")
    if problem:
        yield broken(f"the plugin: {problem}", "see the check `driver`")
    wanted = status.get("unit_wanted_mib")
    if wanted is not None:
        now = status.get("unit_mib")
        yield warning(
            f"resources.unit_mib is {wanted}, and units are of {now} MiB until no pod of this node holds a share",
            f"stop the pods that `edgegpu pods` lists, or set resources.unit_mib back to {now}",
        )
    api = status.get("api") or {}
    if api.get("problem") or api.get("synced") is False:
        text = api.get("problem") or "the cluster has not been read yet"
        yield warning(f"the plugin and the API server: {text}", "see the check `kubeconfig`")
    refused = [row for row in status.get("pods") or () if row.get("state") == "refused"]
    for row in refused:
        yield warning(f"pod {row.get('namespace')}/{row.get('pod')} is refused: {row.get('reason')}", "edgegpu pods")


def check_resources(probe: BoxProbe) -> CheckResult:
    """Compare what the plugin registered with what kubelet offers in the Node object."""
    settings = probe.settings
    if not settings.has_plugin:
        return skipped("this machine offers no cards (role extender-only)")
    status = probe.status
    problems = [*_registration(probe, status), *_unheld_start(probe, status)]
    names = (settings.memory_resource, settings.core_resource)
    healthy = [card for card in status.get("cards") or () if card.get("healthy", True)]
    wanted = (sum(int(card.get("units", 0)) for card in healthy), 100 * len(healthy))
    try:
        allocatable = (probe.node.get("status") or {}).get("allocatable") or {}
    except SkippedCheck as unseen:
        if problems:
            return result_of(problems)
        return skipped(f"registered; the Node object was not seen: {unseen.shut.text} (see the check `kubeconfig`)")
    details = [f"{name} {allocatable.get(name, 'not there')}" for name in names]
    details += _start_wait_details(status)
    for name, number in zip(names, wanted, strict=True):
        problems += _offer(probe, name, str(allocatable.get(name, "")), number)
    problems += _written_ids(probe, status)
    return result_of(problems, ok=", ".join(details), details=details)


def _registration(probe: BoxProbe, status: Mapping[str, Any]) -> Iterator[CheckProblem]:
    kubelet = status.get("kubelet") or {}
    waiting_for = str(kubelet.get("waiting_for") or "kubelet")
    if not kubelet.get("registered") and _TAKEN in waiting_for:
        yield broken(
            f"kubelet has dropped the plugin and refuses its registration until k3s starts again: {waiting_for}",
            restart_k3s(probe),
        )
    elif not kubelet.get("registered"):
        yield broken(
            f"the plugin is not registered with kubelet: waiting for {waiting_for}",
            "sudo systemctl status 'k3s*'  # and has /etc/edgegpu/plugin.yaml another kubelet.device_plugins?",
        )
    root = Path(probe.facts.kubelet_folder)
    if probe.facts.kind is not NodeKind.NONE and probe.settings.kubelet_folder != root:
        yield broken(
            f"kubelet's --root-dir is {root}, and kubelet.folder in /etc/edgegpu/plugin.yaml is "
            f"{probe.settings.kubelet_folder}: units of pods that have ended do not become free",
            "sudo edgegpu install",
        )
    if kubelet.get("checkpoint"):
        yield broken(f"kubelet's book cannot be read: {kubelet['checkpoint']}", restart_k3s(probe))


def _unheld_start(probe: BoxProbe, status: Mapping[str, Any]) -> Iterator[CheckProblem]:
    """Yield that kubelet does not wait at its start where plugin.yaml names a file for that."""
    wait = _start_wait(status)
    if probe.settings.kubelet_resolv_conf is not None and wait.get("waits") is False:
        yield warning(
            f"kubelet does not wait for the devices at its start, and may fail pods then: {wait.get('why')}",
            "sudo edgegpu install --wait-at-start on  # it says what is in the way; docs/box/restarts.md has the rest",
        )


def _start_wait(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the plugin says of kubelet's last start; nothing of an older plugin."""
    wait: Mapping[str, Any] = (status.get("kubelet") or {}).get("start_wait") or {}
    return wait


def _start_wait_details(status: Mapping[str, Any]) -> Iterator[str]:
    if wait := _start_wait(status):
        answer = start_wait_words(wait.get("waits"), str(wait.get("why")))
        yield f"kubelet waits for the devices at its start: {answer}"


def _written_ids(probe: BoxProbe, status: Mapping[str, Any]) -> Iterator[CheckProblem]:
    """Yield a note of pods with so many devices that what kubelet writes of them weighs on the API server's disk."""
    version = major_minor(NodeVersions.of(probe.node).kubelet)
    if version is None or version < _FIRST_WITH_IDS or _are_ids_off(probe):
        return
    for row in status.get("pods") or ():
        ids = int(row.get("memory_units") or 0) + int(row.get("core") or 0)
        if ids >= _MANY_IDS:
            yield note(
                f"kubelet writes the ids of {ids} devices ({ids * _ID_BYTES // 1000} kB) into the status of pod "
                f"{row.get('namespace')}/{row.get('pod')}, each 80 s or so",
                "docs/box/costs.md has the lines for k3s's configuration that end this",
            )


def _are_ids_off(probe: BoxProbe) -> bool:
    arguments = probe.k3s.effective().values("kubelet-arg") if probe.k3s is not None else ()
    return any("ResourceHealthStatus=false" in value.text for value in arguments)


def _offer(probe: BoxProbe, name: str, offered: str, wanted: int) -> Iterator[CheckProblem]:
    remedy = f"sleep 15; {_START}  # for 15 s after a start of k3s that is usual"
    if offered in {"", "0"} and wanted:
        yield broken(
            f"kubelet does not know the plugin, or has dropped it: the node offers no {name}, the plugin {wanted}",
            f"{remedy}; if that does not help: {restart_k3s(probe)}",
        )
    elif offered not in {"", str(wanted)}:
        yield warning(f"the node offers {offered} {name}, the plugin {wanted}", remedy)


def check_double(probe: BoxProbe) -> CheckResult:
    """Find other device plugins by their sockets, by the resources that the node offers, and by their pods."""
    facts, settings = probe.facts, probe.settings
    found = list(other_plugins(facts, memory=settings.memory_resource, core=settings.core_resource))
    problems = [broken(f"{one.name} hands out the same cards: {one.seen}", one.remedy) for one in found]
    served = [socket.name for socket in facts.sockets if socket.is_served]
    left = [socket.name for socket in facts.sockets if not socket.is_served]
    details = [f"sockets of other plugins: {', '.join(served)}"] if served else []
    details += [f"names beside them on which nobody answers: {', '.join(left)}"] if left else []
    if facts.node is None or facts.node.why:
        details.append(f"the node was not seen: {facts.node.why if facts.node else 'there is no k3s'}")
    return result_of(problems, ok="no other GPU plugin", details=details)


def _selftest_troubles(status: Mapping[str, Any]) -> Iterator[CheckProblem]:
    """Yield what the node's self-test found wrong, card by card."""
    for row in (status.get("selftest") or {}).get("cards") or ():
        text = f"self-test of card {row.get('index')}: {row.get('reason')}"
        remedy = str(row.get("remedy") or "sudo edgegpu selftest")
        if row.get("verdict") in {"loose", "harmful"}:
            yield broken(text, remedy)
        elif row.get("verdict") == "inconclusive":
            yield warning(text, remedy)


def _not_tried(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the self-test could not try, card by card: no fault of the limiter."""
    for row in (status.get("selftest") or {}).get("cards") or ():
        for name, why in (row.get("not_tried") or {}).items():
            yield f"self-test of card {row.get('index')}: {name} was not tried: {why}"


def _driver_notes(status: Mapping[str, Any]) -> Iterator[CheckProblem]:
    """Yield what is unusual about the driver, once for all cards: they have one driver.

    It is newer than the limiter's list of functions, has others, or its pointers are not its symbols.
    """
    rows = (status.get("selftest") or {}).get("cards") or ()
    for key, remedy in (("newer_driver", NEWER_DRIVER_REMEDY), ("by_name", BY_NAME_REMEDY)):
        for text in sorted({str(row[key]) for row in rows if row.get(key)}):
            yield warning(text, remedy)
    if unknown := [str(name) for name in (status.get("driver") or {}).get("unknown_functions") or ()]:
        yield warning(unknown_functions(unknown), NEWER_DRIVER_REMEDY)


def _small_shares(status: Mapping[str, Any], states: list[Mapping[str, Any]]) -> Iterator[CheckProblem]:
    """Yield the cards on which a container is held to less than a CUDA context takes there, so that none starts."""
    rows = (status.get("selftest") or {}).get("cards") or ()
    takes = {row["card"]: row["context_mib"] for row in rows if row.get("context_mib")}
    small = {
        one["card"]
        for state in states
        for one in state.get("cards") or ()
        if 0 < one["limit_mib"] < takes.get(one["card"], 0)
    }
    unit_mib = int(status.get("unit_mib") or 1)
    for card in sorted(small):
        least = -(-takes[card] // unit_mib)
        yield warning(
            f"a container is held to less than a CUDA context takes on card {card} ({takes[card]} MiB): its programs "
            "get CUDA_ERROR_OUT_OF_MEMORY at their first call",
            f"give it {least} units or more; `edgegpu pods` shows what each has",
        )


def check_limiter(probe: BoxProbe) -> CheckResult:
    """Report how shares are enforced on containers."""
    if not probe.settings.has_plugin:
        return skipped("this machine has no cards to share (role extender-only)")
    preload = (probe.text("/etc/ld.so.preload") or "").split()
    strange = [path for path in preload if any(word in path for word in ("vgpu", "cuda", "hami", "nvshare"))]
    if strange:
        return result_of(
            [warning(f"/etc/ld.so.preload of this machine loads {', '.join(strange)}", "sudoedit /etc/ld.so.preload")],
        )
    if not probe.installed:
        return skipped(NOT_INSTALLED)
    status = probe.status
    mode, problem = str(status.get("isolation") or "none"), str(status.get("isolation_problem") or "")
    states = [row["isolation"] for row in status.get("pods") or () if row.get("isolation")]
    if mode == "none" and not problem and all(one["state"] == "off" for one in states):
        return info("shares are placed, not enforced (isolation.mode none)")
    loose = [one["reason"] for one in states if one["state"] == "degraded"]
    tried = list(_selftest_troubles(status))
    is_the_tests = bool(tried) and problem.startswith("card ")
    problems = [_isolation_problem(problem)] if problem and not is_the_tests else []
    problems += tried
    problems += _driver_notes(status)
    problems += [warning(f"a container is {_loose(reason)}", "edgegpu pods") for reason in loose]
    problems += _small_shares(status, states)
    held = sum(one["state"] == "enforced" for one in states)
    many = "1 container to its memory" if held == 1 else f"{held} containers to their memory"
    by_mps = ", and its compute by MPS" if held == 1 else ", and their compute by MPS"
    free = sum(one["state"] == "off" for one in states)
    why = "" if mode == "none" else ", by its pod's choice"
    chosen = f"; {free} not{why}" if free else ""
    problems += list(_notes(states))
    ok = f"the limiter holds {many}{by_mps if mode == 'mps' else ''}{chosen}"
    return result_of(problems, ok=ok, details=list(_not_tried(status)))


def _notes(states: Iterable[Mapping[str, Any]]) -> Iterator[CheckProblem]:
    """Yield what containers should get otherwise, each text once."""
    for text in dict.fromkeys(text for state in states for text in state.get("notes") or ()):
        yield warning(f"a container is without what it asks for: {text}", "edgegpu pods")


def _isolation_problem(problem: str) -> CheckProblem:
    """Return a problem of the node; one of MPS alone leaves all held, its compute by time."""
    if problem.startswith(MPS_REASON):
        return warning(node_words(problem), "systemctl status edgegpu-mps")
    return broken(node_words(problem), _LOG)


def _loose(reason: str) -> str:
    if reason.startswith(MPS_REASON):
        return f"held to its compute by time: {reason.removeprefix(MPS_REASON)}"
    if reason.startswith(NO_MEMORY_REASON):
        return f"without card memory: {reason.removeprefix(NO_MEMORY_REASON)}"
    return loose_words(reason)
