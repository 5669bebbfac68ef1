"""Accounts of least privilege: made once with the administrator's rights, so that those are not needed afterwards."""

import base64
import binascii
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_base.kube.kubeconfig import ApiAccess
from edgegpu_installer.cluster import kubeconfig
from edgegpu_installer.cluster.client import ClusterClient, ClusterError
from edgegpu_installer.cluster.kinds import (
    ACCESS_REVIEW,
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    ROLE_BINDING,
    SECRET,
    Json,
    ObjectKind,
    kind_of,
    name_of,
    namespace_of,
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
"""A right that the account must have: the last that its rules give."""

_EVERYTHING = {"verb": "*", "group": "*", "resource": "*"}


@dataclass(frozen=True, slots=True)
class ControllerWait:
    """How long is waited for the cluster's own controllers, by which clock."""

    token_s: float = _TOKEN_S
    gone_s: float = _GONE_S
    every_s: float = _EVERY_S
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def until(self, probe: Callable[[], bool], deadline_s: float) -> bool:
        """Ask until the answer is yes or the time is up; return the last answer."""
        ends = self.clock() + deadline_s
        while not probe():
            if self.clock() >= ends:
                return False
            self.sleep(self.every_s)
        return True


@dataclass(frozen=True, slots=True)
class JoinCredentials:
    """What an agent node needs to reach the API server under its account. The token stays out of its repr."""

    server: str
    ca_pem: str
    token: str = field(repr=False)

    def kubeconfig(self) -> str:
        """Return the kubeconfig that says this."""
        return kubeconfig.render(server=self.server, ca_pem=self.ca_pem, token=self.token)


@dataclass(frozen=True, slots=True)
class AccountRemoval:
    """What a removal of the accounts did: objects by kind and name, gone or still going."""

    gone: tuple[str, ...]
    left: tuple[str, ...] = ()


def grant(cluster: ClusterClient, rights: ClusterRights, *, pace: ControllerWait | None = None) -> None:
    """Make the rights' objects be as the release says; running it again changes nothing.

    Raises:
        ClusterError: the API server refuses, or is away.
        InstallError: the namespace of an earlier installation does not go.
    """
    for item in rights.items:
        if kind_of(item) == NAMESPACE:
            _ensure_namespace(cluster, item, pace or ControllerWait())
        else:
            _apply(cluster, item)


def mint(
    cluster: ClusterClient,
    rights: ClusterRights,
    account: Account,
    *,
    server: str = "",
    pace: ControllerWait | None = None,
) -> str:
    """Return the kubeconfig of an account, the same text each time while the account lives.

    Args:
        cluster: the API server, as the administrator; `grant` has been called.
        rights: of the release.
        account: whose.
        server: the address in the kubeconfig; this machine's own, from the administrator's kubeconfig, by default
            (k3s: https://127.0.0.1:6443, or the port that `--https-listen-port` set).
        pace: how long the token is waited for.

    Raises:
        InstallError: no token came, or no CA is known.
    """
    return join(cluster, rights, account, server=server, pace=pace).kubeconfig()


def join(
    cluster: ClusterClient,
    rights: ClusterRights,
    account: Account,
    *,
    server: str = "",
    pace: ControllerWait | None = None,
) -> JoinCredentials:
    """Return what a machine needs to be this account, once the cluster has made the token. Arguments as for `mint`.

    Raises:
        InstallError: no token came, or no CA is known.
    """
    pace = pace or ControllerWait()
    name, space = rights.secret(account), rights.namespace
    found: dict[str, str] = {}

    def filled() -> bool:
        found.update(_decoded(cluster.get(SECRET, name, space).get("data") or {}))
        return bool(found.get("token"))

    if not pace.until(filled, pace.token_s):
        raise InstallError(
            f"cannot get a token: {pace.token_s:.0f} s after the Secret {space}/{name} was made it has none",
            remedy="see that kube-controller-manager runs (k3s: it is part of the server), then run it again",
        )
    ca_pem = cluster.access.ca_pem or found.get("ca.crt", "")
    if not ca_pem:
        raise InstallError(
            f"cannot write a kubeconfig for {account}: neither the administrator's nor the Secret names a CA",
            remedy="name a kubeconfig with certificate-authority-data",
        )
    return JoinCredentials(server or cluster.access.server, ca_pem, found["token"])


def usable(path: Path, account: Account, *, timeout_s: float = 5.0) -> bool:
    """Say whether a kubeconfig works now and is this account's in rights: enough, and not an administrator's.

    False as well where it cannot be read. A file that is usable is kept to the byte.

    Raises:
        ClusterError: the API server is away, so that nothing can be said.
    """
    try:
        access = kubeconfig.read(path)
    except InstallError:
        return False
    return works(access, account, timeout_s=timeout_s)


def works(access: ApiAccess, account: Account, *, timeout_s: float = 5.0) -> bool:
    """Say whether this way in has the account's rights, and is not an administrator's. Raises as `usable`."""
    try:
        with ClusterClient(access, timeout_s=timeout_s) as cluster:
            return _may(cluster, _REPRESENTATIVE[account]) and not _may(cluster, _EVERYTHING)
    except ClusterError as error:
        if error.is_unreached and not _is_distrust(error):
            raise
        return False


def remove(cluster: ClusterClient, rights: ClusterRights, *, pace: ControllerWait | None = None) -> AccountRemoval:
    """Delete every object of the rights, the namespace last, and wait until all are gone.

    Objects of the same name that others have put into the namespace go with it; what does not go in time is said.

    Raises:
        ClusterError: the API server refuses, or is away.
    """
    pace = pace or ControllerWait()
    there = [item for item in reversed(rights.items) if _delete(cluster, item)]
    left: list[Json] = []

    def gone() -> bool:
        left[:] = [item for item in there if cluster.find(*_place(item)) is not None]
        return not left

    pace.until(gone, pace.gone_s)
    return AccountRemoval(tuple(_said(item) for item in there if item not in left), tuple(_said(item) for item in left))


def named(rights: ClusterRights) -> tuple[str, ...]:
    """Return the rights' objects by kind and name."""
    return tuple(_said(item) for item in rights.items)


def present(cluster: ClusterClient, rights: ClusterRights) -> tuple[str, ...]:
    """Return which of the rights' objects are in the cluster now. Raises ClusterError."""
    return tuple(_said(item) for item in rights.items if cluster.find(*_place(item)) is not None)


def _ensure_namespace(cluster: ClusterClient, item: Json, pace: ControllerWait) -> None:
    """Create the namespace where it is not; one that is being deleted takes nothing in, so its end is waited for."""
    name = name_of(item)

    def settled() -> bool:
        found = cluster.find(NAMESPACE, name)
        return found is None or "deletionTimestamp" not in found["metadata"]

    if not pace.until(settled, pace.gone_s):
        raise InstallError(
            f"cannot use the namespace {name}: it is being deleted, and something in it does not go",
            remedy=f"see what holds it: k3s kubectl get namespace {name} -o yaml",
        )
    if cluster.find(NAMESPACE, name) is None:
        cluster.apply(item)


def _apply(cluster: ClusterClient, item: Json) -> None:
    try:
        cluster.apply(item)
    except ClusterError as error:
        # What a binding grants cannot be changed in place: one that names another role is made anew.
        if not error.is_invalid or kind_of(item) not in {CLUSTER_ROLE_BINDING, ROLE_BINDING}:
            raise
        _delete(cluster, item)
        cluster.apply(item)


def _delete(cluster: ClusterClient, item: Json) -> bool:
    return cluster.delete(*_place(item))


def _place(item: Json) -> tuple[ObjectKind, str, str]:
    return kind_of(item), name_of(item), namespace_of(item)


def _said(item: Json) -> str:
    kind, name, space = _place(item)
    if not kind.namespaced:
        return f"{kind.kind} {name}"
    return f"{kind.kind} {space}/{name}"


def _decoded(data: dict[str, str]) -> dict[str, str]:
    try:
        return {key: base64.b64decode(value).decode("ascii") for key, value in data.items()}
    except (binascii.Error, UnicodeDecodeError):
        return {}


def _may(cluster: ClusterClient, right: dict[str, str]) -> bool:
    """Ask the API server whether this account has a right; every account may ask that about itself."""
    asked = {
        "apiVersion": ACCESS_REVIEW.version,
        "kind": ACCESS_REVIEW.kind,
        "metadata": {},
        "spec": {"resourceAttributes": right},
    }
    return bool((cluster.create(asked).get("status") or {}).get("allowed"))


def _is_distrust(error: ClusterError) -> bool:
    """Whether the connection failed because the file's CA is not this API server's (any more)."""
    return "CERTIFICATE_VERIFY_FAILED" in str(error)
