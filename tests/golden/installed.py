"""What the installer makes of a machine: plans with every file and unit, its journal and baseline, its accounts."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from golden import doors
from golden.shapes import named, written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
CREDENTIALS = "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"
MANIFEST = "/etc/kubernetes/manifests/kube-scheduler.yaml"
KUBEADM = doors.KUBEADM_MANIFEST.read_text()
OWN_PROGRAMS = ("/usr/local/lib/edgegpu/edgegpu-recover", "/usr/local/lib/edgegpu/edgegpu-recover-lib.sh")
ALL_OPTIONS = {
    "policy": "spread",
    "exclude": ("1",),
    "unit_mib": 512,
    "reserve_mib": 100,
    "driver_root": "/run/nvidia/driver",
    "token": "one-time-token",
    "cloud": "https://cloud.example:8443",
    "ca_sha256": "ab" * 32,
    "proxy": "http://proxy:3128",
    "limits_namespaces": ("baetyl-edge",),
}
VERSIONS = {"v1.21.14+k3s1": "v1beta1", "v1.22.17+k3s1": "v1beta2", "v1.24.17+k3s1": "v1beta3", "v1.33.13+k3s1": "v1"}


def version_folder(folder: Path) -> Path:
    """Lay a version of edgegpu out as tools/env does, as far as an installation reads of it."""
    version = folder / "version"
    (version / "installer").mkdir(parents=True)
    shutil.copytree(doors.UNITS, version / "systemd")
    shutil.copytree(doors.EXAMPLES, version / "examples")
    for program in ("edgegpu-recover", "edgegpu-recover-lib.sh", "edgegpu-farewell"):
        shutil.copy(doors.SCRIPTS / program, version / "installer")
    (version / "VERSION").write_text("1.2.3\n")
    return version


def files(folder: Path) -> dict[str, str]:
    release = doors.read_release(version_folder(folder))
    made = {}
    for name, box in boxes(folder):
        options = (
            ALL_OPTIONS if name == "k3s-server-all-options" else {"agent_only": True} if name == "agent-only" else {}
        )
        plan = plan_of(box, release, **options)
        made[f"{name}.plan"] = shown(plan, release)
        if name == "k3s-server":
            made["uninstall.plan"] = shown(removal_of(box, release, plan), release)
    for version, api in VERSIONS.items():
        made[f"scheduler-{api}.yaml"] = scheduler_of(folder / api, version, release)
    made["layout.json"] = written(sorted(doors.PATHS))
    made["rights.yaml"] = yaml.safe_dump_all(release.rights.items, sort_keys=False)
    made["limits-rights.yaml"] = limits_rights()
    return made | transaction(folder / "transaction")


def limits_rights() -> str:
    made = doors.limits_rights.manifests(["baetyl-edge"], model=doors.ResourceModel())
    return str(yaml.safe_dump_all([without_messages(one) for one in made], sort_keys=False, width=200))


def without_messages(value: Any) -> Any:  # noqa: ANN401  (a Kubernetes object)
    """Return an object without the sentences in it."""
    match value:
        case dict():
            prose = ("message", "messageExpression")
            return {key: without_messages(one) for key, one in value.items() if key not in prose}
        case list() | tuple():
            return [without_messages(one) for one in value]
        case _:
            return value


def boxes(folder: Path) -> list[tuple[str, Any]]:
    def box(name: str, make: Callable[[Any], object], *, gpu: bool = True) -> tuple[str, Any]:
        made = doors.FakeBox(folder / name)
        make(made)
        if gpu:
            made.gpu()
        made.write(CREDENTIALS, yaml.safe_dump(doors.SCHEDULER_KUBECONFIG))
        return name, made

    def kubeadm(made: Any) -> None:  # noqa: ANN401  (the door's)
        made.write(MANIFEST, KUBEADM).chmod(0o600)
        made.write("/etc/kubernetes/scheduler.conf", yaml.safe_dump(doors.SCHEDULER_KUBECONFIG))

    return [
        box("k3s-server", lambda made: made.k3s()),
        box("k3s-server-all-options", lambda made: made.k3s()),
        box("k3s-server-1.20", lambda made: made.k3s(version="v1.20.15+k3s1", config="v: 2\n")),
        box("k3s-agent", lambda made: made.k3s("agent", unit="k3s-agent")),
        box("extender-only", lambda made: made.k3s(), gpu=False),
        box("kubeadm-server", kubeadm),
        box("agent-only", lambda made: made.k3s()),
    ]


def plan_of(box: Any, release: Any, **options: Any) -> Any:  # noqa: ANN401  (the doors')
    made = doors.Installation(
        site=doors.site_of(box.facts()),
        options=doors.InstallOptions(**options),
        release=release,
        machine=doors.machine_of(box),
        verifier=doors.never,
        now=lambda: NOW,
    )
    return release.recovery.into(made.preview().plan)


def scheduler_of(folder: Path, version: str, release: Any) -> str:  # noqa: ANN401  (the door's)
    box = doors.FakeBox(folder)
    box.k3s(version=version)
    box.gpu()
    box.write(CREDENTIALS, yaml.safe_dump(doors.SCHEDULER_KUBECONFIG))
    contents = {change.path: change.content for change in plan_of(box, release).files}
    return named((contents["/etc/rancher/k3s/edgegpu-scheduler.yaml"] or b"").decode())


def removal_of(box: Any, release: Any, installed: Any) -> Any:  # noqa: ANN401  (the doors')
    """Return the plan of an uninstall after an installation whose originals were kept."""
    keep_originals(box.layout, tables_of(installed.files, installed.folders))
    return (
        doors.Uninstallation(
            site=doors.site_of(box.facts()), release=release, machine=doors.machine_of(box), verifier=doors.never
        )
        .preview()
        .plan
    )


def shown(plan: Any, release: Any) -> str:  # noqa: ANN401  (the doors')
    """Return a plan as text: its record, then each file with what is in it."""
    lines = [
        f"op {plan.op.value}",
        f"folders {' '.join(plan.folders)}",
        f"stop {' '.join(plan.stop)}",
        f"start {' '.join(plan.start)}",
        f"restart {plan.restart}",
        f"reload {plan.reload}",
    ]
    programs = {
        release.farewell,
        *(change.content for change in release.recovery.changes() if change.path in OWN_PROGRAMS),
    }
    for change in plan.files:
        flags = "".join(letter for letter, has in (("k", change.k3s_reads), ("e", change.early)) if has) or "-"
        head = f"\n=== {change.path} {flags} "
        if change.link_to is not None:
            lines.append(f"{head}-> {change.link_to}")
        elif change.content is None:
            lines.append(f"{head}absent")
        elif change.content in programs:
            lines.append(f"{head}{change.mode:o} a program")
        else:
            text = change.content.decode().rstrip("\n")
            lines += [f"{head}{change.mode:o}", text if change.k3s_reads else without_prose(text)]
    return re.sub(r"\bedgegpu-[0-9a-f]{8,}\b", "edgegpu-<digest>", named("\n".join(lines) + "\n"))


def without_prose(text: str) -> str:
    """Return a file's text without what is for people. What k3s reads is kept whole: any change of it is a restart."""
    prose = ("#", "Description=")
    return "\n".join(line for line in text.splitlines() if line and not line.startswith(prose))


