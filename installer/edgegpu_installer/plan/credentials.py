"""The kubeconfig and the certificates of this machine, minted by an installation or kept while they are good."""

import datetime as dt
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePosixPath

from edgegpu_installer.changes import FileChange
from edgegpu_installer.cluster import accounts, node_identity
from edgegpu_installer.cluster.client import ClusterClient, ClusterError
from edgegpu_installer.cluster.rbac import Account, ClusterRights
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import EXTENDER_CA, EXTENDER_CERT, EXTENDER_KEY, KUBECONFIG, Layout
from edgegpu_installer.plan import certificates
from edgegpu_installer.plan.certificates import Certificates, KeyPair
from edgegpu_installer.plan.site import Site
from edgegpu_installer.scheduler.file import our_extender

_SECRET = 0o600
_DATASTORE_FILES = ("state.db-wal", "state.db")


def server_kubeconfig(cluster: ClusterClient, rights: ClusterRights, layout: Layout) -> FileChange:
    """Grant edgegpu's rights and return the kubeconfig of a server's account; a working one is kept byte for byte.

    Raises:
        InstallError: the cluster made no token in time.
        ClusterError: the API server refuses, or does not answer.
    """
    accounts.grant(cluster, rights)
    if accounts.usable(layout.kubeconfig, Account.SERVER):
        return kept_kubeconfig(layout)
    text = accounts.join(cluster, rights, Account.SERVER).kubeconfig()
    return FileChange(KUBECONFIG, text.encode(), mode=_SECRET)


def kept_kubeconfig(layout: Layout) -> FileChange:
    """Return the existing kubeconfig; without one, a placeholder for a dry run."""
    path = layout.kubeconfig
    if path.is_symlink():
        return FileChange(KUBECONFIG, link_to=str(path.readlink()))
    try:
        return FileChange(KUBECONFIG, path.read_bytes(), mode=_SECRET)
    except FileNotFoundError:
        return FileChange(KUBECONFIG, b"(made by the installation)\n", mode=_SECRET)


def agent_kubeconfig(layout: Layout, kubelet_kubeconfig: str, join: str) -> FileChange:
    """Return an agent node's kubeconfig: that of the join token's account, else a link to kubelet's own.

    Without a token a node that has joined keeps its account while it works, or while the API server cannot be asked.

    Raises:
        InstallError: the token or kubelet's kubeconfig cannot be used.
    """
    if not join and _has_joined(layout):
        return kept_kubeconfig(layout)
    path = layout.at(kubelet_kubeconfig)
    try:
        own = node_identity.identity(path.read_text(), path=kubelet_kubeconfig)
        if not join:
            return node_identity.link(kubelet_kubeconfig)
        ca_pem = layout.at(own.ca_file).read_text()
    except OSError as error:
        raise InstallError(
            f"cannot act as this node: cannot read {error.filename}: {error.strerror}",
            "see that this node has joined its cluster (systemctl status k3s-agent), then install again",
        ) from error
    return FileChange(
        KUBECONFIG, node_identity.unpack(join).kubeconfig(ca_pem, server=own.server).encode(), mode=_SECRET
    )


def _has_joined(layout: Layout) -> bool:
    path = layout.kubeconfig
    if path.is_symlink() or not path.is_file():
        return False
    try:
        return accounts.usable(path, Account.AGENT)
    except ClusterError:
        return True


def extender_certificates(layout: Layout, scheduler_file: str, *, now: dt.datetime) -> Certificates:
    """Return the extender's certificates: the existing ones when they are valid for another year, else new ones."""
    existing = _existing(layout, scheduler_file)
    if existing is not None and certificates.usable(existing, now):
        return existing
    return certificates.make(now)


def _existing(layout: Layout, scheduler_file: str) -> Certificates | None:
    try:
        ca, cert, key = (layout.at(path).read_text() for path in (EXTENDER_CA, EXTENDER_CERT, EXTENDER_KEY))
        client = our_extender(layout.at(scheduler_file).read_text())
    except (OSError, ValueError):
        return None
    if client is None:
        return None
    return Certificates(ca=ca, server=KeyPair(cert, key), client=KeyPair(client.cert, client.key))


def settle_datastore(site: Site, layout: Layout, *, sync: Callable[[int], None] = os.fsync) -> None:
    """Sync the datastore of a k3s server with SQLite, so that what the API has confirmed is on the disk.

    k3s's SQLite syncs its log only now and then: a power cut loses the last writes, seconds or minutes of them, though
    the API has confirmed each (seen: accounts gone whose kubeconfig, synced by us, was there). When the files have been
    replaced meanwhile, SQLite has synced them itself. With another datastore nothing can be done.
    """
    if not (site.kind.is_k3s and site.kind.is_server):
        return
    folder = layout.at(str(PurePosixPath(site.admin_kubeconfig).parents[1])) / "db"
    for name in _DATASTORE_FILES:
        with suppress(OSError), (folder / name).open("rb") as file:  # missing with another datastore
            sync(file.fileno())
