"""The check before a change whether edgegpu can be installed on a box: findings with remedies; pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from edgegpu_base.driver_libraries import FIRST_DRIVER, MISSING_REMEDY
from edgegpu_core import injection
from edgegpu_core.injection import Injection, NodeVersions
from edgegpu_core.model import ResourceModel
from edgegpu_installer.errors import InstallError
from edgegpu_installer.machine import k3s_config
from edgegpu_installer.machine.config_block import with_block
from edgegpu_installer.machine.facts import MachineFacts, NodeKind
from edgegpu_installer.machine.k3s import K3s
from edgegpu_installer.machine.k3s_config import COMMAND_LINE, SCHEDULER_ARG
from edgegpu_installer.machine.other_plugins import other_plugins
from edgegpu_installer.plan import start_wait
from edgegpu_installer.plan.site import InstallOptions, MachineRole
from edgegpu_installer.scheduler import versions
from edgegpu_installer.scheduler.manifest import MANIFEST

FIRST_MINOR, FIRST_SEEN = 20, 25
"""The first minor version that edgegpu installs on; the first whose scheduler was tested with our file."""

_MODEL = ResourceModel()
_MACHINES = {"x86_64", "amd64"}
_LEAST_MIB = {"/opt": 300, "/usr/local": 10, "/var/lib": 100, "/etc": 10, "/": 100}
_UNPACKED_MIB = 10
"""The MiB needed in /opt when the wanted version is already unpacked there: only a link is written then."""
_LINUX = "install it on a Linux of its own (no Windows below), with NVIDIA's driver for Linux"
_MODE = "driver.injection there sets the way of the cards by hand"
_WHERE = "edgegpu runs on k3s and kubeadm clusters; another Kubernetes beside this one would not help"
STEADY_S = 10.0
"""A k3s in a crash loop is never up this long, because it is restarted every few seconds."""


class FindingLevel(StrEnum):
    """How serious a finding is."""

    REFUSE = "refuse"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that prevents the installation, or that the person should know."""

    level: FindingLevel
    what: str
    why: str
    remedy: str


def refused(findings: list[Finding]) -> list[Finding]:
    """Return the findings that forbid the installation."""
    return [finding for finding in findings if finding.level is FindingLevel.REFUSE]


def precheck(
    facts: MachineFacts, options: InstallOptions, *, model: ResourceModel = _MODEL, unpacked: bool = False
) -> list[Finding]:
    """Return all findings about a box, those that forbid the installation first.

    Args:
        facts: the facts of the box.
        options: what the user asked for.
        model: the names of the resources.
        unpacked: whether the version to install is already in /opt.
    """
    if options.agent_only:
        return list(_machine(facts, MachineRole.EXTENDER_ONLY, unpacked=unpacked))
    role = _role(facts, options)
    found = [*_machine(facts, role, unpacked=unpacked), *_asked(facts, options), *_kind(facts)]
    if facts.k3s is not None:
        found += [*_health(facts.k3s), *_version(facts.k3s), *_configuration(facts.k3s, role)]
    elif facts.scheduler is not None and facts.scheduler.other_config and role is not MachineRole.AGENT:
        found.append(_merged(facts.scheduler.other_config, MANIFEST))
    if role is not MachineRole.EXTENDER_ONLY:
        found += [*_no_cards(facts), *_driver(facts), *_other_runtime(facts), *_runtime(facts)]
        found += _others(facts, model)
    elif facts.cards.on_bus:
        found += [*_no_cards(facts), *_other_runtime(facts)]
    found += [*_start_wait(facts, options, role), *_wsl(facts, role)]
    return sorted(found, key=lambda finding: finding.level is FindingLevel.WARN)


def _role(facts: MachineFacts, options: InstallOptions) -> MachineRole:
    """Return the role of this machine, even when edgegpu cannot be installed on it."""
    if options.role is not None:
        return options.role
    if facts.kind not in {NodeKind.K3S_SERVER, NodeKind.KUBEADM_SERVER}:
        return MachineRole.AGENT
    offers = facts.cards.cards and (facts.k3s is None or facts.k3s.has_kubelet)
    return MachineRole.SERVER if offers else MachineRole.EXTENDER_ONLY


