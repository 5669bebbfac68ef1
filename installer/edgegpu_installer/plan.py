"""What is put on a box for each role, file by file, and how it is told to the person beforehand; pure."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from edgegpu_installer import layout as on_box
from edgegpu_installer.changes import FileChange, Plan
from edgegpu_installer.errors import InstallError
from edgegpu_installer.facts import Facts
from edgegpu_installer.host_k3s import K3s
from edgegpu_installer.k3sconfig import SCHEDULER_ARG
from edgegpu_installer.material import Material, Release
from edgegpu_installer.options import Options, Role
from edgegpu_installer.pluginfile import plugin_yaml
from edgegpu_installer.precheck import role_of
from edgegpu_installer.schedulerfile import Extender, merge, render, validate
from edgegpu_installer.schedulerrefs import ReadFile
from edgegpu_installer.states import Op

_SECRET = 0o600
_PROGRAM = 0o755

_UNIT_DROP_IN = """\
# Written by edgegpu: a change of ours that does not work is taken back when k3s starts, whoever made it. "-": k3s
# starts whatever this says.
[Service]
ExecStartPre=-/usr/local/lib/edgegpu/edgegpu-recover check
"""
_K3S_DROP_IN = """\
# Written by edgegpu: the scheduler reads its configuration from this file.
"""
_K3S_DROP_IN_WHOLE = """\
# Written by edgegpu: the scheduler reads its configuration from our file, which holds what was in
# {foreign}. No "+": the list without that config= takes the place of the one before.
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of what would be done: a file, folder, unit, restart or label."""

    what: str
    how: str
    """`new`, `changed`, `unchanged`, `removed`, `start`, `stop`, `restart`, `label`."""
    mode: int | None
    why: str


def plan_install(
    facts: Facts, options: Options, material: Material, release: Release, *, read_file: ReadFile, op: Op = Op.INSTALL
) -> Plan:
    """Return all that an installation puts on a box, whether it is there already or not.

    Args:
        facts: the box.
        options: what was asked for.
        material: what was minted for it.
        release: the version, unpacked already.
        read_file: reads a file of the box, for a scheduler configuration that is there and for what it names.
        op: for the journal.

    Raises:
        InstallError: material that the role needs is missing, or a scheduler configuration cannot be merged.
    """
    role = role_of(facts, options)
    files = [
        *_recovery(facts, release),
        *_program(release),
        *_settings(facts, options, role, material),
        *(_extender_files(material) if role.has_extender else ()),
        *_enabled(),
    ]
    if role.has_extender and facts.k3s is not None:
        files += _scheduler(facts.k3s, options, material, read_file)
    return Plan(
        op,
        tuple(files),
        folders=_folders(files),
        reload=True,
        start=(on_box.PLUGIN_UNIT, on_box.AGENT_UNIT),
        restart=facts.k3s.unit.name if facts.k3s is not None and role.has_extender else None,
    )


def plan_change(facts: Facts, options: Options, material: Material, release: Release, *, read_file: ReadFile) -> Plan:
    """Return the plan for other options of an installation that is there. Raises InstallError, as plan_install."""
    return plan_install(facts, options, material, release, read_file=read_file, op=Op.CHANGE)


def plan_upgrade(facts: Facts, options: Options, material: Material, release: Release, *, read_file: ReadFile) -> Plan:
    """Return the plan for another version; k3s restarts only if its inputs differ. Raises InstallError."""
    return plan_install(facts, options, material, release, read_file=read_file, op=Op.UPGRADE)


def k3s_inputs_hash(plan: Plan) -> str:
    """Return a hash over all that k3s reads of a plan at its start: the same hash needs no restart."""
    digest = hashlib.sha256()
    for change in sorted(plan.files, key=lambda change: change.path):
        if change.k3s_reads:
            for part in (change.path.encode(), change.content or b"", (change.link_to or "").encode()):
                digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()


def describe(
    plan: Plan,
    *,
    now: Callable[[str], tuple[bytes | str | None, int | None]],
    labels: Mapping[str, str] | None = None,
) -> list[Step]:
    """Return every file, folder, unit, restart and label of a plan, for `--dry-run`.

    `now` says how a path is: (content, mode), (target of a link, None), or (None, None) where nothing is.
    """
    steps = [Step(folder, "new", 0o755, "") for folder in plan.folders if now(folder) == (None, None)]
    steps += [_step(change, *now(change.path)) for change in plan.files]
    touched = {step.what for step in steps if step.how in {"new", "changed", "removed"}}
    steps += [Step(unit, "stop", None, "") for unit in plan.stop]
    if touched:
        steps += [Step(unit, "start", None, "") for unit in plan.start]
    if plan.restart is not None and touched & {change.path for change in plan.files if change.k3s_reads}:
        steps.append(Step(plan.restart, "restart", None, "it reads its scheduler's configuration at its start alone"))
    return steps + [Step(f"{name}={value}", "label", None, "on this node") for name, value in (labels or {}).items()]


def _step(change: FileChange, content: bytes | str | None, mode: int | None) -> Step:
    why = next((why for start, why in _WHY.items() if change.path.startswith(start)), "")
    if change.absent:
        return Step(change.path, "unchanged" if content is None else "removed", None, why)
    wanted = change.link_to if change.link_to is not None else change.content
    same = content == wanted and (change.link_to is not None or mode == change.mode)
    how = "new" if content is None else "unchanged" if same else "changed"
    return Step(change.path, how, None if change.link_to is not None else change.mode, why)


_WHY = {
    on_box.RECOVER: "takes a change back that does not work, with nothing else of edgegpu's alive",
    on_box.PLUGIN_YAML: "the plugin's configuration",
    on_box.KUBECONFIG: "edgegpu's own account in the cluster",
    on_box.EXTENDER: "the extender's certificates: only this machine's scheduler may call it",
    on_box.CLOUD_TOKEN: "the token, for the cloud link",
    on_box.COMMAND: "the command edgegpu on the PATH",
    on_box.CURRENT: "the version in use",
    on_box.WANTS: "started at boot",
    on_box.UNITS: "systemd",
    on_box.K3S_FOLDER: "k3s's scheduler asks edgegpu",
}


def _recovery(facts: Facts, release: Release) -> Iterator[FileChange]:
    """Yield what recovery needs: it is there before anything else is changed."""
    yield FileChange(on_box.RECOVER, release.recover, _PROGRAM, early=True)
    yield FileChange(f"{on_box.UNITS}/{on_box.RECOVER_UNIT}", release.units[on_box.RECOVER_UNIT], early=True)
    if facts.k3s is not None:
        yield FileChange(on_box.unit_drop_in(facts.k3s.unit.name), _UNIT_DROP_IN.encode(), early=True)


def _program(release: Release) -> Iterator[FileChange]:
    yield FileChange(on_box.CURRENT, link_to=release.version)
    yield FileChange(on_box.COMMAND, link_to=f"{on_box.CURRENT}/bin/edgegpu")
    for unit in (on_box.PLUGIN_UNIT, on_box.AGENT_UNIT):
        yield FileChange(f"{on_box.UNITS}/{unit}", release.units[unit])


def _settings(facts: Facts, options: Options, role: Role, material: Material) -> Iterator[FileChange]:
    yield FileChange(on_box.PLUGIN_YAML, plugin_yaml(facts, options, role).encode())
    yield FileChange(on_box.KUBECONFIG, material.kubeconfig.encode(), _SECRET)
    if material.token is not None:
        yield FileChange(on_box.CLOUD_TOKEN, f"{material.token}\n".encode(), _SECRET)


def _extender_files(material: Material) -> Iterator[FileChange]:
    yield FileChange(on_box.EXTENDER_CA, _needed(material.ca, "authority").encode())
    yield FileChange(on_box.EXTENDER_CERT, _needed(material.server_cert, "certificate").encode())
    yield FileChange(on_box.EXTENDER_KEY, _needed(material.server_key, "key").encode(), _SECRET)


def _enabled() -> Iterator[FileChange]:
    for unit in (on_box.PLUGIN_UNIT, on_box.AGENT_UNIT):
        yield FileChange(f"{on_box.WANTS}/{unit}", link_to=f"{on_box.UNITS}/{unit}")


def _scheduler(k3s: K3s, options: Options, material: Material, read_file: ReadFile) -> Iterator[FileChange]:
    """Yield the scheduler's file and, after it, the drop-in that names it."""
    extender = Extender(
        ca=_needed(material.ca, "authority"),
        cert=_needed(material.client_cert, "client's certificate"),
        key=_needed(material.client_key, "client's key"),
        listen=options.listen,
        memory=options.memory,
        core=options.core,
    )
    foreign = k3s.foreign_scheduler_files
    if foreign:
        existing = read_file(foreign[-1].text)
        if existing is None:
            raise InstallError(
                f"cannot merge edgegpu into the scheduler's configuration {foreign[-1].text}: it cannot be read",
                remedy=f"put the file there, or take its config= out of {foreign[-1].source}",
            )
        text = existing.decode(errors="replace")
        content = merge(text, extender, source=foreign[-1].text, read_file=read_file)
    else:
        content = render(extender, kubeconfig=k3s.scheduler_kubeconfig)
    if problems := validate(content, read_file=read_file):
        raise InstallError(
            f"cannot write a scheduler configuration that the scheduler would start with: {problems[0]}",
            remedy=f"see that k3s is up and that {k3s.scheduler_kubeconfig} is there, then install again",
        )
    yield FileChange(k3s.scheduler_file, content.encode(), _SECRET, k3s_reads=True)
    yield FileChange(k3s.drop_in, _drop_in(k3s).encode(), k3s_reads=True)


