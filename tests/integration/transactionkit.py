"""A machine in a folder for transactions: files, systemctl and systemd-run on the PATH, and ways to die on the way."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgegpu_installer.changes import LEAVING, FileChange, Plan, TransactionKind
from edgegpu_installer.layout import Layout
from edgegpu_installer.machine.systemd import Systemd
from edgegpu_installer.plan.release import Recovery
from edgegpu_installer.transaction.prepare import Prepared, TransactionMachine, prepare
from edgegpu_installer.transaction.transaction import TransactionOutcome, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgegpu_installer.changes import Deadline

ROOT = Path(__file__).resolve().parents[2]
RECOVER = ROOT / "installer/edgegpu-recover"
FAKES = Path(__file__).parent / "fakebin"

SCHEDULER = "/etc/rancher/k3s/edgegpu-scheduler.yaml"
DROP_IN = "/etc/rancher/k3s/config.yaml.d/90-edgegpu.yaml"
UNIT = "/etc/systemd/system/edgegpu-plugin.service"
EDITED = "/etc/edited"
REMOVED = "/etc/removed"
LINK = "/opt/edgegpu/current"


def install(scheduler: bytes = b"good\n", *, op: TransactionKind = TransactionKind.INSTALL) -> Plan:
    """A plan with one of everything."""
    return Plan(
        op,
        files=(
            FileChange(SCHEDULER, content=scheduler, mode=0o600, k3s_reads=True),
            FileChange(DROP_IN, content=b"names it\n", k3s_reads=True),
            FileChange(UNIT, content=b"[Service]\n"),
            FileChange(EDITED, content=b"new\n", mode=0o640),
            FileChange(REMOVED),
            FileChange(LINK, link_to="2.0"),
        ),
        folders=("/etc/rancher/k3s/config.yaml.d", "/etc/edgegpu", "/etc/edgegpu/extender"),
        reload=True,
        start=("edgegpu-plugin",),
        stop=("old-plugin",),
        restart="k3s",
    )


def nothing(_: object) -> None:
    return


@dataclass
class Bed:
    """The machine; k3s runs on it, and refuses a scheduler's file that says `bad`."""

    root: Path
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for folder in ("etc/rancher/k3s", "etc/systemd/system", "opt/edgegpu", "run", "var/lib", "usr/local", "dev"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "etc/edited").write_text("old\n")
        (self.root / "etc/edited").chmod(0o604)
        (self.root / "etc/removed").write_text("was here\n")
        (self.root / "opt/edgegpu/current").symlink_to("1.0")
        (self.root / "dev/nvidia0").symlink_to("/dev/null")
        for folder in ("units", "fails", "bin"):
            (self.fake / folder).mkdir(parents=True)
        self.set_unit("k3s", "active", start="first")
        self.set_unit("old-plugin", "active", start="p1")
        starts = f'#!/bin/sh\n! grep -q bad "{self.root}{SCHEDULER}" 2> /dev/null\n'
        (self.fake / "k3s").write_text(starts)
        (self.fake / "k3s").chmod(0o755)

    @property
    def fake(self) -> Path:
        return self.root / "fake"

    @property
    def layout(self) -> Layout:
        return Layout(self.root)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{FAKES}:{os.environ['PATH']}",
            "FAKE_SYSTEMD": str(self.fake),
            "EDGEGPU_RECOVER_ROOT": str(self.root),
        }

    def set_unit(self, name: str, active: str, *, start: str, restarts: int = 0) -> None:
        text = f"ActiveState={active}\nInvocationID={start}\nNRestarts={restarts}\n"
        (self.fake / "units" / name).write_text(text)

    def unit(self, name: str) -> str:
        """The unit's state, empty for one that nobody started."""
        return Systemd(self.environment).unit(name).active

    def start_of_k3s(self) -> str:
        return Systemd(self.environment).unit("k3s").invocation

    def fail(self, name: str, *, fails: bool = True) -> None:
        path = self.fake / "fails" / name
        path.touch() if fails else path.unlink()

    def calls(self, word: str = "") -> list[str]:
        """What systemd was asked, as far as it has the word."""
        path = self.fake / "calls"
        return [line for line in path.read_text().splitlines() if word in line] if path.exists() else []

    def machine(self, at_step: Callable[[str], None] = nothing) -> TransactionMachine:
        return TransactionMachine(
            self.layout,
            Systemd(self.environment),
            Recovery.of_version(ROOT),
            self.said.append,
            at_step=at_step,
            settle_s=0,
            wait_s=2,
        )

    def run(
        self,
        plan: Plan,
        *,
        at_step: Callable[[str], None] = nothing,
        verify: Callable[[Deadline], None] = nothing,
        deadline_s: float = 600,
    ) -> TransactionOutcome:
        return run(plan, self.machine(at_step), verify=verify, deadline_s=deadline_s)

    def steps(self, plan: Plan) -> list[str]:
        """The steps of a plan as at_step gets them."""
        return [f"{when}-{step}" for step in steps(prepare(plan, self.machine())) for when in ("before", "after")]

    def die_at(self, step: str, plan: Plan, *, deadline_s: float = 600) -> None:
        """Let a process carry the plan out, and be killed at a step."""
        pid = os.fork()
        if pid == 0:
            try:
                self.run(plan, at_step=lambda now: kill_me() if now == step else None, deadline_s=deadline_s)
            finally:
                os._exit(3)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), f"it never came to {step}"

    def recover(self, *words: str) -> str:
        """Run edgegpu-recover as it is installed, or as the transaction's author has it; return what it said."""
        done = subprocess.run(
            ["sh", RECOVER, *words], capture_output=True, text=True, check=False, env=self.environment, timeout=60
        )
        assert "rror" not in done.stderr, done.stderr
        assert "not found" not in done.stderr, done.stderr
        return done.stderr + done.stdout

    def reboot(self) -> None:
        """Let the journal be of an earlier boot, forget what a boot forgets, and start what a boot starts."""
        state = self.layout.tx / "state"
        if state.exists():
            lines = state.read_text().splitlines()
            state.write_text("".join(f"{'boot_id=other' if 'boot_id=' in line else line}\n" for line in lines))
        for path in (self.root / "run").iterdir():
            path.unlink()
        for unit in (self.fake / "units").iterdir():
            unit.unlink()
        self.recover("files")
        self.set_unit("k3s", "activating", start="boot")
        self.recover("check", "k3s")
        self.recover("deadline")
        good = subprocess.run([self.fake / "k3s"], check=False).returncode == 0
        self.set_unit("k3s", "active" if good else "activating", start="boot")

    def tree(self) -> dict[str, str]:
        """Everything on the disk, less the journal of a transaction that is over."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if path.relative_to(self.root).parts[0] in {"fake", "run", "dev"} or name in KEPT:
                continue
            found[name] = f"{path.lstat().st_mode:o} " + (
                f"-> {path.readlink()}" if path.is_symlink() else path.read_text() if path.is_file() else ""
            )
        return found


OVER = -60.0
"""A deadline that has passed when the transaction begins, whatever grace there is."""

KEPT = {"var/lib/edgegpu", "var/lib/edgegpu/tx", "var/lib/edgegpu/tx/state", "var/lib/edgegpu/tx/log"}


def kill_me() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def steps(prepared: Prepared) -> tuple[str, ...]:
    """Return the names of the steps that a transaction takes when nothing fails, in their order."""
    plan = prepared.plan
    stop = ("stop",) if plan.stop else ()
    last = plan.op in LEAVING
    return (
        *("backups", "arm"),
        *(f"early-{target.number}" for target in prepared.early),
        "PREPARED",
        *(("drain",) if last else ()),
        *("stage", "STAGED", "SWAPPED"),
        *(stop if not last else ()),
        *(f"swap-{target.number}" for target in prepared.swapped),
        *(("reload",) if plan.reload else ()),
        *(("start",) if plan.start else ()),
        *(("RESTARTING", "restart") if prepared.restarts else ()),
        *("VERIFYING", "verify"),
        *(stop if last else ()),
        *(("baseline",) if plan.op is not TransactionKind.UNINSTALL else ()),
        *("COMMITTED", "tidy", "disarm"),
    )
