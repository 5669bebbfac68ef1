"""The demo's cluster on this box: its k3s through kubectl, its cards, its plugin; all in a namespace of its own."""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgegpu_agent.cli.clients.document import StatusDocument
from edgegpu_agent.cli.clients.plugin import fetch_status
from edgegpu_agent.cli.common import CliError
from edgegpu_agent.demo.model import LABEL, DemoError, DemoService, Json, deployment
from edgegpu_core.deviceid import card_of
from edgegpu_core.podview import POLICY_ANNOTATION
from edgegpu_plugin.errors import PodResourcesError
from edgegpu_plugin.kubelet.pods import PodResources

POD_RESOURCES = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_LOOK_S = 0.5
_GONE_S = 90.0
_K3S_KUBECONFIG = Path("/etc/rancher/k3s/k3s.yaml")
_CALL_S = 60.0


class KubectlError(DemoError):
    """A failed call of kubectl; the text includes kubectl's own."""


class DemoKubectl:
    """A runner of kubectl; each call has a deadline."""

    def __init__(self, command: tuple[str, ...], environment: dict[str, str]) -> None:
        self._command = command
        self._environment = environment

    @classmethod
    def find(cls) -> "DemoKubectl":
        """Return the kubectl of this box: `kubectl`, else `k3s kubectl`.

        Raises:
            DemoError: this box has no kubectl.
        """
        environment = dict(os.environ)
        if "KUBECONFIG" not in environment and os.access(_K3S_KUBECONFIG, os.R_OK):
            environment["KUBECONFIG"] = str(_K3S_KUBECONFIG)
        if shutil.which("kubectl"):
            return cls(("kubectl",), environment)
        if shutil.which("k3s"):
            return cls(("k3s", "kubectl"), environment)
        raise DemoError(
            "cannot run on this box: there is no kubectl and no k3s on the PATH; "
            "run it on a k3s server; the simulated demo is `make demo` in the repository"
        )

    def run(self, *args: str, given: str | None = None, timeout_s: float = _CALL_S) -> str:
        """Return the output of a kubectl call.

        Raises:
            KubectlError: the call failed, or took too long.
        """
        try:
            done = subprocess.run(
                [*self._command, *args],
                input=given,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
                env=self._environment,
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"cannot {args[0]}: kubectl did not end within {timeout_s:g} s") from error
        if done.returncode:
            text = done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}"
            raise KubectlError(f"cannot {args[0]} with kubectl: {text}")
        return done.stdout

    def json(self, *args: str) -> Any:  # noqa: ANN401  (what kubectl prints)
        """Return the output of a kubectl call with `-o json`.

        Raises:
            KubectlError: the call failed.
        """
        return json.loads(self.run(*args, "-o", "json"))


def booked_cards(socket: Path, pod: Json) -> frozenset[str] | None:
    """Return the cards that PodResources names for a pod; None where this user may not ask, or kubelet is too old.

    Raises:
        DemoError: kubelet does not answer.
    """
    try:
        listed = PodResources(socket).list()
    except PermissionError:
        return None
    except PodResourcesError as error:
        raise DemoError(str(error)) from error
    if listed is None:
        return None
    wanted = (pod["metadata"]["namespace"], pod["metadata"]["name"])
    return frozenset(card_of(device) for one in listed if (one.namespace, one.pod) == wanted for device in one.ids)