# --- the journal of a transaction, and the originals


def entry(content: bytes | None = None, *, mode: int = 0o644, link_to: str | None = None) -> Any:  # noqa: ANN401
    return doors.PathEntry(content, mode=mode, link_to=link_to, uid=os.geteuid(), gid=os.getegid())


def tables_of(changes: Sequence[Any], folders: Sequence[str]) -> Any:  # noqa: ANN401  (the doors')
    targets = [
        doors.TargetPath(number, change, entry(), doors.wanted(change))
        for number, change in enumerate(changes, start=1)
    ]
    return doors.TransactionTables(targets=tuple(targets), folders=tuple(folders), remove=(), units=())


def keep_originals(layout: Any, tables: Any) -> None:  # noqa: ANN401  (the doors')
    layout.state.mkdir(parents=True, exist_ok=True)
    doors.baseline.record(layout, "01j9zq4v7m2c8x5n", tables)


def example_tables() -> Any:  # noqa: ANN401  (the door's)
    change = doors.FileChange
    owner = (os.geteuid(), os.getegid())
    made = (
        (change("/etc/edited", b"new\n", mode=0o640, k3s_reads=True, owner=owner), entry(b"old\n", mode=0o604)),
        (change("/etc/made", b"made\n", early=True, owner=owner), entry()),
        (change("/etc/removed"), entry(b"was here\n")),
        (change("/opt/edgegpu/current", link_to="2.0", owner=owner), entry(link_to="1.0")),
    )
    targets = [doors.TargetPath(number, one, old, doors.wanted(one)) for number, (one, old) in enumerate(made, start=1)]
    return doors.TransactionTables(
        targets=tuple(targets),
        folders=("/etc/edgegpu", "/etc/edgegpu/extender"),
        remove=("/opt/edgegpu/1.0",),
        units=(("edgegpu-plugin", False), ("k3s", True)),
    )


def example_record() -> Any:  # noqa: ANN401  (the door's)
    return doors.TransactionRecord(
        id="01j9zq4v7m2c8x5n",
        op=doors.TransactionKind.INSTALL,
        state=doors.TransactionState.PREPARED,
        boot_id="4a3c9f1e-8a6f-4a34-9d2d-6a0f0b7c1d2e",
        started_s=1_790_000_000,
        deadline_wall_s=1_790_000_600,
        deadline_boot_s=700,
        attempts=2,
        author="42:12345",
        unit="k3s",
        restart=True,
        reload=True,
        invocation="aa",
        was="active",
        settle_s=11,
        wait_s=181,
        version="1.2.3",
        agent=doors.agenthealth.AgentCondition.LINKED.value,
        why="two words",
    )


def transaction(folder: Path) -> dict[str, str]:
    """Write a journal and a baseline; what they were read as again is compared by the test."""
    layout = doors.Layout(folder)
    layout.state.parent.mkdir(parents=True)
    journal = doors.TransactionJournal(layout.tx)
    journal.begin("01j9zq4v7m2c8x5n", example_tables())
    journal.write(example_record())
    doors.baseline.record(layout, "01j9zq4v7m2c8x5n", example_tables())
    owned = doors.PathEntry(b"new\n", mode=0o640, uid=0, gid=0)
    prints = [doors.fingerprint(one) for one in (doors.PathEntry(), owned, doors.PathEntry(link_to="2.0"))]
    return {
        "journal.tree": tree(layout.tx),
        "baseline.tree": tree(layout.baseline),
        "baseline-fingerprints.json": written(prints),
    }


def tree(folder: Path) -> str:
    lines = []
    for path in sorted(folder.rglob("*")):
        mode = "-" if path.name == "log" else f"{path.lstat().st_mode:o}"  # the one that the umask decides
        head = f"=== {path.relative_to(folder)} {mode}"
        if path.is_symlink():
            lines.append(f"{head} -> {path.readlink()}")
        elif path.is_dir():
            lines.append(head)
        else:
            text = path.read_text()
            lines += [head, f"{len(text)} bytes of room" if path.name == "spare" else text.rstrip("\n")]
    stamp = r"(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "
    return named(re.sub(stamp, "<time> ", "\n".join(lines) + "\n"))
