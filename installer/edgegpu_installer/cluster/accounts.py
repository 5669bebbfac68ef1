"""Accounts of least privilege, made once with the administrator's rights, which are not needed afterwards."""

import base64
import binascii
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_installer.cluster import kubeconfig
from edgegpu_installer.cluster.client import ClusterClient, ClusterError
from edgegpu_installer.cluster.kinds import (
    ACCESS_REVIEW,
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    ROLE_BINDING,
    SECRET,
    Json,
    key_of,
    kind_of,
    name_of,
)
from edgegpu_installer.cluster.rbac import Account, ClusterRights
from edgegpu_installer.errors import InstallError

_TOKEN_S = 30.0
_GONE_S = 60.0
_EVERY_S = 0.2

_REPRESENTATIVE = {
    Account.SERVER: {"verb": "create", "group": "", "resource": "pods", "subresource": "binding"},
    Account.AGENT: {"verb": "patch", "group": "", "resource": "nodes"},
    Account.LIMITS: {
        "verb": "update",
        "group": "coordination.k8s.io",
        "resource": "leases",
        "namespace": "kube-system",
        "name": "edgegpu-app-limits",
    },
}
"""For each account a right that it must have: the last one in its rules."""

_EVERYTHING = {"verb": "*", "group": "*", "resource": "*"}


@dataclass(frozen=True, slots=True)
class ControllerWait:
    """How long to wait for the cluster's own controllers, and by which clock."""

    token_s: float = _TOKEN_S
    gone_s: float = _GONE_S
    every_s: float = _EVERY_S
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def until(self, probe: Callable[[], bool], deadline_s: float) -> bool:
        """Call `probe` until it returns True or the time is up; return its last answer."""
        ends = self.clock() + deadline_s
        while not probe():
            if self.clock() >= ends:
                return False
            self.sleep(self.every_s)
        return True


@dataclass(frozen=True, slots=True)
class JoinCredentials:
    """What an agent node needs to reach the API server under its account. The repr has no token."""

    server: str
    ca_pem: str
    token: str = field(repr=False)

    def kubeconfig(self) -> str:
        """Return a kubeconfig with these credentials; equal credentials give equal bytes."""
        return kubeconfig.render(server=self.server, ca_pem=self.ca_pem, token=self.token)


@dataclass(frozen=True, slots=True)
class AccountRemoval:
    """The result of removing accounts: objects by kind and name, gone or still being deleted."""

    gone: tuple[str, ...]
    left: tuple[str, ...] = ()


def grant(cluster: ClusterClient, rights: ClusterRights, *, pace: ControllerWait | None = None) -> None:
    """Create or update the objects of the rights; a second call changes nothing.

    Raises:
        ClusterError: the API server refuses, or does not answer.
        InstallError: the namespace of an earlier installation does not get deleted.
    """
    for item in rights.items:
        if kind_of(item) == NAMESPACE:
            _ensure_namespace(cluster, item, pace or ControllerWait())
        else:
            _apply(cluster, item)


def join(
    cluster: ClusterClient, rights: ClusterRights, account: Account, *, pace: ControllerWait | None = None
) -> JoinCredentials:
    """Return the credentials of an account once the cluster has made its token; the same while the account lives.

    Their server is this machine's own, from the administrator's kubeconfig (k3s: https://127.0.0.1:6443, or the port of
    `--https-listen-port`).

    Args:
        cluster: the API server, as the administrator; `grant` has been called.
        rights: of the release.
        account: the account.
        pace: how long to wait for the token.

    Raises:
        InstallError: no token came, or no CA is known.
    """
    pace = pace or ControllerWait()
    name, space = account.value, rights.namespace  # its Secret has its name
    found: dict[str, str] = {}

    def filled() -> bool:
        found.update(_decoded(cluster.get(SECRET, name, space).get("data") or {}))
        return bool(found.get("token"))

    if not pace.until(filled, pace.token_s):
        raise InstallError(
            f"cannot get a token: {pace.token_s:.0f} s after the Secret {space}/{name} was made it has none",
            remedy="check that kube-controller-manager runs (k3s: in the server), then run this command again",
        )
    ca_pem = cluster.access.ca_pem or found.get("ca.crt", "")
    if not ca_pem:
        raise InstallError(
            f"cannot write a kubeconfig for {account}: neither the administrator's kubeconfig nor the Secret has a CA",
            remedy="name a kubeconfig with certificate-authority-data",
        )
    return JoinCredentials(cluster.access.server, ca_pem, found["token"])


