"""The plan of an installation on this machine, file by file; reading files is left to a function that is passed in."""

from collections.abc import Mapping
from dataclasses import dataclass

from edgegpu_installer.changes import FileChange, Plan, TransactionKind
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import (
    AGENT_UNIT,
    AGENT_YAML,
    CLOUD_TOKEN,
    COMMAND,
    CURRENT,
    ETC,
    EXTENDER,
    EXTENDER_CA,
    EXTENDER_CERT,
    EXTENDER_KEY,
    MPS_UNIT,
    OPT,
    PLUGIN_UNIT,
    PLUGIN_YAML,
    RECOVER,
    SELFTEST_UNIT,
    UNITS,
    WANTS,
    unit_drop_in,
)
from edgegpu_installer.plan import agent_config, shared_config, start_wait
from edgegpu_installer.plan.plugin_config import places, plugin_yaml, resource_model
from edgegpu_installer.plan.release import Release
from edgegpu_installer.plan.site import InstallOptions, MachineRole, PlanCredentials, Site, SiteKind, role_of
from edgegpu_installer.scheduler import file as schedulerfile
from edgegpu_installer.scheduler import kubeadm
from edgegpu_installer.scheduler.manifest import SCHEDULER_FILE
from edgegpu_installer.scheduler.refs import ReadFile

_SECRET, _PLAIN = 0o600, 0o644
_UNIT_DROP_IN = """\
[Service]
# Undoes a change of k3s's files that nobody has finished, before k3s reads them.
ExecStartPre=-{recover} check {unit}
"""


def plan_install(
    site: Site,
    options: InstallOptions,
    *,
    release: Release,
    material: PlanCredentials,
    read_file: ReadFile,
    op: TransactionKind = TransactionKind.INSTALL,
) -> Plan:
    """Return the plan that brings this machine to the wanted state, whatever of edgegpu is on it now.

    The files of edgegpu-recover itself are not in it: the transaction adds them as the first.

    Raises:
        InstallError: an existing configuration (of the plugin, of the scheduler) cannot be kept.
    """
    role = role_of(site, options)
    config = _config(site, options, role=role, read_file=read_file)
    waits = start_wait.waits(site, options, role=role, config=_present(read_file))
    if waits:
        site = start_wait.with_line(site)
    files = [
        *_guard(site),
        FileChange(CURRENT, link_to=release.version),
        FileChange(COMMAND, link_to=f"{CURRENT}/bin/edgegpu"),
        *_settings(config, material=material),
        *_cloud(options, read_file=read_file),
        FileChange(f"{UNITS}/{MPS_UNIT}", release.mps_unit),
        *_service(PLUGIN_UNIT, release.plugin_unit),
        FileChange(f"{UNITS}/{SELFTEST_UNIT}", release.selftest_unit),
        *_service(AGENT_UNIT, release.agent_unit),
    ]
    if waits:
        files.append(start_wait.link(site))
    if role is not MachineRole.AGENT:
        files += _extender(site, material, config=config, read_file=read_file)
    if options.wait_at_start is False and role is not MachineRole.AGENT:
        files += start_wait.removal()
    return Plan(
        op=op,
        files=tuple(files),
        folders=tuple(_folders(site, role)),
        reload=True,
        start=(PLUGIN_UNIT, AGENT_UNIT),
        restart=site.unit if site.kind.is_k3s else None,
    )


def plan_agent(
    site: Site, options: InstallOptions, *, release: Release, read_file: ReadFile, op: TransactionKind
) -> Plan:
    """Return the plan that installs the agent of a version without sharing; k3s reads none of its files."""
    files = [
        *_guard(site),
        FileChange(CURRENT, link_to=release.version),
        FileChange(COMMAND, link_to=f"{CURRENT}/bin/edgegpu"),
        *_service(AGENT_UNIT, release.agent_unit),
        *_cloud(options, read_file=read_file),
    ]
    folders = tuple(_folders(site, MachineRole.AGENT))
    return Plan(op=op, files=tuple(files), folders=folders, reload=True, start=(AGENT_UNIT,))


def _guard(site: Site) -> list[FileChange]:
    """Return the drop-in that runs edgegpu-recover before each start of k3s."""
    if not site.kind.is_k3s:
        return []
    text = _UNIT_DROP_IN.format(recover=RECOVER, unit=site.unit)
    return [FileChange(unit_drop_in(site.unit), text.encode(), early=True)]


def _service(unit: str, content: bytes) -> list[FileChange]:
    path = f"{UNITS}/{unit}"
    return [FileChange(path, content), FileChange(f"{WANTS}/{unit}", link_to=path)]


def _config(site: Site, options: InstallOptions, *, role: MachineRole, read_file: ReadFile) -> str:
    """Return the text of the plugin's new configuration."""
    return plugin_yaml(_present(read_file), site=site, options=options, role=role, read_file=read_file)


def _present(read_file: ReadFile) -> str | None:
    """Return the text of the plugin's present configuration; None without one."""
    there = read_file(PLUGIN_YAML)
    return None if there is None else there.decode(errors="replace")


