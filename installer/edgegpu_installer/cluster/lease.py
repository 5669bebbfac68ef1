"""The install lease: a Lease in the cluster by which one server at a time restarts its k3s.

It is in kube-system, which exists before edgegpu's own namespace is made and after that is deleted, so that one lease
covers installs and uninstalls.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from edgegpu_base.process.clocks import boot_id
from edgegpu_installer.cluster.client import ClusterClient, ClusterError
from edgegpu_installer.cluster.kinds import LEASE, Json
from edgegpu_installer.cluster.lease_rule import (
    DURATION_S,
    RENEW_S,
    InstallLeaseRecord,
    LeaseAction,
    LeaseHolder,
    LeaseObservation,
    verdict,
)
from edgegpu_installer.errors import InstallError

NAMESPACE = "kube-system"
NAME = "edgegpu-install"

_LOOK_S = 2.0
_RELEASE_S = 10.0
_log = logging.getLogger(__name__)


class HeldError(InstallError):
    """Another process holds the lease; `record` says which and since when."""

    code = "BUSY"

    def __init__(self, record: InstallLeaseRecord, now: datetime | None) -> None:
        self.record = record
        super().__init__(
            f"cannot begin: {_who(record)} is changing this cluster's servers, {_when(record, now)}",
            "wait for its end and try again; if that machine is gone for good: "
            f"k3s kubectl -n {NAMESPACE} delete lease {NAME}",
        )


class LostError(InstallError):
    """Another process took the lease over, because this one could not renew it in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEnvironment:
    """The clocks of the holder's machine, and the function that says which processes live."""

    alive: Callable[[LeaseHolder], bool]
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    pause: Callable[[float], None] = time.sleep
    renew_s: float = RENEW_S


def this_process(node: str, root: Path = Path("/")) -> LeaseHolder:
    """Return this process as a lease holder; `node` is the machine's name in the cluster."""
    return LeaseHolder(node, os.getpid(), boot_id(root))


def lease_environment(root: Path = Path("/")) -> LeaseEnvironment:
    """Return the lease environment of this machine."""
    return LeaseEnvironment(alive=lambda holder: lives(holder, root))


def lives(holder: LeaseHolder, root: Path = Path("/")) -> bool:
    """Return whether a holder of this node lives: it is of this boot, and its process exists."""
    return holder.boot == boot_id(root) and (root / "proc" / str(holder.pid)).exists()


