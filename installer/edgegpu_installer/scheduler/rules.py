"""The fields of a KubeSchedulerConfiguration and their allowed values; pure.

The fields that edgegpu supports are the same from v1beta1 on. Source: Kubernetes 1.20 and 1.33,
`kube-scheduler/config/*/types.go` and `pkg/scheduler/apis/config/validation`. Fields newer than 1.25 are not known
here, because a file for every version has none of them.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from edgegpu_installer.scheduler.yaml import Problem

Check = Callable[[Any, str], Iterator[Problem]]
"""A function that yields the problems of a field's value; its second argument is the field's path."""

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"

_INT32, _INT64 = 1 << 31, 1 << 63
_DURATION = re.compile(r"(([0-9]{1,9}(\.[0-9]{1,9})?)(ns|us|ms|s|m|h))+")
_PIECE = re.compile(r"([0-9.]+)(ns|us|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_S = 24 * 3600.0
_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_DOMAIN = 253 - len("requests.")
_MOST_PORT = 65535


def text(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
    """Check that a value is a text."""
    if not isinstance(value, str):
        yield Problem(where, f"{value!r} is not text: put it in quotes")


def flag(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
    """Check that a value is true or false."""
    if not isinstance(value, bool):
        yield Problem(where, f"{value!r} is neither true nor false")


def number(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
    """Check that a value is a number and not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _INT32:
        yield Problem(where, f"{value!r} is not a number from 0 on")


def whole(low: int = -_INT64, high: int = _INT64 - 1) -> Check:
    """Return a check for a whole number in a range, both ends included."""

    def check(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            yield Problem(where, f"{value!r} is not a whole number from {low} to {high}")

    return check


def small(low: int, high: int = _INT32 - 1) -> Check:
    """Return a check for a whole number of 32 bits."""
    return whole(low, high)


def one_of(*words: str) -> Check:
    """Return a check for one of the given words."""

    def check(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
        if value not in words or not isinstance(value, str):
            yield Problem(where, f"{value!r} is none of {', '.join(words)}")

    return check


def listed(check: Check, *, least: int = 0) -> Check:
    """Return a check for a list of at least `least` values that each pass a check."""

    def check_list(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
        if not isinstance(value, list):
            yield Problem(where, f"{value!r} is not a list")
            return
        if len(value) < least:
            yield Problem(where, f"fewer than {least} entries")
        for index, item in enumerate(value):
            yield from check(item, f"{where}[{index}]")

    return check_list


def table(fields: Mapping[str, Check], *needed: str) -> Check:
    """Return a check for a mapping that has only these fields, and all of the `needed` ones."""

    def check(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
        if not isinstance(value, dict):
            yield Problem(where, f"{value!r} is not a table of fields")
            return
        dot = f"{where}." if where else ""
        for name in needed:
            if name not in value:
                yield Problem(f"{dot}{name}", "is missing")
        for name, inner in value.items():
            if name not in fields:
                yield Problem(f"{dot}{name}", "is not a known field (fields are case-sensitive)")
            elif inner is None:
                yield Problem(f"{dot}{name}", "has no value: leave the field out")
            else:
                yield from fields[name](inner, f"{dot}{name}")

    return check


def duration(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
    """Check for a Go duration with a unit (`30s`, `1m30s`), more than 0 and at most a day."""
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        yield Problem(where, f"{value!r} is not a time span with a unit, such as 30s")
    elif not 0 < sum(float(n) * _SECONDS[unit] for n, unit in _PIECE.findall(value)) <= _LONGEST_S:
        yield Problem(where, f"{value!r} is zero, or more than a day")


def data(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
    """Check that a value is base64."""
    if not isinstance(value, str) or decoded(value) is None:
        yield Problem(where, "is not base64")


def decoded(value: str) -> bytes | None:
    """Return the bytes of a base64 text, None when it is none; line breaks in it are ignored."""
    try:
        return base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return None


def url(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
    """Check for an HTTP or HTTPS URL with a host."""
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        right = parts is not None and parts.scheme in {"http", "https"} and bool(parts.hostname)
        right = right and (parts is None or parts.port is None or 0 < parts.port <= _MOST_PORT)
    except ValueError:
        right = False
    if not right or any(c in value for c in " \t\n\r?#"):
        yield Problem(where, f"{value!r} is not an http(s) address with a host")


def qualified(value: str) -> bool:
    """Return whether a text is a name with or without a domain, such as `baidu.com/vcuda-core`."""
    domain, slash, name = value.rpartition("/")
    if slash and not (len(domain) <= _LONGEST_DOMAIN and _DOMAIN.fullmatch(domain)):
        return False
    return _NAME_PART.fullmatch(name) is not None


def label_name(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
    """Check for a label's name, with or without a domain."""
    if not isinstance(value, str) or not qualified(value):
        yield Problem(where, f"{value!r} is not a valid name")


def resource(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
    """Check for an extended resource, whose name has a domain other than Kubernetes' own."""
    name = value if isinstance(value, str) else ""
    domain, slash, _ = name.partition("/")
    if not slash or not qualified(name) or name.startswith("requests.") or "kubernetes.io" in domain:
        yield Problem(where, f"{value!r} is not a resource name with its own domain, such as baidu.com/vcuda-core")


EXTENDER = table(
    {
        "urlPrefix": url,
        "filterVerb": text,
        "preemptVerb": text,
        "prioritizeVerb": text,
        "bindVerb": text,
        "weight": whole(0),
        "enableHTTPS": flag,
        "tlsConfig": table(
            {
                "insecure": flag,
                "serverName": text,
                "certFile": text,
                "keyFile": text,
                "caFile": text,
                "certData": data,
                "keyData": data,
                "caData": data,
            }
        ),
        "httpTimeout": duration,
        "nodeCacheCapable": flag,
        "managedResources": listed(table({"name": resource, "ignoredByScheduler": flag}, "name")),
        "ignorable": flag,
    },
    "urlPrefix",
)
CLIENT = table(
    {
        "kubeconfig": text,
        "acceptContentTypes": text,
        "contentType": one_of("application/json", "application/vnd.kubernetes.protobuf"),
        "qps": number,
        "burst": small(0),
    },
    "kubeconfig",
)
PERCENTAGE = small(0, 100)
