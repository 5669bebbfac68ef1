"""The probe of a machine for its verification: systemd, API server, the scheduler's port, the extender."""

import base64
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgegpu_base.tls import client_context
from edgegpu_core.model import ResourceModel
from edgegpu_installer.changes import Deadline
from edgegpu_installer.cluster.client import ClusterClient
from edgegpu_installer.cluster.https import TlsTarget, ask
from edgegpu_installer.cluster.kinds import LEASE, NODE, POD, Json
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import Layout
from edgegpu_installer.machine.config_block import holds_block
from edgegpu_installer.machine.k3s import K3s
from edgegpu_installer.machine.programs import SYSTEM_PATH, run
from edgegpu_installer.machine.systemd import Systemd
from edgegpu_installer.scheduler.file import SERVER_NAME, ExtenderEntry, our_extender
from edgegpu_installer.verify.verify import (
    ExtenderCaller,
    MachineSample,
    Node,
    RunningPod,
    SchedulerStatus,
    WantedMachine,
    wait_until_well,
)

SCHEDULER = "https://127.0.0.1:10259"
"""The port of kube-scheduler with /healthz and, for the administrator, /configz, its configuration."""

OLD_SCHEDULER = "http://127.0.0.1:10251"
"""The scheduler's port up to k3s 1.22, which gives it no port with TLS."""

_FIRST_WITH_TLS = 24
"""The first Kubernetes minor version whose scheduler has no port without TLS."""

_CALL_S = 5.0
_OK, _NOT_FOUND = 200, 404
_WORDS = ("command failed", "level=fatal", "level=error", "panic:")
_LONGEST_WORDS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTargets:
    """What to probe. `kubeconfig`: the administrator's on a server, kubelet's own on an agent node."""

    system: Systemd
    kubeconfig: Path
    wanted: WantedMachine
    client: ExtenderEntry | None
    model: ResourceModel
    schedulers: tuple[str, ...] = (SCHEDULER,)
    """The addresses at which the scheduler may answer, in this order."""
    path: str = SYSTEM_PATH

    def look(self) -> MachineSample:
        """Return the state of the machine; it takes a few seconds at most and raises nothing when something fails."""
        try:
            unit = self.system.unit(f"{self.wanted.unit}.service")
        except InstallError as error:
            return MachineSample(invocation="", active=False, restarts=0, unseen=str(error))
        seen = MachineSample(invocation=unit.invocation, active=unit.is_active, restarts=unit.restarts)
        if not seen.active:
            return seen
        try:
            with ClusterClient.from_kubeconfig(self.kubeconfig, timeout_s=_CALL_S) as cluster:
                return self._inside(cluster, seen)
        except InstallError as error:
            return replace(seen, unseen=error.message)

    def last_words(self) -> str:
        """Return the line in which the last k3s that ended logged its error; empty when there is none."""
        command = ("journalctl", "-u", self.wanted.unit, "-n", "400", "-o", "cat", "--no-pager")
        lines = run(command, timeout_s=_CALL_S, path=self.path).out.splitlines()
        told = [line for line in lines if any(word in line for word in _WORDS)]
        return told[-1].strip()[:_LONGEST_WORDS] if told else ""

    def wait(
        self, before: MachineSample, deadline: Deadline, *, pause: Callable[[float], None], say: Callable[[str], None]
    ) -> None:
        """Wait until the machine is as wanted. Raises InstallError as `wait_until_well`."""
        look, last_words = self.look, self.last_words
        wait_until_well(self.wanted, before, look=look, last_words=last_words, deadline=deadline, pause=pause, say=say)

    def _inside(self, cluster: ClusterClient, seen: MachineSample) -> MachineSample:
        if not cluster.ready():
            return replace(seen, unseen="the API server is not ready")
        scheduler, extender = None, ""
        if self.wanted.has_scheduler:
            scheduler = self._scheduler(cluster)
            extender = _called(self.client) if self.client is not None else ""
        node: Node | None = None
        pods: tuple[RunningPod, ...] = ()
        if self.wanted.node:
            item = cluster.find(NODE, self.wanted.node)
            node = _node(item) if item is not None else None
            listed = cluster.items(POD, fields=f"spec.nodeName={self.wanted.node}")
            pods = tuple(_running(pod) for pod in listed if _asks(pod, self.model))
        return replace(seen, scheduler=scheduler, extender=extender, node=node, pods=pods)

    def _scheduler(self, cluster: ClusterClient) -> SchedulerStatus:
        access = cluster.access
        context = client_context(cert_pem=access.cert_pem, key_pem=access.key_pem, verify=False)
        way = TlsTarget(context=context, timeout_s=_CALL_S)
        place = answering(self.schedulers, way)
        try:
            health = ask(f"{place}/healthz", way)
            if health.status != _OK:
                return SchedulerStatus(f"/healthz answers {health.status}", (), elects=False)
            answer = ask(f"{place}/configz", way)
            config = json.loads(answer.body)["componentconfig"]
        except OSError as error:
            return SchedulerStatus(f"{place}: {error.strerror or error}", (), elects=False)
        except (ValueError, KeyError, TypeError):
            return SchedulerStatus(f"{place}/configz does not say yet what it was configured with", (), elects=False)
        status = configured(config)
        if not (status.elects and _field(config, "delayCacheUntilActive")):  # else only the leader reads the cluster
            status = replace(status, health=unready(place, way))
        return replace(status, renewed=_renewed(cluster)) if status.elects else status


