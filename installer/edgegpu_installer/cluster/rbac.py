"""edgegpu's rights in the cluster: the objects of a release's `examples/rbac.yaml`, checked before use."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml

from edgegpu_installer.cluster.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    SECRET,
    SERVICE_ACCOUNT,
    Json,
    ObjectKind,
    kind_of,
    name_of,
    namespace_of,
)
from edgegpu_installer.errors import InstallError

_ORDER = (NAMESPACE, SERVICE_ACCOUNT, SECRET, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
_ANEW = "unpack the release anew"


class Account(StrEnum):
    """The accounts: a server's plugin, which also binds pods, an agent node's plugin, and the agent for app limits."""

    SERVER = "edgegpu-server"
    AGENT = "edgegpu-agent"
    LIMITS = "edgegpu-limits"


@dataclass(frozen=True, slots=True)
class ClusterRights:
    """The objects of the rights, each after those that it refers to."""

    items: tuple[Json, ...]
    namespace: str


def read_rights(path: Path) -> ClusterRights:
    """Read the rights of a release from a file.

    Raises:
        InstallError: the file cannot be read, or has not the expected objects.
    """
    try:
        return parse_rights(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InstallError(f"cannot read {path}: {error.strerror}", remedy=_ANEW) from error
    except ValueError as error:
        raise InstallError(f"cannot use {path}: {error}", remedy=_ANEW) from error


def parse_rights(text: str) -> ClusterRights:
    """Return the rights in a file's text.

    Raises:
        ValueError: it is not YAML, has an object of another kind or namespace, or lacks an account or its Secret.
    """
    try:
        items = [item for item in yaml.safe_load_all(text) if item]
    except yaml.YAMLError as error:
        raise ValueError("it is not YAML") from error
    if not all(isinstance(item, dict) for item in items):
        raise ValueError("it holds a document that is not an object")
    kinds = {id(item): _known(item) for item in items}
    spaces = {name_of(item) for item in items if kinds[id(item)] == NAMESPACE}
    homes = {namespace_of(item) for item in items if kinds[id(item)].namespaced}
    if len(spaces) != 1 or homes - spaces:
        raise ValueError(f"it names the namespaces {sorted(spaces | homes)}, and must name one")
    for kind in (SERVICE_ACCOUNT, SECRET):
        have = {name_of(item) for item in items if kinds[id(item)] == kind}
        if lacking := sorted({Account.SERVER.value, Account.AGENT.value} - have):
            raise ValueError(f"it lacks the {kind.kind} {', '.join(lacking)}")
    ordered = sorted(items, key=lambda item: _ORDER.index(kinds[id(item)]))
    return ClusterRights(tuple(ordered), spaces.pop())


def _known(item: Json) -> ObjectKind:
    kind = kind_of(item)
    if kind not in _ORDER:
        raise ValueError(f"it holds a {kind.kind}")
    return kind
