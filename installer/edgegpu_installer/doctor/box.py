"""Checks of the machine itself: its clock and its disks."""

import datetime as dt
from collections.abc import Iterator

from edgegpu_installer.doctor.probe import BoxProbe, FileSystemSpace, SkippedCheck
from edgegpu_installer.doctor.verdict import CheckProblem, CheckResult, broken, result_of, warning

_FIRST_YEAR, _LAST_YEAR = 2025, 2100
_OFF_S = 5.0
_FAR_OFF_S = 300.0
_MIB = 1 << 20
_LEAST_BYTES, _LITTLE_BYTES = 100 * _MIB, 1024 * _MIB
_LITTLE_SHARE = 0.10
"""The kubelet of k3s evicts pods below 5 % of free space."""

_FOLDERS = ("/etc", "/opt", "/usr/local", "/var/lib", "/var/lib/edgegpu", "/var/lib/rancher", "/run")


def check_clock(probe: BoxProbe) -> CheckResult:
    """Check the year, the difference from the API server's clock, and the synchronisation."""
    now = probe.now()
    details: list[str] = [f"{now:%Y-%m-%d %H:%M:%S} UTC"]
    problems: list[CheckProblem] = []
    if not _FIRST_YEAR <= now.year <= _LAST_YEAR:
        problems.append(
            broken(
                f"the clock says {now.year}: certificates do not hold then",
                "sudo date -s 'YYYY-MM-DD HH:MM'; sudo hwclock -w",
            )
        )
    try:
        reply = probe.object("/version")
    except SkippedCheck:
        details.append("the API server's clock is not known")
    else:
        problems += _against(reply.date, probe.now(), details)
    synchronised = probe.run("timedatectl", "show", "-p", "NTPSynchronized", "--value")
    if synchronised.well and synchronised.out.strip() == "no":
        problems.append(warning("the clock is not synchronised", "sudo timedatectl set-ntp true"))
    elif not synchronised.well:
        details.append("whether it is synchronised is not known (no timedatectl)")
    return result_of(problems, ok="right", details=details)


def _against(theirs: dt.datetime | None, now: dt.datetime, details: list[str]) -> Iterator[CheckProblem]:
    if theirs is None:
        return
    off_s = (now - theirs).total_seconds()
    details.append(f"{abs(off_s):.0f} s {'before' if off_s > 0 else 'behind'} the API server's")
    if abs(off_s) > _OFF_S:
        level = broken if abs(off_s) > _FAR_OFF_S else warning
        yield level(f"the clock differs by {abs(off_s):.0f} s from the API server's", "sudo timedatectl set-ntp true")


def check_disk(probe: BoxProbe) -> CheckResult:
    """Check free space and inodes, and that the folders which edgegpu and k3s write to are writable."""
    problems: list[CheckProblem] = []
    details: list[str] = []
    for folder in _FOLDERS:
        if probe.at(folder).is_dir():
            space = probe.space(probe.at(folder))
            details.append(f"{folder}: {space.free_bytes // _MIB} MiB free")
            problems += _folder_troubles(folder, space)
    return result_of(problems, ok="room enough, and all can be written", details=details)


def _folder_troubles(folder: str, space: FileSystemSpace) -> Iterator[CheckProblem]:
    free = f"{space.free_bytes // _MIB} MiB ({space.free_share:.0%})"
    look = f"sudo du -xh --max-depth=2 {folder} | sort -h | tail; sudo journalctl --vacuum-size=100M"
    if space.read_only:
        yield broken(f"{folder} is read-only", f"sudo mount -o remount,rw {folder}  # dmesg says whether it failed")
    if space.free_bytes < _LEAST_BYTES:
        yield broken(f"{folder} has only {free} left", look)
    elif folder != "/run" and (space.free_bytes < _LITTLE_BYTES or space.free_share < _LITTLE_SHARE):
        yield warning(f"{folder} has only {free} left; kubelet evicts pods below 5 %", look)
    if space.free_inodes_share < _LITTLE_SHARE:
        yield warning(f"{folder} has only {space.free_inodes_share:.0%} of its inodes left", look)
