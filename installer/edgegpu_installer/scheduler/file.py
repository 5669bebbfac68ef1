"""The scheduler's configuration file: rendered with our extender, merged into an existing one, validated; pure.

A scheduler exits on a bad file, again and again, and k3s with it; and k3s has no scheduler that could check a file
beforehand. So `validate` is stricter than the scheduler: a scheduler starts with every file that passes.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from edgegpu_installer.errors import InstallError
from edgegpu_installer.scheduler import refs, versions
from edgegpu_installer.scheduler import yaml as scheduleryaml
from edgegpu_installer.scheduler.profiles import named_profiles, profiles
from edgegpu_installer.scheduler.refs import ReadFile
from edgegpu_installer.scheduler.rules import (
    CLIENT,
    EXTENDER,
    KIND,
    PERCENTAGE,
    Check,
    flag,
    listed,
    small,
    table,
    text,
    whole,
)
from edgegpu_installer.scheduler.yaml import Problem

SERVER_NAME = "edgegpu-extender"
"""The name in the extender's certificate, which the scheduler checks (`tlsConfig.serverName`)."""

DEFAULT_LISTEN = "127.0.0.1:8787"
HTTP_TIMEOUT = "30s"
"""The extender's timeout: a binding may wait up to 20 s for earlier pods on its node."""

_HEADER = """\
# The scheduler's configuration, written by edgegpu: it asks edgegpu about pods that want a share of a card, and about no others.
# It holds a key: 0600. `edgegpu uninstall` takes it away; do not edit it, the next install writes it anew.
"""  # noqa: E501  (a comment in the file)
_MOST_BACKOFF_S, _FIRST_BACKOFF_S = 10, 1
_CLIENT_FLAGS: tuple[tuple[str, str, type[str] | type[float] | type[int]], ...] = (
    ("kube-api-content-type", "contentType", str),
    ("kube-api-qps", "qps", float),
    ("kube-api-burst", "burst", int),
)
_SWITCHES = (("profiling", "enableProfiling"), ("contention-profiling", "enableContentionProfiling"))
_TRUE = frozenset({"true", "t", "1"})

_FIELDS: dict[str, Check] = {
    "apiVersion": text,
    "kind": text,
    "clientConnection": CLIENT,
    "parallelism": small(1),
    "enableProfiling": flag,
    "enableContentionProfiling": flag,
    "percentageOfNodesToScore": PERCENTAGE,
    "podInitialBackoffSeconds": whole(1, 1 << 31),
    "podMaxBackoffSeconds": whole(1, 1 << 31),
    "profiles": profiles,
    "extenders": listed(EXTENDER),
}
_FILE = table(_FIELDS, "clientConnection")
_OLD_FILE = table(_FIELDS | {"profiles": named_profiles}, "clientConnection")
"""The check of a file before `v1`: the plugins of those schedulers are not known here."""


@dataclass(frozen=True, slots=True)
class ExtenderEndpoint:
    """Our extender as the scheduler calls it: address, certificates (PEM), and the resources that it manages."""

    ca: str
    cert: str
    key: str = field(repr=False)
    listen: str = DEFAULT_LISTEN
    memory: str = "baidu.com/vcuda-memory"
    core: str = "baidu.com/vcuda-core"

    @property
    def url(self) -> str:
        """The URL that the scheduler calls."""
        return f"https://{self.listen}"


def validate(content: str, *, read_file: ReadFile, minor: int | None = None, may_elect: bool = False) -> list[Problem]:
    """Return everything that a scheduler would exit on or that edgegpu does not support; empty for a good file.

    Args:
        content: the file's text.
        read_file: returns the content of a file that the configuration names, None when it cannot be read.
        minor: the minor version of the scheduler's Kubernetes; None when it is not known.
        may_elect: whether the file may have `leaderElection`; k3s says by flags which of its schedulers leads.
    """
    document, problems = scheduleryaml.load(content)
    if problems:
        return problems
    if not isinstance(document, dict):
        return [Problem("", "it is not a table of fields")]
    return list(_validate(document, read_file, minor, may_elect=may_elect))


def render(
    extender: ExtenderEndpoint, *, kubeconfig: str, flags: Mapping[str, str] | None = None, minor: int | None = None
) -> str:
    """Return our configuration file for a scheduler that has none.

    Args:
        extender: our extender.
        kubeconfig: the scheduler's own.
        flags: the flags that the scheduler is started with.
        minor: the minor version of its Kubernetes; None when it is not known.

    Raises:
        InstallError: a flag that the file has to repeat has a value that is no number.
    """
    document = {
        "apiVersion": versions.GROUP + versions.version_for(minor),
        "kind": KIND,
        **flag_settings(flags or {}, kubeconfig=kubeconfig),
        "extenders": [_extender(extender)],
    }
    return _HEADER + _dump(document)


