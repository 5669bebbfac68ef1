"""The versions of its configuration that a scheduler accepts, by the minor version of its Kubernetes; pure.

Source: `k8s.io/kube-scheduler/config` of 1.20 to 1.29.
"""

GROUP = "kubescheduler.config.k8s.io/"
_TAKEN = {"v1beta1": (19, 22), "v1beta2": (22, 27), "v1beta3": (23, 28), "v1": (25, 1 << 31)}
"""The first and the last minor version that accepts each version; the newest is last."""

LATEST = "v1"


def version_for(minor: int | None) -> str:
    """Return the newest version that a scheduler accepts, such as `v1beta3`; an unknown minor version counts as new."""
    known = [version for version, (first, last) in _TAKEN.items() if minor is not None and first <= minor <= last]
    return known[-1] if known else LATEST


def takes(minor: int | None, version: str) -> bool:
    """Return whether a scheduler accepts a version of the configuration; an unknown minor version counts as new."""
    first, last = _TAKEN.get(version, (1, 0))
    return version == LATEST if minor is None else first <= minor <= last


def version_in(api_version: object) -> str:
    """Return the version in a file's apiVersion; empty for another API group."""
    text = str(api_version)
    return text.removeprefix(GROUP) if text.startswith(GROUP) else ""
