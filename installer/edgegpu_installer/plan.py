"""What an installation changes on this machine, file by file, as a plan of the transaction; no file is read in here."""

from dataclasses import dataclass

from edgegpu_installer import kubeadm, schedulerfile
from edgegpu_installer.changes import FileChange, Plan
from edgegpu_installer.errors import InstallError
from edgegpu_installer.kubeadm_manifest import SCHEDULER_FILE
from edgegpu_installer.layout import (
    AGENT_UNIT,
    CLOUD_TOKEN,
    COMMAND,
    CURRENT,
    ETC,
    EXTENDER,
    EXTENDER_CA,
    EXTENDER_CERT,
    EXTENDER_KEY,
    K3S_DROP_IN,
    KUBECONFIG,
    LIB,
    OPT,
    PLUGIN_UNIT,
    PLUGIN_YAML,
    RECOVER,
    RECOVER_UNIT,
    SCHEDULER_YAML,
    UNITS,
    WANTS,
    unit_drop_in,
)
from edgegpu_installer.pluginyaml import plugin_yaml
from edgegpu_installer.schedulerrefs import ReadFile
from edgegpu_installer.site import Material, Options, Role, Site, SiteKind, role_of
from edgegpu_installer.states import Op

RECOVER_LIB = f"{RECOVER}-lib.sh"
_SECRET = 0o600
_PROGRAM = 0o755
_UNIT_DROP_IN = """\
[Service]
# Undoes a change of k3s's files that nobody has finished, before k3s reads them.
ExecStartPre=-{recover} check {unit}
"""
_K3S_DROP_IN = """\
# edgegpu: which configuration the scheduler reads. `edgegpu uninstall` takes it away.
kube-scheduler-arg+: ["config={path}"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version of edgegpu that lies unpacked in /opt/edgegpu/VERSION: what of it goes elsewhere."""

    version: str
    plugin_unit: bytes
    agent_unit: bytes
    recover_unit: bytes
    recover: bytes
    recover_lib: bytes


def plan_install(
    site: Site, options: Options, *, release: Release, material: Material, read_file: ReadFile, op: Op = Op.INSTALL
) -> Plan:
    """Return the plan that brings this machine to what was asked for, whatever of edgegpu is on it now.

    Raises:
        InstallError: an existing configuration (of the plugin, of the scheduler) cannot be kept.
    """
    role = role_of(site, options)
    files = [
        *_recovery(site, release),
        FileChange(CURRENT, link_to=release.version),
        FileChange(COMMAND, link_to=f"{CURRENT}/bin/edgegpu"),
        *_settings(site, options, role=role, material=material, read_file=read_file),
        *_service(PLUGIN_UNIT, release.plugin_unit),
        *_service(AGENT_UNIT, release.agent_unit),
    ]
    if role is not Role.AGENT:
        files += _extender(site, material, read_file=read_file)
    return Plan(
        op=op,
        files=tuple(files),
        folders=tuple(_folders(site, role)),
        reload=True,
        start=(PLUGIN_UNIT, AGENT_UNIT),
        restart=site.unit if site.kind.is_k3s else None,
    )


def _recovery(site: Site, release: Release) -> list[FileChange]:
    """Return what undoes the rest; it is there first and goes last."""
    check = _UNIT_DROP_IN.format(recover=RECOVER, unit=site.unit)
    files = [
        FileChange(RECOVER_LIB, release.recover_lib, early=True),
        FileChange(RECOVER, release.recover, mode=_PROGRAM, early=True),
        FileChange(f"{UNITS}/{RECOVER_UNIT}", release.recover_unit, early=True),
        FileChange(f"{WANTS}/{RECOVER_UNIT}", link_to=f"{UNITS}/{RECOVER_UNIT}", early=True),
    ]
    if site.kind.is_k3s:
        files.append(FileChange(unit_drop_in(site.unit), check.encode(), early=True))
    return files


def _service(unit: str, content: bytes) -> list[FileChange]:
    path = f"{UNITS}/{unit}"
    return [FileChange(path, content), FileChange(f"{WANTS}/{unit}", link_to=path)]


def _settings(site: Site, options: Options, *, role: Role, material: Material, read_file: ReadFile) -> list[FileChange]:
    there = read_file(PLUGIN_YAML)
    config = plugin_yaml(
        None if there is None else there.decode(errors="replace"), site=site, options=options, role=role
    )
    files = [
        FileChange(PLUGIN_YAML, config.encode()),
        FileChange(KUBECONFIG, material.kubeconfig.encode(), mode=_SECRET),
    ]
    if options.token:
        files.append(FileChange(CLOUD_TOKEN, f"{options.token}\n".encode(), mode=_SECRET))
    return files


def _extender(site: Site, material: Material, *, read_file: ReadFile) -> list[FileChange]:
    """Return the extender's certificates, and the scheduler's file that holds the client's."""
    made = material.certificates
    if made is None:
        raise InstallError("cannot set up the extender without certificates", "install again")
    wanted = schedulerfile.Extender(ca=made.ca, cert=made.client.cert, key=made.client.key)
    if site.scheduler_file:
        existing = (read_file(site.scheduler_file) or b"").decode(errors="replace")
        text = schedulerfile.merge(existing, wanted, source=site.scheduler_file, read_file=read_file)
    else:
        text = schedulerfile.render(wanted, kubeconfig=site.scheduler_kubeconfig)
    return [
        FileChange(EXTENDER_CA, made.ca.encode()),
        FileChange(EXTENDER_CERT, made.server.cert.encode()),
        FileChange(EXTENDER_KEY, made.server.key.encode(), mode=_SECRET),
        *_scheduler(site, text.encode(), read_file=read_file),
    ]


def _scheduler(site: Site, content: bytes, *, read_file: ReadFile) -> list[FileChange]:
    if site.kind is SiteKind.KUBEADM_SERVER:
        manifest = read_file(site.manifest)
        if manifest is None:
            raise InstallError(f"cannot read {site.manifest}", "is this a control-plane node of kubeadm's?")
        return list(kubeadm.plan_files(manifest.decode(), scheduler_file=content))
    path = scheduler_path(site)
    argument = _K3S_DROP_IN.format(path=path)
    return [
        FileChange(path, content, mode=_SECRET, k3s_reads=True),
        FileChange(f"{site.config_folder}/config.yaml.d/{K3S_DROP_IN}", argument.encode(), k3s_reads=True),
    ]


def scheduler_path(site: Site) -> str:
    """Return where k3s's scheduler reads its configuration: not in `config.yaml.d`, which is k3s's own."""
    return f"{site.config_folder}/{SCHEDULER_YAML}"


def _folders(site: Site, role: Role) -> list[str]:
    """Return the folders that must be there, outer ones first."""
    found = [OPT, LIB, UNITS, WANTS, ETC]
    if site.kind.is_k3s:
        found.append(unit_drop_in(site.unit).rpartition("/")[0])
    if role is not Role.AGENT:
        found.append(EXTENDER)
        if site.kind.is_k3s:
            found += [site.config_folder, f"{site.config_folder}/config.yaml.d"]
        else:
            found.append(SCHEDULER_FILE.rpartition("/")[0])
    return found