def merge(
    existing: str,
    extender: ExtenderEndpoint,
    *,
    source: str,
    read_file: ReadFile,
    minor: int | None = None,
    may_elect: bool = False,
) -> str:
    """Return an existing configuration with our extender in it; profiles and other extenders are kept.

    `source` is the file's path; the rest is as in `validate`.

    Raises:
        InstallError: it is not valid, it is of an old version, or another extender binds or has our resources.
    """
    document, problems = scheduleryaml.load(existing)
    if not problems and isinstance(document, dict):
        document = _without_nothing(document)
        mine = {extender.memory, extender.core}
        others = [other for other in document.get("extenders", []) if not _is_ours(other, extender, mine)]
        document["extenders"] = others
        problems = list(_validate(document, read_file, minor, may_elect=may_elect)) or list(_conflicts(others, mine))
    elif not problems:
        problems = [Problem("", "it is not a table of fields")]
    if problems:
        raise InstallError(
            f"cannot merge edgegpu into the scheduler's configuration {source}: {problems[0]}",
            remedy=f"change {source} so, or take the config= that names it out of the scheduler's arguments and let "
            "the scheduler start again; then install",
        )
    document["extenders"] = [*others, _extender(extender)]
    return _HEADER + f"# What was in {source} is in it.\n" + _dump(document)


def _validate(
    document: dict[str, Any], read_file: ReadFile, minor: int | None, *, may_elect: bool
) -> Iterator[Problem]:
    version = versions.version_in(document.get("apiVersion"))
    if document.get("kind") != KIND or not versions.takes(minor, version):
        given = f"{document.get('apiVersion')} {document.get('kind')}"
        wanted = versions.GROUP + versions.version_for(minor)
        yield Problem("apiVersion", f"it is {given} and must be {wanted} {KIND}")
        return
    if "leaderElection" in document and not may_elect:
        yield Problem("leaderElection", "must be left out: k3s says by flags which of its schedulers leads")
    known = {name: value for name, value in document.items() if name != "leaderElection"}
    shapes = list((_FILE if version == versions.LATEST else _OLD_FILE)(known, ""))
    yield from shapes
    if not shapes:
        yield from _meaning(document, read_file)


def _meaning(document: dict[str, Any], read_file: ReadFile) -> Iterator[Problem]:
    """Yield the problems of a document that concern several fields or other files."""
    first = document.get("podInitialBackoffSeconds", _FIRST_BACKOFF_S)
    if document.get("podMaxBackoffSeconds", _MOST_BACKOFF_S) < first:
        yield Problem("podMaxBackoffSeconds", "must not be less than podInitialBackoffSeconds")
    yield from refs.kubeconfig(document["clientConnection"]["kubeconfig"], "clientConnection.kubeconfig", read_file)
    binders = 0
    seen: set[str] = set()
    for index, extender in enumerate(document.get("extenders", [])):
        here = f"extenders[{index}]"
        binders += bool(extender.get("bindVerb"))
        if binders > 1:
            yield Problem(f"{here}.bindVerb", "only one extender can bind")
        if extender.get("prioritizeVerb") and extender.get("weight", 0) < 1:
            yield Problem(f"{here}.weight", "must be 1 or more for an extender that has a prioritizeVerb")
        for resource in extender.get("managedResources", []):
            if resource["name"] in seen:
                yield Problem(f"{here}.managedResources", f"{resource['name']} is managed twice")
            seen.add(resource["name"])
        if "tlsConfig" in extender:
            yield from refs.tls(extender["tlsConfig"], f"{here}.tlsConfig", read_file)


def _conflicts(others: list[dict[str, Any]], mine: set[str]) -> Iterator[Problem]:
    for index, other in enumerate(others):
        name = f"extenders[{index}] ({other['urlPrefix']})"
        if other.get("bindVerb"):
            yield Problem(name, "binds pods itself, and a scheduler has one binder")
        if shared := mine & {resource["name"] for resource in other.get("managedResources", [])}:
            yield Problem(name, f"manages {' and '.join(sorted(shared))} already")


