"""Checks of the last transaction, of recovery, of the files that edgegpu wrote, and of leftovers of installs."""

import os
from collections.abc import Iterator

from edgegpu_installer.changes import TransactionKind
from edgegpu_installer.doctor.probe import BoxProbe, ProbeError
from edgegpu_installer.doctor.units import unit
from edgegpu_installer.doctor.verdict import CheckProblem, CheckResult, broken, info, result_of, skipped, warning
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import (
    AGENT_YAML,
    CLOUD_TOKEN,
    CURRENT,
    K3S_CONFIG,
    K3S_FOLDER,
    OPT,
    PLUGIN_YAML,
    RECOVER,
    RECOVER_UNIT,
    SCHEDULER_YAML,
    TX,
    UNITS,
    WANTS,
    unit_drop_in,
)
from edgegpu_installer.transaction import baseline
from edgegpu_installer.transaction.journal import TransactionJournal, TransactionRecord, decide, read_clocks
from edgegpu_installer.transaction.states import RecoveryDecision, TransactionState

_SHOW = f"sudo {RECOVER} show; sudo tail {TX}/log"
_RESUME = "sudo edgegpu transaction resume"
_INSTALL = "sudo edgegpu install"
_MAY_CHANGE = frozenset({PLUGIN_YAML, AGENT_YAML, CLOUD_TOKEN})
_FOREIGN = {
    "/usr/local/vgpu": "HAMi",
    "/etc/gpu-manager": "gpu-manager",
    "/var/lib/kubelet/device-plugins/vcore.sock": "gpu-manager",
    "/var/lib/kubelet/device-plugins/vmemory.sock": "gpu-manager",
    "/etc/kubernetes/scheduler-policy-config.json": "gpu-manager",
    "/tmp/vgpulock": "HAMi",  # noqa: S108  (its folder, which is only looked at)
}
_BY_HAND = ("/etc/edgegpu/scheduler.yaml",)
_KEPT = 2
"""The version in use, and the one before it."""


def check_transaction(probe: BoxProbe) -> CheckResult:
    """Check how the last transaction ended, and that none is unfinished."""
    journal = TransactionJournal(probe.at(TX))
    try:
        record = journal.read()
    except InstallError as error:
        raise ProbeError(error.message, remedy=_SHOW) from error
    if record is None:
        return info("nothing was ever changed on this machine by a transaction")
    what = f"{record.op.value} {record.id}"
    details = [*journal.history()[-3:]]
    match decide(record, read_clocks(probe.at("/")), proc=probe.at("/proc")):
        case RecoveryDecision.NOTHING:
            return result_of(_ended(record, what), ok=f"{what} is committed", details=details)
        case RecoveryDecision.WAIT:
            return info(f"{what} is under way now: {record.state.value}")
        case decision:
            why = record.why or "its author has gone"
            text = f"{what} is left at {record.state.value}: {why} (to be done: {decision.value})"
            remedy = f"{_RESUME}; {_SHOW}" if record.state is TransactionState.INCONSISTENT else _RESUME
            return result_of([broken(text, remedy)], details=details)


_AGAIN = {TransactionKind.UNINSTALL: "edgegpu uninstall", TransactionKind.WITHDRAW: "edgegpu uninstall --keep-agent"}


def _ended(record: TransactionRecord, what: str) -> Iterator[CheckProblem]:
    if record.state is not TransactionState.ROLLED_BACK:
        return
    if record.op is TransactionKind.GUARD:
        yield broken(
            f"edgegpu's files were taken out of k3s: {record.why}",
            f"{_INSTALL}  # `sudo journalctl -u k3s -e` says why k3s did not come up with them",
        )
    else:
        again = _AGAIN.get(record.op, "edgegpu install")
        yield warning(
            f"{what} was rolled back: {record.why or 'no reason is known'}", f"sudo {again}  # `{_SHOW}` says more"
        )