class RealBed:
    """The cluster of this machine, for the demo's scenarios."""

    def __init__(self, kubectl: DemoKubectl, *, socket: Path, namespace: str, image: str, policy: str) -> None:
        self._kubectl = kubectl
        self._socket = socket
        self._image = image
        self.namespace = namespace
        self.policy = policy
        self.timeout_s = 180.0
        status = self.status()
        self.node = status.node
        self._resources: dict[str, str] = dict(status.raw["resources"])

    @property
    def memory_resource(self) -> str:
        """The name of the memory resource."""
        return self._resources["memory"]

    def manifest(self, service: DemoService) -> Json:
        """Return the service's Deployment, bound to this node and to the demo's policy."""
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self.node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
        return deployment(
            service,
            namespace=self.namespace,
            resources=self._resources,
            image=self._image,
            annotations={POLICY_ANNOTATION: self.policy},
            more={"affinity": {"nodeAffinity": required}, "tolerations": [{"operator": "Exists"}]},
        )

    def apply(self, manifest: Json) -> None:
        """Create or change a Deployment."""
        self._kubectl.run("apply", "-f", "-", given=json.dumps(manifest))

    def delete(self, service: str) -> None:
        """Delete a service's Deployment; its pods follow."""
        self._kubectl.run("delete", "deployment", service, "-n", self.namespace, "--ignore-not-found", "--wait=false")

    def pods(self, service: str) -> list[Json]:
        """Return a service's pods."""
        found: list[Json] = self._kubectl.json("get", "pods", "-n", self.namespace, "-l", f"{LABEL}={service}")["items"]
        return found

    def events(self, pod: Json) -> list[str]:
        """Return a pod's events, oldest first."""
        chosen = f"involvedObject.uid={pod['metadata']['uid']}"
        found = self._kubectl.json("get", "events", "-n", self.namespace, "--field-selector", chosen)["items"]
        found.sort(key=lambda event: int(event["metadata"].get("resourceVersion") or 0))
        return [f"{event['reason']}: {event['message']}" for event in found]

    def sees(self, pod: Json) -> str:
        """Return what `nvidia-smi -L` prints in a pod's container; kubectl's error where it cannot run."""
        try:
            return self._kubectl.run("exec", "-n", self.namespace, pod["metadata"]["name"], "--", "nvidia-smi", "-L")
        except KubectlError as error:
            return str(error)

    def kubelet_says(self, pod: Json) -> frozenset[str] | None:
        """Return the cards that PodResources names for a pod; None where only root may ask."""
        return booked_cards(POD_RESOURCES, pod)

    def status(self) -> StatusDocument:
        """Return the plugin's status document."""
        try:
            return fetch_status(self._socket)
        except CliError as error:
            raise DemoError(f"{error.text}; {error.remedy}") from error

    def pause(self) -> None:
        """Wait half a second."""
        time.sleep(_LOOK_S)

    def remove(self) -> None:
        """Delete the namespace with all its contents, and wait until it is gone."""
        try:
            self._kubectl.run("delete", "namespace", self.namespace, "--ignore-not-found", timeout_s=_GONE_S)
        except KubectlError as error:
            raise DemoError(f"{error}; remove what is left with `kubectl delete namespace {self.namespace}`") from error


@contextmanager
def real(*, socket: Path, image: str, policy: str) -> Iterator[RealBed]:
    """Check that this box can run the demo, create a namespace, and remove it whatever happens.

    Raises:
        DemoError: there is no kubectl, no plugin, no card, or no right to create a namespace.
    """
    kubectl = DemoKubectl.find()
    bed = RealBed(kubectl, socket=socket, namespace=f"edgegpu-demo-{secrets.token_hex(3)}", image=image, policy=policy)
    _check(kubectl, bed)
    try:
        kubectl.run("create", "namespace", bed.namespace)
        yield bed
    finally:
        with contextlib.suppress(KeyboardInterrupt):  # the deletion is requested by then; a second Ctrl-C ends the wait
            bed.remove()


def _check(kubectl: DemoKubectl, bed: RealBed) -> None:
    status = bed.status()
    if not status.has_cards:
        raise DemoError(f"cannot run on {bed.node}: its role is {status.role}; run the demo on a node with cards")
    if not any(card.healthy for card in status.cards):
        raise DemoError(f"cannot run on {bed.node}: no card; {status.driver_problem or 'see `edgegpu status`'}")
    if not status.registered:
        raise DemoError(f"cannot run on {bed.node}: the plugin waits for {status.waiting_for or 'kubelet'}")
    kubectl.run("get", "node", bed.node)