def unready(place: str, way: TlsTarget) -> str:
    """Return why a scheduler is not ready to place pods, in words; empty when it is, or has no /readyz (up to 1.25).

    A scheduler is healthy while it still reads the cluster. Until it has, no pod is placed; its /readyz has the check
    `sched-handler-sync` (kubernetes 1.33 to 1.37, cmd/kube-scheduler/app/server.go).
    """
    try:
        answer = ask(f"{place}/readyz?verbose", way)
    except OSError as error:
        return f"{place}: {error.strerror or error}"
    if answer.status in {_OK, _NOT_FOUND}:
        return ""
    lines = answer.body.decode(errors="replace").splitlines()
    checks = [line.removeprefix("[-]") for line in lines if line.startswith("[-]")]
    return f"/readyz answers {answer.status}: {', '.join(checks)}"[:_LONGEST_WORDS].removesuffix(": ")


def configured(config: Mapping[str, Any]) -> SchedulerStatus:
    """Return the status of a scheduler that is well, by its configuration in /configz."""
    elects = _field(_field(config, "leaderElection") or {}, "leaderElect")
    return SchedulerStatus("", _callers(config), elects=bool(elects))


def schedulers_of(k3s: K3s) -> tuple[str, ...]:
    """Return the addresses at which the scheduler of a k3s may answer."""
    old = k3s.minor is not None and k3s.minor < _FIRST_WITH_TLS
    return (SCHEDULER, OLD_SCHEDULER) if old else (SCHEDULER,)


def answering(places: tuple[str, ...], way: TlsTarget) -> str:
    """Return the first address at which something answers, or the last one when nothing does."""
    for place in places[:-1]:
        try:
            ask(f"{place}/healthz", way)
        except OSError:
            continue
        return place
    return places[-1]


def k3s_verifier(
    layout: Layout,
    system: Systemd,
    k3s: K3s,
    *,
    node: str,
    model: ResourceModel,
    offers: bool,
    pause: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = lambda _: None,
) -> Callable[[Deadline], None]:
    """Read the state of a k3s machine, and return the function by which a transaction verifies its change.

    The function expects what is on the disk when it is called: a scheduler with our extender after an installation,
    without it after an uninstall, and either when another process finishes the transaction.

    Args:
        layout: the machine's paths.
        system: the machine's systemd.
        k3s: the machine's k3s.
        node: the name of its node, empty when no kubelet runs.
        model: the names of the resources.
        offers: whether the node shall offer both resources: it has cards, their driver is loaded, and we stay.
        pause: waits for a number of seconds.
        say: gets what is being waited for.
    """

    def targets_for(client: ExtenderEntry | None) -> ProbeTargets:
        wanted = WantedMachine(
            unit=k3s.unit.name,
            node=node,
            has_scheduler=k3s.is_server and not k3s.effective().on("disable-scheduler"),
            caller=None if client is None else ExtenderCaller(client.url, client.cert),
            resources=(model.memory_resource, model.core_resource) if offers else (),
        )
        return ProbeTargets(
            system=system,
            kubeconfig=layout.at(k3s.admin_kubeconfig),
            wanted=wanted,
            client=client,
            model=model,
            schedulers=schedulers_of(k3s),
        )

    before = targets_for(None).look()

    def verify(deadline: Deadline) -> None:
        targets_for(_client_on_disk(layout, k3s)).wait(before, deadline, pause=pause, say=say)

    return verify