def check_recover(probe: BoxProbe) -> CheckResult:
    """Check that edgegpu-recover is in place, and that k3s's unit runs it at each start."""
    k3s = probe.k3s
    if k3s is None:
        return skipped("there is no k3s on this machine (see the check `k3s`)")
    problems: list[CheckProblem] = []
    program = probe.at(RECOVER)
    if not program.exists():
        problems.append(broken(f"{RECOVER} is missing: a change that fails is not undone", _INSTALL))
    elif not os.access(program, os.X_OK):
        problems.append(broken(f"{RECOVER} cannot be run", f"sudo chmod 755 {RECOVER}"))
    drop_in = unit_drop_in(k3s.unit.name)
    text = probe.text(drop_in)
    if text is None:
        problems.append(broken(f"{drop_in} is missing: k3s starts without asking whether a change failed", _INSTALL))
    elif f"{RECOVER} check" not in text:
        problems.append(broken(f"{drop_in} does not run `{RECOVER} check`", _INSTALL))
    elif RECOVER not in unit(probe, k3s.unit.name).exec_start_pre:
        problems.append(warning(f"systemd has not read {drop_in}", _INSTALL))
    problems += [
        broken(f"{path} is missing: a power cut during a change is not made good", _INSTALL)
        for path in (f"{UNITS}/{RECOVER_UNIT}", f"{WANTS}/{RECOVER_UNIT}")
        if not os.path.lexists(probe.at(path))
    ]
    return result_of(problems, ok="in place")


def check_files(probe: BoxProbe) -> CheckResult:
    """Check that the files are as edgegpu wrote them, except those that a person edits or that are used up."""
    try:
        users = {probe.k3s.place.path} if probe.k3s is not None else set[str]()  # the user's; may have our lines
        changed = [path for path in baseline.drifted(probe.layout) if path not in _MAY_CHANGE | users]
    except InstallError as error:
        raise ProbeError(error.message, remedy=error.remedy) from error
    problems = [
        warning(
            f"{path} is gone" if not os.path.lexists(probe.at(path)) else f"{path} was edited",
            f"{_INSTALL}  # writes it anew",
        )
        for path in changed
    ]
    return result_of(problems, ok="as edgegpu wrote them")


def check_leftovers(probe: BoxProbe) -> CheckResult:
    """Find old versions, half-unpacked folders and files of other products."""
    problems = [*_versions(probe), *_foreign(probe)]
    if probe.at(f"{K3S_FOLDER}/{SCHEDULER_YAML}").exists():
        problems += [
            warning(f"{path} is of an install by hand, and read by nobody", f"sudo rm {path}")
            for path in _BY_HAND
            if probe.at(path).exists() and not _named(probe, path)
        ]
    return result_of(problems, ok="none")


def _versions(probe: BoxProbe) -> Iterator[CheckProblem]:
    names = [name for name in probe.names(OPT) if name != "current"]
    current = probe.at(CURRENT)
    target = current.readlink().name if current.is_symlink() else ""
    if target and target not in names:
        yield broken(f"{CURRENT} leads to {target}, which is not there", "run the installer's line again")
    whole = [name for name in names if probe.at(f"{OPT}/{name}/bin/edgegpu").exists() and not name.startswith(".")]
    for name in sorted(set(names) - set(whole)):
        yield warning(f"{OPT}/{name} is a half-unpacked version", f"sudo rm -rf {OPT}/{name}")
    old = [name for name in whole if name != target]
    if len(old) >= _KEPT:
        paths = " ".join(f"{OPT}/{name}" for name in old)
        yield warning(f"{len(old)} old versions: {', '.join(old)}", f"sudo rm -rf {paths}")


def _foreign(probe: BoxProbe) -> Iterator[CheckProblem]:
    for path, product in _FOREIGN.items():
        if os.path.lexists(probe.at(path)):
            yield warning(f"{path} is {product}'s", f"uninstall {product} first; only then remove {path}")


def _named(probe: BoxProbe, path: str) -> bool:
    folder = f"{K3S_CONFIG}.d"
    files = [K3S_CONFIG, *(f"{folder}/{name}" for name in probe.names(folder))]
    return any(path in (probe.text(file) or "") for file in files)
