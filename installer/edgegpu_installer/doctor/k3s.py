"""Checks of k3s: its unit, its version, and the file that its scheduler reads."""

from collections.abc import Iterator

from edgegpu_installer.doctor.probe import BoxProbe, ProbeError
from edgegpu_installer.doctor.units import last_words, restarted, restarted_s, started_s, unit
from edgegpu_installer.doctor.verdict import (
    CheckLevel,
    CheckProblem,
    CheckResult,
    broken,
    info,
    result_of,
    skipped,
    warning,
)
from edgegpu_installer.errors import InstallError
from edgegpu_installer.machine import k3s_config
from edgegpu_installer.machine.facts import NodeKind
from edgegpu_installer.machine.k3s import K3s
from edgegpu_installer.machine.k3s_config import COMMAND_LINE, SCHEDULER_ARG, ConfigValue
from edgegpu_installer.scheduler import file as schedulerfile
from edgegpu_installer.scheduler import kubeadm
from edgegpu_installer.scheduler.manifest import MANIFEST, SCHEDULER_FILE

_OLDEST = 20
"""The oldest minor version of Kubernetes 1 that the plugin works with."""
_INSTALL = "sudo edgegpu install"
_REMOVED = "sudo edgegpu uninstall  # or install k3s again, and then `sudo edgegpu install`"
_RECENT_S = 600.0
_PRIVATE = 0o077
_SLACK_S = 2.0
"""The kernel gives the time of its boot in whole seconds."""


def check_k3s(probe: BoxProbe) -> CheckResult:
    """Check k3s's unit, its restarts, its version and its readiness."""
    k3s = probe.k3s
    if k3s is None and probe.facts.kind is NodeKind.NONE and probe.installed:
        text = "there is no k3s on this machine any more, and edgegpu is still here"
        return result_of([broken(text, _REMOVED)])
    if k3s is None:
        return info(f"there is no k3s on this machine: {probe.facts.kind.value}")
    name, service = k3s.unit.name, unit(probe, k3s.unit.name)
    problems: list[CheckProblem] = []
    log = f"sudo journalctl -u {name} -e"
    if not service.is_running:
        again = f", started again {service.restarts} times" if service.restarts else ""
        text = f"{name} is {service.active} ({service.sub}, {service.result}){again}"
        problems.append(broken(text, f"{log}; sudo systemctl restart --no-block {name}"))
    elif (ago_s := restarted_s(probe, service)) is not None:
        level = broken if ago_s < _RECENT_S else warning
        problems.append(level(restarted(service, ago_s), log))
    problems += [broken(problem, f"sudoedit that file; {log}") for problem in k3s.effective().problems]
    problems += _version_problems(k3s)
    if k3s.health.ready is False:
        problems.append(broken(f"the API server is not ready: {k3s.health.why}", log))
    details = last_words(probe, name) if problems else []
    role = "server" if k3s.is_server else "agent node"
    return result_of(problems, ok=f"{role}, {k3s.version or 'of an unknown version'}, runs", details=details)


def _version_problems(k3s: K3s) -> Iterator[CheckProblem]:
    if k3s.minor is None:
        return
    upgrade = "upgrade k3s to 1.25 or later, one minor at a time"
    if k3s.minor < _OLDEST:
        yield broken(f"k3s {k3s.version} is too old: its kubelet lacks what the plugin needs", upgrade)


def check_scheduler(probe: BoxProbe) -> CheckResult:
    """Check that the scheduler reads our file, and that it can start with it."""
    k3s = probe.k3s
    if probe.facts.kind is NodeKind.KUBEADM_SERVER:
        return _check_manifest(probe)
    if k3s is None or not k3s.is_server:
        return skipped("no scheduler runs on this machine")
    if not probe.settings.has_extender:
        return skipped("this machine's plugin has no extender (role agent)")
    given = k3s_config.scheduler_file(k3s.effective().values(SCHEDULER_ARG))
    path = given[-1].text if given else k3s.scheduler_file
    wrong = list(_content(probe, path))
    unread = (
        [] if any(one.level is CheckLevel.BROKEN for one in wrong) else _unread(probe, k3s, path)
    )  # advise no restart while the file is bad
    problems = [*_effective(k3s, given), *_moved(k3s), *wrong, *unread]
    source = given[-1].source if given else "nobody"
    return result_of(problems, ok=f"reads {path}", details=[f"{path}, named by {source}"])


