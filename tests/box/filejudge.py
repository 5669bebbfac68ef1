"""Whether the files of a box (content, mode, owner) are as the end of an operation says. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from box.bed import WAITS, differences

COMMITTED, ROLLED_BACK, NOT_BEGUN = "COMMITTED", "ROLLED_BACK", "NOT_BEGUN"
"""How an operation ends; not begun: it died before there was anything of it, and what stood stands."""

_KEPT = (
    r"/var/lib/edgegpu(/((inventory|selftest|live-limits|clock|images)\.json|kubelet-version|unknown-cluster))?",
    r"/var/lib/edgegpu/limiter(/[^/]+)?",  # fitted to the driver by whichever version runs
    r"/var/lib/edgegpu/(agent|identity|collected|upgrades)(/.*)?",  # what belongs to the agent, in no transaction
    r"/var/lib/edgegpu/tx(/(state|log|k3s))?",  # the last transaction's record, and the history
)
"""Kept of the past, whatever the end."""

_BEFORE_RECORD = (r"/var/lib/edgegpu/tx(/(spare|folders|remove|units|files|(old|new)(/\d+)?))?",)
"""The journal of what died before its record was written, where power went and nothing was in place to look at it."""

_BASELINE = (r"/var/lib/edgegpu/baseline(/\d{6}\.[0-9A-Za-z-]+(/(index|ours|\d+))?)?",)
"""How each path was before edgegpu first touched it, kept for the uninstall: each change that is committed adds one."""

_UNPACKED = (r"/opt/edgegpu(/[0-9][^/]*(/.*)?)?",)
"""Versions that install.sh has unpacked, before the transaction; `current` is the transaction's."""

_RUN = (r"/var/lib/kubelet/device-plugins/edgegpu(/[^/]+)?", r"/var/run/cdi(/edgegpu(-limited|-capability)?\.json)?")
"""Sockets and CDI specs, which a plugin writes when it first runs, in no transaction: one names its own limiter."""

_UNIT_ALONE = (r"/etc/systemd/system/edgegpu-recover\.service",)

Disk = Mapping[str, str]


def put_back(before: Disk, after: Disk, *, first: bool, farewell: bool = False) -> list[str]:
    """Say which files are not as before, though the operation was undone.

    Args:
        before: the disk before the operation.
        after: the disk at its end.
        first: it was a first installation, which unpacks a version before it begins.
        farewell: sharing was or came off a box on which the agent stays: what waits for kubelet comes and goes.
    """
    return _told(before, after, but=[*_KEPT, *([*_UNPACKED, *_RUN] if first else []), *([WAITS] if farewell else [])])


def not_begun(before: Disk, after: Disk, *, first: bool, unit_alone: bool = False) -> list[str]:
    """Say the same of an operation that died before its record was written.

    Args:
        before: the disk before the operation.
        after: the disk at its end.
        first: it was a first installation, which unpacks a version before it begins.
        unit_alone: power went between recovery's unit and its link: no boot looks yet (docs/box/transaction.md).
    """
    but = [*_KEPT, *_BEFORE_RECORD, *(_UNPACKED if first else []), *(_UNIT_ALONE if unit_alone else [])]
    return _told(before, after, but=but)


def carried_out(
    before: Disk, after: Disk, *, ours: Collection[str], drifted: Collection[str], farewell: bool = False
) -> list[str]:
    """Say which files are not as the operation should have left them.

    Args:
        before: the disk before it.
        after: the disk at its end.
        ours: the paths that the installer says to have written; no other may be another one.
        drifted: those of them that are not as it wrote them.
        farewell: as for put_back.
    """
    parents = {path[: path.rindex("/")] for path in ours}
    others = _told(before, after, but=[*_KEPT, *_BASELINE, *_UNPACKED, *_RUN, *([WAITS] if farewell else [])])
    strange = [line for line in others if (path := line.partition(": ")[0]) not in ours and path not in parents]
    return [*strange, *(f"{path}: not as the installer wrote it" for path in drifted)]


def taken_off(pristine: Disk, after: Disk) -> list[str]:
    """Say which files are not as they were before edgegpu came, less those that wait for kubelet."""
    return _told(pristine, after, but=[WAITS])


def _told(before: Disk, after: Disk, *, but: Collection[str]) -> list[str]:
    found = differences(dict(before), dict(after)).items()
    return [f"{path}: {was} -> {now}" for path, (was, now) in found if not any(re.fullmatch(one, path) for one in but)]
