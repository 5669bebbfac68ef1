"""Whether the files of a box (content, mode, owner) are as the end of an operation says. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from box.bed import WAITS, differences

COMMITTED, ROLLED_BACK, NOT_BEGUN = "COMMITTED", "ROLLED_BACK", "NOT_BEGUN"
"""How an operation ends; not begun: it died before there was anything of it, and what stood stands."""

_KEPT = r"^/var/lib/edgegpu(?!/baseline)"
"""What is kept of the past, whatever the end: the journal's last record, its log, what the plugin has last seen."""

_UNPACKED = r"^/opt/edgegpu(/|$)"
"""Versions that install.sh has unpacked; the link to the one that counts is compared by what the installer wrote."""

_PROGRAMS = r"^/usr/local/lib/edgegpu(/|$)"

_SOCKETS = r"^/var/lib/kubelet/device-plugins/"
"""The plugin's come and go with it, and kubelet empties the folder at its start."""

Disk = Mapping[str, str]


def put_back(before: Disk, after: Disk, *, first: bool) -> list[str]:
    """Say which files are not as before, though the operation was undone or had not begun.

    Args:
        before: the disk before the operation.
        after: the disk at its end.
        first: it was a first installation, which unpacks a version before it begins.
    """
    return _told(before, after, but=[_KEPT, *([_UNPACKED, WAITS, _SOCKETS] if first else [])])


def carried_out(before: Disk, after: Disk, *, ours: Collection[str], drifted: Collection[str]) -> list[str]:
    """Say which files are not as the operation should have left them.

    Args:
        before: the disk before it.
        after: the disk at its end.
        ours: the paths that the installer says to have written; no other may be another one.
        drifted: those of them that are not as it wrote them.
    """
    parents = {path[: path.rindex("/")] for path in ours}
    others = _told(before, after, but=[_KEPT, _UNPACKED, _PROGRAMS, WAITS, _SOCKETS])
    strange = [line for line in others if (path := line.partition(": ")[0]) not in ours and path not in parents]
    return [*strange, *(f"{path}: not as the installer wrote it" for path in drifted)]


def taken_off(pristine: Disk, after: Disk) -> list[str]:
    """Say which files are not as they were before edgegpu came, less those that wait for kubelet."""
    return _told(pristine, after, but=[WAITS])


def _told(before: Disk, after: Disk, *, but: Collection[str]) -> list[str]:
    found = differences(dict(before), dict(after)).items()
    return [f"{path}: {was} -> {now}" for path, (was, now) in found if not any(re.search(one, path) for one in but)]