def _client_on_disk(layout: Layout, k3s: K3s) -> ExtenderEntry | None:
    """Return our extender's entry in the scheduler's file; None when k3s is not configured with a file of ours.

    Raises:
        InstallError: the file is no scheduler configuration.
    """
    try:
        config = layout.at(k3s.config)
        if not layout.at(k3s.drop_in).exists() and not (config.exists() and holds_block(config.read_text())):
            return None
        text = layout.at(k3s.scheduler_file).read_text()
    except (OSError, UnicodeDecodeError):
        return None
    try:
        return our_extender(text)
    except ValueError as error:
        raise InstallError(f"cannot read the scheduler's configuration: {error}", remedy="install again") from error


def _called(client: ExtenderEntry) -> str:
    """Call our extender as the scheduler does; return what is wrong, empty when nothing is."""
    try:
        context = client_context(ca_pem=client.ca, cert_pem=client.cert, key_pem=client.key, verify=bool(client.ca))
        way = TlsTarget(context=context, server_name=SERVER_NAME, timeout_s=_CALL_S)
        answer = ask(f"{client.url}/healthz", way)
    except OSError as error:
        return str(error.strerror or error)
    if answer.status != _OK:
        return f"it answers {answer.status} {answer.body.decode(errors='replace').strip()[:_LONGEST_WORDS]}"
    return ""


def _callers(config: Mapping[str, Any]) -> tuple[ExtenderCaller, ...]:
    found = []
    for one in _field(config, "extenders") or []:
        data = _field(_field(one, "tlsConfig") or {}, "certData") or ""
        url = str(_field(one, "urlPrefix") or "")
        found.append(ExtenderCaller(url, base64.b64decode(data).decode(errors="replace")))
    return tuple(found)


def _field(config: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401  (JSON)
    """Return a field of the scheduler's configuration: up to 1.35 /configz has Go's names, from 1.36 on those of v1."""
    return next((value for key, value in config.items() if key.lower() == name.lower()), None)


def _renewed(cluster: ClusterClient) -> str:
    lease = cluster.find(LEASE, "kube-scheduler", "kube-system")
    return str(((lease or {}).get("spec") or {}).get("renewTime") or "")


def _node(item: Json) -> Node:
    status = item.get("status") or {}
    ready: Json = next((c for c in status.get("conditions") or [] if c.get("type") == "Ready"), {})
    offered = status.get("allocatable") or {}
    return Node(
        ready=ready.get("status") == "True",
        heartbeat=str(ready.get("lastHeartbeatTime") or ""),
        offers=frozenset(str(name) for name, amount in offered.items() if str(amount) != "0"),
    )


def _asks(pod: Json, model: ResourceModel) -> bool:
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    limits = [(container.get("resources") or {}).get("limits") or {} for container in containers]
    return any(name in asked for asked in limits for name in (model.memory_resource, model.core_resource))


def _running(pod: Json) -> RunningPod:
    meta, status = pod.get("metadata") or {}, pod.get("status") or {}
    containers = frozenset(
        (str(one.get("name")), str(one.get("containerID", "")))
        for one in status.get("containerStatuses") or []
        if "running" in (one.get("state") or {}) and not one.get("restartCount")
    )
    name = f"{meta.get('namespace')}/{meta.get('name')}"
    return RunningPod(name, str(meta.get("uid")), str(status.get("phase")), str(status.get("reason") or ""), containers)