class InstallLease:
    """A held lease: a thread renews it; leaving the `with` releases and deletes it."""

    def __init__(
        self, cluster: ClusterClient, holder: LeaseHolder, version: str, *, environment: LeaseEnvironment
    ) -> None:
        self._cluster = cluster
        self._holder = holder
        self._version = version
        self._environment = environment
        self._lost: InstallLeaseRecord | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="install-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise when the lease is no longer ours; a renewal that fails for a while (k3s restarts) does not count.

        Raises:
            LostError: another process has taken the lease over.
        """
        if self._lost is not None:
            raise LostError(
                f"cannot go on: {_who(self._lost)} has taken the lease: this server was silent for {DURATION_S} s",
                "wait until that installer has ended, then run this command again here",
            )

    def release(self) -> bool:
        """Stop renewing, delete the lease, and return whether it was deleted.

        When it was not deleted (the API server is down, for example), the next run on this node takes it at once, and
        other servers take it when it has expired.
        """
        self._ended.set()
        self._thread.join()
        ends = self._environment.clock() + _RELEASE_S
        while self._lost is None:
            try:
                return self._delete()
            except ClusterError as error:
                if not error.is_unreached or self._environment.clock() >= ends:
                    _log.warning("cannot release the lease %s: %s", NAME, error)
                    return False
            self._environment.pause(1.0)
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()

    def _keep(self) -> None:
        while self._lost is None and not self._ended.wait(self._environment.renew_s):
            try:
                self._renew()
            except ClusterError as error:  # our own k3s may be restarting
                _log.debug("the lease is not renewed now: %s", error)

    def _renew(self) -> None:
        spec = {"renewTime": _micro(self._environment.now())}
        change = {"metadata": {"resourceVersion": self._version}, "spec": spec}
        try:
            self._version = _version(self._cluster.patch(LEASE, NAME, change, NAMESPACE))
        except ClusterError as error:
            if not (error.is_conflict or error.is_missing):
                raise
            self._settle()

    def _settle(self) -> None:
        """Read a lease that has changed: take over its version, create it again, or note its new holder."""
        record, _ = _read(self._cluster)
        if record is None:
            with contextlib.suppress(ClusterError):  # taken by another, or no answer: the next renewal finds out
                self._version = _version(self._cluster.create(_body(self._holder, self._environment.now())))
        elif record.holder == str(self._holder):
            self._version = record.version
        else:
            self._lost = record

    def _delete(self) -> bool:
        for _ in range(2):
            try:
                return self._cluster.delete(LEASE, NAME, NAMESPACE, version=self._version)
            except ClusterError as error:
                if not error.is_conflict:
                    raise
                self._settle()
                if self._lost is not None:
                    return False
        return False


def acquire(
    cluster: ClusterClient,
    holder: LeaseHolder,
    *,
    environment: LeaseEnvironment,
    say: Callable[[str], None],
    patience_s: float = DURATION_S + RENEW_S,
) -> InstallLease:
    """Take the lease, when its holder has ended or has been silent for too long, and return it.

    A holder that lives is recognised by its next renewal (10 s); a dead one of this node at once.

    Args:
        cluster: the API server, as the administrator.
        holder: `this_process(node)`.
        environment: `lease_environment()`.
        say: is called once when there is a holder to wait for.
        patience_s: how long to wait for a silent holder.

    Raises:
        HeldError: a holder that lives, or may live, has the lease.
        ClusterError: the API server refuses, or does not answer.
    """
    began, first, told = environment.clock(), None, False
    while True:
        record, now = _read(cluster)
        first = first or record
        sight = LeaseObservation(record, now, first, environment.clock() - began)
        match verdict(sight, holder, environment.alive):
            case LeaseAction.TAKE:
                version = _take(cluster, holder, record, environment.now())
                if version is not None:
                    return InstallLease(cluster, holder, version, environment=environment)
                began, first = environment.clock(), None  # another process was faster: observe that one
            case LeaseAction.HELD if record is not None:
                raise HeldError(record, now)
            case _ if record is not None and environment.clock() - began >= patience_s:
                raise HeldError(record, now)
            case _ if record is not None and not told:
                say(f"waiting for {_who(record)}, {_when(record, now)}")
                told = True
        environment.pause(_LOOK_S)


def _read(cluster: ClusterClient) -> tuple[InstallLeaseRecord | None, datetime | None]:
    item, now = cluster.find_answer(LEASE, NAME, NAMESPACE)
    if item is None:
        return None, now
    spec = item.get("spec") or {}
    record = InstallLeaseRecord(
        holder=str(spec.get("holderIdentity") or ""),
        version=_version(item),
        since=_time(spec.get("acquireTime")),
        renewed=_time(spec.get("renewTime")),
        duration_s=int(spec.get("leaseDurationSeconds") or DURATION_S),
    )
    return record, now


def _take(cluster: ClusterClient, holder: LeaseHolder, old: InstallLeaseRecord | None, now: datetime) -> str | None:
    """Write this process into the lease as it was read, and return its version; None when it has changed since."""
    body = _body(holder, now)
    try:
        if old is None:
            return _version(cluster.create(body))
        change = {"metadata": {"resourceVersion": old.version}, "spec": body["spec"]}
        return _version(cluster.patch(LEASE, NAME, change, NAMESPACE))
    except ClusterError as error:
        if error.is_conflict or error.is_missing:
            return None
        raise


def _body(holder: LeaseHolder, now: datetime) -> Json:
    stamp = _micro(now)
    return {
        "apiVersion": LEASE.version,
        "kind": LEASE.kind,
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "holderIdentity": str(holder),
            "leaseDurationSeconds": DURATION_S,
            "acquireTime": stamp,
            "renewTime": stamp,
        },
    }


def _version(item: Json) -> str:
    return str(item["metadata"]["resourceVersion"])


def _micro(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


def _who(record: InstallLeaseRecord) -> str:
    found = LeaseHolder.parse(record.holder)
    return f"{found.node} (process {found.pid})" if found else record.holder


def _when(record: InstallLeaseRecord, now: datetime | None) -> str:
    since = f"since {record.since:%Y-%m-%d %H:%M:%S} UTC" if record.since else "since when it does not say"
    if record.renewed is None or now is None:
        return since
    return f"{since}, last heard of {max(0.0, (now - record.renewed).total_seconds()):.0f} s ago"