def _check_manifest(probe: BoxProbe) -> CheckResult:
    """Check the scheduler that kubelet runs from kubeadm's manifest."""
    try:
        manifest = kubeadm.read(probe.text(MANIFEST) or "")
    except InstallError as error:
        raise ProbeError(error.message, remedy=error.remedy) from error
    problems = list(_content(probe, SCHEDULER_FILE))
    if not manifest.ours:
        text = f"the scheduler reads {manifest.config or 'no file'}: GPU pods are bound without a card"
        problems.append(broken(text, f"{_INSTALL}  # which changes {MANIFEST}"))
    return result_of(problems, ok=f"reads {SCHEDULER_FILE}", details=[MANIFEST])


def _effective(k3s: K3s, given: tuple[ConfigValue, ...]) -> Iterator[CheckProblem]:
    paths = [value.text for value in given]
    by_hand = any("edgegpu" in path for path in paths)
    if k3s.scheduler_file in paths[-1:] or (by_hand and "edgegpu" in paths[-1]):
        return
    if given and given[-1].source == COMMAND_LINE:
        yield broken(
            f"the unit of k3s names {paths[-1]} by --kube-scheduler-arg, which counts after {k3s.named_in}",
            f"sudo systemctl edit --full {k3s.unit.name} && {_INSTALL}  # move it to {k3s.config}",
        )
        return
    replaced = k3s_config.replaces_ours(k3s.files, k3s.drop_in) if k3s.takes_drop_in else None
    if replaced is not None:
        yield broken(
            f"{replaced} says kube-scheduler-arg: without +, which takes the place of {k3s.drop_in}",
            f"sudo sed -i 's/^kube-scheduler-arg:/kube-scheduler-arg+:/' {replaced}; "
            f"sudo systemctl restart --no-block {k3s.unit.name}",
        )
    elif given:
        yield broken(f"the scheduler reads {paths[-1]} and not edgegpu's file", f"{_INSTALL}  # which merges both")
    else:
        yield broken("the scheduler reads no file of edgegpu's: GPU pods are bound without a card", _INSTALL)


def _moved(k3s: K3s) -> Iterator[CheckProblem]:
    """Yield a warning when a k3s that was upgraded could use a drop-in, and our lines are still in the user's file."""
    if k3s.has_block and k3s.takes_drop_in:
        yield warning(
            f"{k3s.config} names edgegpu's file, as k3s before 1.21.1 needed it",
            f"{_INSTALL}  # which moves it to {k3s.drop_in}",
        )


def _content(probe: BoxProbe, path: str) -> Iterator[CheckProblem]:
    text = probe.text(path)
    if text is None:
        yield broken(
            f"{path} is missing: the scheduler will not start again", f"{_INSTALL}  # before anything is restarted"
        )
        return
    minor = probe.facts.scheduler_minor
    elects = probe.k3s is None
    for problem in schedulerfile.validate(text, read_file=probe.layout.read, minor=minor, may_elect=elects):
        yield broken(
            f"{path}: {problem}: the scheduler will not start again with it",
            f"{_INSTALL}  # before anything is restarted",
        )
    if probe.at(path).stat().st_mode & _PRIVATE:
        yield warning(f"{path} holds a key and can be read by others than root", f"sudo chmod 600 {path}")


def _unread(probe: BoxProbe, k3s: K3s, path: str) -> Iterator[CheckProblem]:
    """Yield files that changed after k3s had read them: k3s uses the change only from its next start on."""
    since_s = started_s(probe, unit(probe, k3s.unit.name))
    if since_s is None:
        return
    for name in (path, *([k3s.config] if k3s.has_block else []), k3s.drop_in):
        file = probe.at(name)
        if file.exists() and file.stat().st_mtime > since_s + _SLACK_S:
            yield warning(f"{name} changed after k3s had read it", f"sudo systemctl restart --no-block {k3s.unit.name}")