def _drop_in(k3s: K3s) -> str:
    """Return our drop-in: it adds one argument, or where another configuration is named, all the others and ours."""
    ours = f"config={k3s.scheduler_file}"
    foreign = k3s.foreign_scheduler_files
    if not foreign:
        return f'{_K3S_DROP_IN}{SCHEDULER_ARG}+: ["{ours}"]\n'
    others = [
        value.text
        for value in k3s.effective(without_ours=True).values(SCHEDULER_ARG)
        if value.text.removeprefix("--").partition("=")[0].rstrip("+-") != "config"
    ]
    rows = "".join(f"  - '{one.replace(chr(39), chr(39) * 2)}'\n" for one in [*others, ours])
    return f"{_K3S_DROP_IN_WHOLE.format(foreign=foreign[-1].text)}{SCHEDULER_ARG}:\n{rows}"


def _needed(pem: str | None, what: str) -> str:
    if pem is None:
        raise InstallError(f"cannot plan an extender: its {what} was not made", remedy="run the installation anew")
    return pem


def _folders(files: list[FileChange]) -> tuple[str, ...]:
    """Return the folders above the files that a box may lack, the outer before the inner."""
    always = {"/", "/etc", "/usr", "/usr/local", "/opt", "/var", "/var/lib", "/etc/systemd", "/etc/systemd/system"}
    needed = {on_box.STATE}
    for change in files:
        parts = change.path.split("/")[1:-1]
        needed |= {"/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))}
    return tuple(sorted(needed - always))