def _machine(facts: MachineFacts, role: MachineRole, *, unpacked: bool) -> Iterator[Finding]:
    if not facts.root:
        yield _no("not root", "units, /etc and k3s's files are root's", "run it again with sudo")
    if facts.machine not in _MACHINES and role is not MachineRole.EXTENDER_ONLY:
        yield _no(
            f"a machine of kind {facts.machine}",
            "edgegpu shares NVIDIA cards of x86-64 machines",
            "install it on an x86-64 machine (Jetson and other boards have no separate card to share)",
        )
    least = _LEAST_MIB | ({"/opt": _UNPACKED_MIB} if unpacked else {})
    for room in facts.rooms:
        if room.read_only and room.path != "/":
            yield _no(
                f"{room.path} is read-only",
                "files must be written there",
                f"mount -o remount,rw {room.path}; dmesg says whether the disk has failed",
            )
        elif room.free_mib < least[room.path] and not room.read_only:
            yield _no(
                f"{room.path} has {room.free_mib} MiB left",
                f"{least[room.path]} MiB are needed there",
                f"make room: du -xh --max-depth=2 {room.path} | sort -h | tail; journalctl --vacuum-size=100M",
            )


def _asked(facts: MachineFacts, options: InstallOptions) -> Iterator[Finding]:
    if options.nodes and facts.kind in {NodeKind.K3S_AGENT, NodeKind.KUBEADM_NODE}:
        yield _no(
            f"--node on an agent node ({facts.kind})",
            "it may not label nodes",
            "run the line with --node on a server, and without it here",
        )


def _kind(facts: MachineFacts) -> Iterator[Finding]:
    match facts.kind:
        case NodeKind.NONE:
            yield _no(
                "no k3s on this machine",
                "no unit runs `k3s server` or `k3s agent`, and there is no kubelet of kubeadm's",
                "install k3s first: https://docs.k3s.io/quick-start",
            )
        case NodeKind.RKE2:
            yield _no("RKE2", "its scheduler is a static pod that RKE2 writes anew at each start", _WHERE)
        case NodeKind.MICROK8S:
            yield _no(
                "microk8s", "its scheduler is a part of kubelite, whose arguments edgegpu does not change", _WHERE
            )
        case NodeKind.K0S:
            yield _no("k0s", "it starts its scheduler itself, by its own configuration", _WHERE)
        case _:
            pass


def _health(k3s: K3s) -> Iterator[Finding]:
    unit, health = k3s.unit.name, k3s.health
    look = f"systemctl status {unit}; journalctl -u {unit} -e; install again once it is up"
    if not health.active:
        yield _no(f"{unit} is not up", health.why or "systemd says so", look)
    elif health.up_s < STEADY_S:
        often = f", and was started again {health.restarts} times" if health.restarts else ""
        yield _no(f"{unit} has been up for {health.up_s:.0f} s only", f"whether it stays up is not known{often}", look)
    elif health.ready is False:
        yield _no("the API server is not ready", health.why or "/readyz does not answer", look)


def _version(k3s: K3s) -> Iterator[Finding]:
    if k3s.minor is None:
        yield _warn("k3s's version is not known", f"{k3s.unit.program} --version did not say it", "look at it by hand")
    elif k3s.minor < FIRST_MINOR:
        yield _no(
            f"k3s {k3s.version}", f"device plugins need 1.{FIRST_MINOR} or newer", "upgrade k3s, one minor at a time"
        )
    elif k3s.minor < FIRST_SEEN and k3s.is_server:
        named = "" if k3s.takes_drop_in else f", named by marked lines in {k3s.config}"
        yield _warn(
            f"k3s {k3s.version} is old",
            f"its scheduler gets a file of {versions.version_for(k3s.minor)}{named}, which was tried; a kubelet so "
            "old was not, and what does not work is put back",
            "none is needed; k3s 1.25 and newer read the file of today",
        )


def _configuration(k3s: K3s, role: MachineRole) -> Iterator[Finding]:
    flags = k3s.effective()
    for problem in flags.problems:
        yield _no("k3s's configuration", problem, "put the file right; k3s would not come up with it either")
    for name in k3s.line.unclear:
        yield _no(
            f"k3s's unit has --{name} without a value that can be read",
            f"its ExecStart in {k3s.unit.path} names a variable that is not in the unit, a specifier, or nothing",
            f"write the value itself, as --{name}=VALUE there or as `{name}: VALUE` in {k3s.config}; then systemctl "
            f"daemon-reload and restart {k3s.unit.name}",
        )
    if flags.on("docker"):
        yield _no(
            "k3s runs on Docker (--docker)",
            "cards come into containers by CDI or by the nvidia runtime of k3s's own containerd",
            f"take --docker out of {k3s.unit.path} or {k3s.config} and restart k3s",
        )
    if role is not MachineRole.AGENT and k3s.is_server:
        yield from _scheduler(k3s)