def usable(path: Path, account: Account, *, timeout_s: float = 5.0) -> bool:
    """Return whether a kubeconfig works now and has the account's rights, and not an administrator's.

    It is False as well when the file cannot be read. A usable file is kept byte for byte.

    Raises:
        ClusterError: the API server does not answer, so that it is not known.
    """
    try:
        access = kubeconfig.read(path)
    except InstallError:
        return False
    try:
        with ClusterClient(access, timeout_s=timeout_s) as cluster:
            return _may(cluster, _REPRESENTATIVE[account]) and not _may(cluster, _EVERYTHING)
    except ClusterError as error:
        if error.is_unreached and not _is_distrust(error):
            raise
        return False


def remove(cluster: ClusterClient, rights: ClusterRights, *, pace: ControllerWait | None = None) -> AccountRemoval:
    """Delete every object of the rights, the namespace last, and wait until all are gone.

    Objects that others have put into the namespace are deleted too. `left` of the result has what is not gone in time.

    Raises:
        ClusterError: the API server refuses, or is away.
    """
    pace = pace or ControllerWait()
    there = [item for item in reversed(rights.items) if cluster.delete(*key_of(item))]
    left: list[Json] = []

    def gone() -> bool:
        left[:] = [item for item in there if cluster.find(*key_of(item)) is not None]
        return not left

    pace.until(gone, pace.gone_s)
    return AccountRemoval(tuple(_said(item) for item in there if item not in left), tuple(_said(item) for item in left))


def named(rights: ClusterRights) -> tuple[str, ...]:
    """Return the rights' objects by kind and name."""
    return tuple(_said(item) for item in rights.items)


def present(cluster: ClusterClient, rights: ClusterRights) -> tuple[str, ...]:
    """Return the rights' objects that are in the cluster now, by kind and name. Raises ClusterError."""
    return tuple(_said(item) for item in rights.items if cluster.find(*key_of(item)) is not None)


def _ensure_namespace(cluster: ClusterClient, item: Json, pace: ControllerWait) -> None:
    """Create the namespace if it is missing, after waiting for one that is being deleted, which accepts no objects."""
    name = name_of(item)

    def settled() -> bool:
        found = cluster.find(NAMESPACE, name)
        return found is None or "deletionTimestamp" not in found["metadata"]

    if not pace.until(settled, pace.gone_s):
        raise InstallError(
            f"cannot use the namespace {name}: it is being deleted, and an object in it blocks the deletion",
            remedy=f"find that object: k3s kubectl get namespace {name} -o yaml",
        )
    if cluster.find(NAMESPACE, name) is None:
        cluster.apply(item)


def _apply(cluster: ClusterClient, item: Json) -> None:
    try:
        cluster.apply(item)
    except ClusterError as error:
        # A binding's role cannot be changed in place: the binding is deleted and created again.
        if not error.is_invalid or kind_of(item) not in {CLUSTER_ROLE_BINDING, ROLE_BINDING}:
            raise
        cluster.delete(*key_of(item))
        cluster.apply(item)


def _said(item: Json) -> str:
    kind, name, space = key_of(item)
    return f"{kind.kind} {space}/{name}" if kind.namespaced else f"{kind.kind} {name}"


def _decoded(data: dict[str, str]) -> dict[str, str]:
    try:
        return {key: base64.b64decode(value).decode("ascii") for key, value in data.items()}
    except (binascii.Error, UnicodeDecodeError):
        return {}


def _may(cluster: ClusterClient, right: dict[str, str]) -> bool:
    """Return whether this account has a right, as the API server says; every account may ask that about itself."""
    asked = {
        "apiVersion": ACCESS_REVIEW.version,
        "kind": ACCESS_REVIEW.kind,
        "metadata": {},
        "spec": {"resourceAttributes": right},
    }
    return bool((cluster.create(asked).get("status") or {}).get("allowed"))


def _is_distrust(error: ClusterError) -> bool:
    """Return whether the connection failed because the kubeconfig's CA is not, or no longer, the API server's."""
    return "CERTIFICATE_VERIFY_FAILED" in str(error)