def _settings(config: str, *, material: PlanCredentials) -> list[FileChange]:
    return [
        FileChange(PLUGIN_YAML, config.encode()),
        material.kubeconfig,
        *((material.limits,) if material.limits is not None else ()),
    ]


def _cloud(options: InstallOptions, *, read_file: ReadFile) -> list[FileChange]:
    """Return the agent's configuration and then the enrolment token; the agent reads them in this order."""
    there = read_file(AGENT_YAML)
    text = agent_config.agent_yaml(None if there is None else there.decode(errors="replace"), options)
    files: list[FileChange] = []
    if text is not None:
        mode = _SECRET if agent_config.holds_secret(text) else _PLAIN
        files.append(FileChange(AGENT_YAML, text.encode(), mode=mode))
    if options.token:
        files.append(FileChange(CLOUD_TOKEN, f"{options.token}\n".encode(), mode=_SECRET))
    return files


def _extender(site: Site, material: PlanCredentials, *, config: str, read_file: ReadFile) -> list[FileChange]:
    """Return the extender's certificates and the scheduler's file, which holds the client's certificate."""
    made = material.certificates
    if made is None:
        raise InstallError("cannot set up the extender without certificates", "install again")
    model = resource_model(config)
    wanted = schedulerfile.ExtenderEndpoint(
        ca=made.ca,
        cert=made.client.cert,
        key=made.client.key,
        listen=places(config).listen,
        memory=model.memory_resource,
        core=model.core_resource,
    )
    start = _started(site, read_file=read_file)
    elects = site.kind is SiteKind.KUBEADM_SERVER
    if start.config:
        existing = (start.read_file(start.config) or b"").decode(errors="replace")
        text = schedulerfile.merge(
            existing, wanted, source=start.config, read_file=start.read_file, minor=site.minor, may_elect=elects
        )
    else:
        text = schedulerfile.render(wanted, kubeconfig=start.kubeconfig, flags=start.flags, minor=site.minor)
    if problems := schedulerfile.validate(text, read_file=start.read_file, minor=site.minor, may_elect=elects):
        raise InstallError(
            f"cannot write a configuration that the scheduler would start with: {problems[0]}",
            f"see that the cluster is up and that {site.scheduler_kubeconfig} is there, then install again",
        )
    return [
        FileChange(EXTENDER_CA, made.ca.encode()),
        FileChange(EXTENDER_CERT, made.server.cert.encode()),
        FileChange(EXTENDER_KEY, made.server.key.encode(), mode=_SECRET),
        *_scheduler(site, text.encode(), read_file=read_file),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SchedulerStart:
    """How the scheduler starts without edgegpu: its configuration, empty without one, its kubeconfig, its flags.

    `read_file` takes paths as the scheduler has them: that of kubeadm's runs in a container.
    """

    config: str
    kubeconfig: str
    flags: Mapping[str, str]
    read_file: ReadFile


def _started(site: Site, *, read_file: ReadFile) -> _SchedulerStart:
    if site.kind is not SiteKind.KUBEADM_SERVER:
        return _SchedulerStart(
            config=site.scheduler_file,
            kubeconfig=site.scheduler_kubeconfig,
            flags=site.scheduler_flags,
            read_file=read_file,
        )
    manifest = kubeadm.read(_manifest(site, read_file))
    return _SchedulerStart(
        config=manifest.other_config,
        kubeconfig=manifest.kubeconfig,
        flags=manifest.flags,
        read_file=lambda path: read_file(manifest.host_path(path)),
    )


def _manifest(site: Site, read_file: ReadFile) -> str:
    try:
        content = read_file(site.manifest)
        if content is None:
            raise InstallError(f"cannot read {site.manifest}", "check that this is a control-plane node of kubeadm's")
        return content.decode()
    except UnicodeDecodeError as error:
        raise InstallError(
            f"cannot read {site.manifest}: it is not text", "put it right, then install again"
        ) from error


def _scheduler(site: Site, content: bytes, *, read_file: ReadFile) -> list[FileChange]:
    if site.kind is SiteKind.KUBEADM_SERVER:
        manifest = _manifest(site, read_file)
        return list(kubeadm.plan_files(manifest, scheduler_file=content, mode=site.manifest_mode))
    file = FileChange(site.scheduler_path, content, mode=_SECRET, k3s_reads=True)
    return [file, *shared_config.naming(site, read_file=read_file)]


def _folders(site: Site, role: MachineRole) -> list[str]:
    """Return the folders that must exist, outer ones first."""
    found = [OPT, ETC]
    if site.kind.is_k3s:
        found.append(unit_drop_in(site.unit).rpartition("/")[0])
    if role is not MachineRole.AGENT:
        found.append(EXTENDER)
        if site.kind.is_k3s:
            found += [path.rpartition("/")[0] for path in (site.scheduler_path, shared_config.named_in(site))]
        else:
            found.append(SCHEDULER_FILE.rpartition("/")[0])
    return found
