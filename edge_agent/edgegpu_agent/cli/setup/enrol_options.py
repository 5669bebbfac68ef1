"""The cloud options of `edgegpu install`, and whether their token was used already."""

import re
from collections.abc import Sequence
from dataclasses import replace

from edgegpu_agent.app_limits import lease, rbac
from edgegpu_agent.cli.common import CliError
from edgegpu_agent.identity.enrolment import token_hash
from edgegpu_agent.identity.errors import IdentityError
from edgegpu_agent.identity.identity_files import BoxIdentity, CloudAddress, load_identity
from edgegpu_agent.settings import CloudSection
from edgegpu_core.model import ResourceModel
from edgegpu_installer.cluster.app_limits_account import AppLimitsAccount
from edgegpu_installer.cluster.kinds import Json
from edgegpu_installer.layout import Layout
from edgegpu_installer.plan.site import InstallOptions

_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def cloud_of(url: str, ca_sha256: str) -> CloudAddress:
    """Return the cloud's address as the agent reads it; without a URL only the checksum is passed on.

    Raises:
        CliError: the URL or the checksum is invalid.
    """
    if not url:
        return CloudAddress(url="", ca_sha256=ca_sha256)
    try:
        cloud = CloudSection(url=url, ca_sha256=ca_sha256)
    except ValueError as error:
        raise CliError(
            f"cannot install with --cloud {url} --ca-sha256 {ca_sha256}: no https address, or no SHA-256",
            remedy="take the line from your cloud anew",
        ) from error
    return CloudAddress(url=cloud.url, ca_sha256=cloud.ca_sha256)


def stored_identity(layout: Layout) -> BoxIdentity | None:
    """Return the identity of this box; None where there is none, or it cannot be read."""
    try:
        return load_identity(layout.state / "identity")
    except IdentityError:
        return None


def is_spent(layout: Layout, token: str) -> bool:
    """Return whether this box was enrolled with this token; the same install line, pasted again, must not use it."""
    identity = stored_identity(layout)
    return identity is not None and bool(token) and identity.device.token_sha256 == token_hash(token)


def app_limits(namespaces: Sequence[str]) -> AppLimitsAccount:
    """Return the account for app limits in these namespaces; the agent's code defines its objects."""
    made_by_the_account = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": lease.NAME, "namespace": lease.NAMESPACE},
    }
    return AppLimitsAccount(namespaces=tuple(namespaces), objects=_objects, lease=made_by_the_account)


def with_cloud(options: InstallOptions, url: str, *, ca_sha256: str, limits: list[str] | None) -> InstallOptions:
    """Return the options with the cloud's address and the namespaces for app limits. Raises CliError."""
    cloud = cloud_of(url, ca_sha256)
    return replace(
        options,
        cloud=cloud.url,
        ca_sha256=cloud.ca_sha256,
        limits_namespaces=namespaces_of(limits),
    )


def with_routes(options: InstallOptions, *, proxy: str, broker: str) -> InstallOptions:
    """Return the options with the agent's proxy and the broker's address. Raises CliError."""
    return replace(options, proxy=_proxy(proxy), broker=_broker(broker))


def _proxy(word: str) -> str | None:
    """Return the proxy of `--cloud-proxy`; None (empty option): keep the present one, "" (`none`): remove it."""
    try:
        return "" if word == "none" else CloudSection(url="https://x", proxy=word).proxy or None
    except ValueError as error:
        raise CliError(  # without the option's value: it may hold a password
            "cannot install with this proxy: it is not http://HOST:PORT",
            remedy="correct --cloud-proxy (--proxy of install.sh), or leave it out",
        ) from error


def _broker(word: str) -> str | None:
    """Return the address of `--cloud-broker`; None (empty option): keep the present one, "" (`none`): remove it."""
    try:
        return "" if word == "none" else CloudSection(url="https://x", broker=word).broker or None
    except ValueError as error:
        raise CliError(
            f"cannot install with --cloud-broker {word}: it is not HOST:PORT", remedy="correct it, or leave it out"
        ) from error


def namespaces_of(words: list[str] | None) -> tuple[str, ...] | None:
    """Return the namespaces of `--limits-namespace`; None where it was not given.

    Raises:
        CliError: a name is no valid namespace, or is kube-system.
    """
    if words is None:
        return None
    if words == ["none"]:
        return ()
    for one in words:
        if one != rbac.EVERYWHERE and (one == "kube-system" or _NAMESPACE.fullmatch(one) is None):
            raise CliError(
                f"cannot allow app limits in {one}: kube-system is not allowed, and a name must be valid in Kubernetes",
                remedy="give names of namespaces, * for all but kube-system, or `none`",
            )
    return tuple(dict.fromkeys(words))


def _objects(namespaces: Sequence[str], model: ResourceModel, with_policy: bool) -> Sequence[Json]:  # noqa: FBT001
    return rbac.manifests(namespaces, model=model, with_policy=with_policy)