def _scheduler(k3s: K3s) -> Iterator[Finding]:
    if k3s.effective().on("disable-scheduler"):
        yield _no(
            "k3s runs without its scheduler (--disable-scheduler)",
            "whatever schedules here would not ask edgegpu",
            f"install with --role agent, and give that scheduler the extender by hand; or take it out of {k3s.config}",
        )
    if k3s.config.startswith(("http://", "https://")):
        yield _no("k3s's configuration is read from the network", k3s.config, "keep it in a file on this machine")
    named = [value for value in k3s.foreign_scheduler_files if value.source == COMMAND_LINE]
    if named:
        rows = k3s_config.argument_list([f"config={named[-1].text}"])
        yield _no(
            f"k3s's unit names the scheduler's configuration: --{SCHEDULER_ARG}=config={named[-1].text}",
            "k3s reads the command line after its files, and of two config= the last counts: ours would not be read",
            f"take it out of {k3s.unit.path}, write it into {k3s.config}, then systemctl daemon-reload and restart "
            f"{k3s.unit.name}:\n{rows}",
        )
    if not k3s.takes_drop_in:
        yield from _block(k3s)
        return
    if later := k3s_config.replaces_ours(k3s.files, k3s.drop_in):
        yield _no(
            f"{later} would take our scheduler argument away",
            f"its `{SCHEDULER_ARG}:` replaces what files before it say, ours among them",
            f"write `{SCHEDULER_ARG}+:` there",
        )
    foreign = k3s.foreign_scheduler_files
    after_ours = [
        value for value in foreign if value.source > k3s.drop_in and value.source.startswith(f"{k3s.config}.d/")
    ]
    if (len(foreign) > 1 or after_ours) and not named:
        yield _no(
            f"scheduler configurations in {', '.join(value.source for value in foreign)}",
            "a scheduler reads one, and ours must be the last word",
            f"keep one config= in {k3s.config}, or in a drop-in whose name comes before {k3s.drop_in}",
        )
    elif foreign and not named:
        yield _merged(foreign[0].text, foreign[0].source)


def _merged(path: str, named_in: str) -> Finding:
    return _warn(
        f"the scheduler has a configuration already: {path}",
        f"{named_in} names it; ours takes its place and holds what is in it",
        "install again after each change of it",
    )


def _block(k3s: K3s) -> Iterator[Finding]:
    """Yield why our lines cannot be in the file that k3s reads first."""
    for path in k3s_config.naming(k3s.files, SCHEDULER_ARG):
        if path not in {k3s.config, k3s.drop_in}:
            yield _no(
                f"{path} gives the scheduler arguments",
                f"k3s {k3s.version} does not read it, or lets it take the place of those in {k3s.config}",
                f"move them to {k3s.config}, then install again",
            )
    first = next((file for file in k3s.files if file.path == k3s.config), None)
    if first is None or first.text is not None:
        try:
            with_block(first.text or "" if first else "", k3s.scheduler_file, path=k3s.config)
        except InstallError as error:
            why = f"k3s {k3s.version} takes the scheduler's arguments from that file alone"
            yield _no(error.message, why, error.remedy)


def _driver(facts: MachineFacts) -> Iterator[Finding]:
    """Yield what the installed driver is too old for, or lacks."""
    branch = facts.cards.version.partition(".")[0]
    if branch.isdigit() and int(branch) < FIRST_DRIVER:
        yield _no(
            f"the NVIDIA driver {facts.cards.version}",
            f"edgegpu needs {FIRST_DRIVER} or newer: older ones are not tried, and before 396 programs get no memory",
            f"install a driver of branch {FIRST_DRIVER} or newer; a card for which there is none cannot be shared",
        )
    if facts.cards.missing:
        yield _warn(
            f"the driver lacks {', '.join(facts.cards.missing)}",
            "its libcuda asks for them: programs that compile for the card fail in containers",
            MISSING_REMEDY,
        )


def _no_cards(facts: MachineFacts) -> Iterator[Finding]:
    if facts.cards.cards:
        return
    cards = "1 NVIDIA card" if facts.cards.on_bus == 1 else f"{facts.cards.on_bus} NVIDIA cards"
    if facts.cards.on_bus and not facts.cards.driver and facts.cards.installed:
        trouble = facts.cards.trouble
        why = facts.cards.why or "its kernel module is not loaded"
        remedy = "sudo modprobe nvidia; `sudo dmesg | grep -iE 'nvrm|nvidia'` says what it lacks"
        if trouble is not None:
            why, remedy = trouble.why, trouble.remedy
        yield _warn(
            f"{cards}, and a driver that is installed and not loaded",
            why,
            f"{remedy}; the cards are offered by themselves once the driver shows them",
        )
    elif facts.cards.on_bus and not facts.cards.driver:
        taken = f"; {facts.cards.trouble.why}" if facts.cards.trouble is not None else ""
        yield _warn(
            f"{cards}, and no driver",
            (facts.cards.why or "the driver is not installed") + taken,
            "install the NVIDIA driver and boot, then install again",
        )
    else:
        yield _warn(
            "no NVIDIA card is seen",
            facts.cards.why or "the driver shows none",
            "see nvidia-smi; the cards are offered by themselves once the driver shows them",
        )