def _is_ours(other: object, extender: ExtenderEndpoint, mine: set[str]) -> bool:
    """Return whether an installation of ours wrote an extender: it has our address and our resources."""
    if not isinstance(other, dict) or other.get("urlPrefix") != extender.url:
        return False
    managed = other.get("managedResources")
    return isinstance(managed, list) and {r.get("name") for r in managed if isinstance(r, dict)} == mine


def _without_nothing(value: Any) -> Any:  # noqa: ANN401  (YAML)
    """Return a document without its null values: for the scheduler they are the same as absent ones."""
    if isinstance(value, dict):
        return {name: _without_nothing(inner) for name, inner in value.items() if inner is not None}
    return [_without_nothing(inner) for inner in value] if isinstance(value, list) else value


def _extender(extender: ExtenderEndpoint) -> dict[str, Any]:
    # Certificates inline, never by file: the scheduler exits on an unreadable file; without a CA it verifies nothing.
    return {
        "urlPrefix": extender.url,
        "filterVerb": "filter",
        "preemptVerb": "preempt",
        "prioritizeVerb": "prioritize",
        "bindVerb": "bind",
        "weight": 1,
        "enableHTTPS": True,
        "tlsConfig": {
            "serverName": SERVER_NAME,
            "caData": _base64(extender.ca),
            "certData": _base64(extender.cert),
            "keyData": _base64(extender.key),
        },
        "httpTimeout": HTTP_TIMEOUT,
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": [{"name": name, "ignoredByScheduler": False} for name in (extender.memory, extender.core)],
    }


def _base64(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()


def _dump(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderEntry:
    """An extender in a scheduler's file; `ca`, `cert` and `key` are PEM texts, empty when not given."""

    url: str
    server_name: str
    insecure: bool
    ignorable: bool
    binds: bool
    ca: str
    cert: str
    key: str = field(repr=False)


def extender_entries(text: str) -> list[ExtenderEntry]:
    """Return the extenders of a scheduler's file.

    Raises:
        ValueError: the text is no YAML, or not a scheduler's file.
    """
    try:
        found = yaml.safe_load(text)
        extenders = found.get("extenders") or []
        return [_entry(one) for one in extenders]
    except (yaml.YAMLError, AttributeError, TypeError, binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(f"not a scheduler file: {' '.join(str(error).split())}") from error


def our_extender(text: str) -> ExtenderEntry | None:
    """Return our extender's entry in a scheduler's file; None when it has none. Raises as `extender_entries`."""
    return next((one for one in extender_entries(text) if one.server_name == SERVER_NAME), None)


def _entry(one: Mapping[str, Any]) -> ExtenderEntry:
    tls = one.get("tlsConfig") or {}
    return ExtenderEntry(
        url=str(one.get("urlPrefix", "")),
        server_name=str(tls.get("serverName", "")),
        insecure=bool(tls.get("insecure")),
        ignorable=bool(one.get("ignorable")),
        binds=bool(one.get("bindVerb")),
        ca=_pem(tls.get("caData")),
        cert=_pem(tls.get("certData")),
        key=_pem(tls.get("keyData")),
    )


def _pem(data: object) -> str:
    return base64.b64decode(str(data), validate=True).decode("ascii") if data else ""


def flag_settings(flags: Mapping[str, str], *, kubeconfig: str) -> dict[str, object]:
    """Return the keys of a KubeSchedulerConfiguration that stand for flags which a file overrides.

    Which flags a file overrides: ApplyTo and ApplyDeprecated in Kubernetes' cmd/kube-scheduler/app/options. Flags of
    leader election and of what is no part of a file (addresses, certificates, feature gates, logs) stay in effect.

    Args:
        flags: each flag's value, without the dashes.
        kubeconfig: the scheduler's own; --kubeconfig in `flags` is not read.

    Raises:
        InstallError: the value of a flag is no number.
    """
    client: dict[str, object] = {"kubeconfig": kubeconfig}
    for name, key, kind in _CLIENT_FLAGS:
        if name in flags:
            client[key] = _figure(name, flags[name], kind)
    switches = {key: flags[name].lower() in _TRUE for name, key in _SWITCHES if name in flags}
    return {"clientConnection": client, **switches}


def _figure(name: str, value: str, kind: type[str] | type[float] | type[int]) -> object:
    try:
        return kind(value)
    except ValueError as error:
        raise InstallError(
            f"cannot keep the scheduler's --{name}={value}: it is no number",
            f"put --{name} right where the scheduler gets its arguments, then install again",
        ) from error