def _wsl(facts: MachineFacts, role: MachineRole) -> Iterator[Finding]:
    """Yield what a machine of Windows' subsystem lacks."""
    if not facts.is_wsl:
        return
    what = "WSL2: the cards of this machine are Windows' (/dev/dxg)"
    why = "there are no device nodes of NVIDIA's, by which edgegpu brings cards into containers"
    if role is MachineRole.EXTENDER_ONLY:
        yield _warn(what, f"{why}: the extender alone is installed, and no card is offered here", _LINUX)
    else:
        yield _no(what, why, _LINUX)


def _other_runtime(facts: MachineFacts) -> Iterator[Finding]:
    """Yield what is to be known of a container runtime that is not the distribution's containerd."""
    versions = _versions(facts)
    if versions.has_other_runtime:
        problem = injection.cdi_problem(None, versions=versions)
        way, specs = "cards come by CDI, which has to be on there", "see that it reads CDI specs from /var/run/cdi; "
        if problem:
            way, specs = f"{problem}, so cards come by device nodes and files in kubelet's answer", ""
        yield _warn(
            f"the container runtime is {versions.runtime}",
            f"edgegpu is tested with containerd alone; {way}",
            f"{specs}`edgegpu doctor` after the first pod",
        )
    elif facts.k3s is not None and facts.runtime.endpoint:
        yield _warn(
            f"k3s uses a container runtime that it does not start itself: {facts.runtime.endpoint}",
            f"as its configuration counts {facts.runtime.config}, and not the one that k3s writes",
            f"if it is no containerd, or reads another file: driver.containerd_config in plugin.yaml; {_MODE}",
        )


def _runtime(facts: MachineFacts) -> Iterator[Finding]:
    containerd = facts.containerd
    if containerd is None:
        return
    if containerd.default_runtime == "nvidia":
        yield _warn(
            "containerd's default runtime is nvidia",
            "an image that sets NVIDIA_VISIBLE_DEVICES=all brings every card to every pod of it",
            "take default-runtime out of k3s's configuration and restart k3s",
        )
    choice = injection.choose(Injection.AUTO, versions=_versions(facts), containerd=containerd)
    match choice.mode:
        case Injection.RUNTIME:
            yield _warn(
                "cards come by the nvidia runtime",
                f"{choice.cdi_problem}: a pod's own NVIDIA_VISIBLE_DEVICES wins over ours",
                "pods need runtimeClassName: nvidia; upgrade k3s to 1.29 or newer for CDI",
            )
        case Injection.DEVICES:
            yield _warn(
                "cards come by device nodes and files in kubelet's answer",
                f"{choice.cdi_problem}, and containerd has no nvidia runtime: what a container gets is chosen when its "
                "pod comes, and a driver of another version needs the pods anew",
                "nothing; k3s 1.29 and newer have CDI, which follows the driver",
            )
        case _:
            pass


def _versions(facts: MachineFacts) -> NodeVersions:
    """Return the versions in the Node object; without them k3s's, which brings kubelet."""
    versions = facts.node.versions if facts.node is not None else NodeVersions()
    return versions.or_kubelet(facts.k3s.version if facts.k3s is not None else "")


def _start_wait(facts: MachineFacts, options: InstallOptions, role: MachineRole) -> Iterator[Finding]:
    if facts.k3s is not None or facts.kind in {NodeKind.KUBEADM_SERVER, NodeKind.KUBEADM_NODE}:
        for what, why, remedy in start_wait.refusals(facts, options, role=role):
            yield _no(what, why, remedy)
    if source := start_wait.overridden(facts, options):
        yield _warn(
            f"{source} has a resolv-conf for kubelet",
            "kubelet waits for the devices at edgegpu's, which was there before, and reads one of the two alone",
            "edgegpu install --wait-at-start off, or take it out there",
        )


def _others(facts: MachineFacts, model: ResourceModel) -> Iterator[Finding]:
    for other in other_plugins(facts, memory=model.memory_resource, core=model.core_resource):
        why = f"{other.seen}: both would hand out the same cards, and neither knows of the other"
        yield _no(f"another device plugin: {other.name}", why, other.remedy)


def _no(what: str, why: str, remedy: str) -> Finding:
    return Finding(FindingLevel.REFUSE, what, why, remedy)


def _warn(what: str, why: str, remedy: str) -> Finding:
    return Finding(FindingLevel.WARN, what, why, remedy)
