"""Runs in a node of kubeadmkit's: one transaction over the scheduler's manifest, as the installer does it.

kubeadmrun.py install FILE NODE    FILE becomes the scheduler's configuration
kubeadmrun.py uninstall NODE       what was before is brought back

Prints a line of JSON: the outcome, and how long it took. The node has no systemd: programs of its names that do nothing
stand first on the PATH. All files but kubelet's lie below a root of its own, since /usr is the whole machine's here.
"""

import json
import os
import sys
import time
from pathlib import Path

from edgegpu_installer import baseline, kubeadm
from edgegpu_installer.changes import Plan
from edgegpu_installer.cluster import Cluster
from edgegpu_installer.kubeadm_look import verify_scheduler
from edgegpu_installer.kubeadm_manifest import FOLDER, MANIFEST
from edgegpu_installer.layout import Layout
from edgegpu_installer.preparing import Machine
from edgegpu_installer.recovery import Recovery
from edgegpu_installer.states import Op
from edgegpu_installer.systemd import Systemd
from edgegpu_installer.transaction import run

SOURCE = Path(__file__).resolve().parents[2]
ROOT = Path("/run/kubeadm-root")
SHARED = ("/etc/kubernetes", "/var/log")
_FAKE = '#!/bin/sh\ncase "$1" in show) echo ActiveState=inactive ;; esac\n'


def _layout() -> Layout:
    """Return the root, with kubelet's folders in it, and the folders that every machine has."""
    for folder in ("etc/systemd/system/multi-user.target.wants", "usr/local", "var/lib/edgegpu", "run", "bin"):
        (ROOT / folder).mkdir(parents=True, exist_ok=True)
    for folder in SHARED:
        if not (ROOT / folder[1:]).exists():
            (ROOT / folder[1:]).symlink_to(folder)
    for name in ("systemctl", "systemd-run"):
        (ROOT / "bin" / name).write_text(_FAKE)
        (ROOT / "bin" / name).chmod(0o755)
    return Layout(ROOT)


def _plan(layout: Layout, op: Op, scheduler_file: str) -> Plan:
    path = layout.at(MANIFEST)
    text, mode = path.read_bytes().decode(), path.stat().st_mode & 0o7777
    if op is Op.INSTALL:
        files = kubeadm.plan_files(text, scheduler_file=Path(scheduler_file).read_bytes(), mode=mode)
        return Plan(op, files, folders=(FOLDER,))
    return Plan(op, kubeadm.restore_files(baseline.restore_plan(layout), text, mode=mode))


def main(words: list[str]) -> int:
    """Run the command line."""
    op, node = Op(words[0]), words[-1]
    layout = _layout()
    environment = os.environ | {"PATH": f"{ROOT}/bin:{os.environ['PATH']}"}
    machine = Machine(
        layout=layout,
        system=Systemd(environment),
        recovery=Recovery.of_version(SOURCE),
        say=lambda line: print(line, file=sys.stderr),  # noqa: T201
    )
    began = time.monotonic()
    with Cluster.from_kubeconfig(Path(kubeadm.ADMIN_KUBECONFIG)) as cluster:
        outcome = run(
            _plan(layout, op, words[1]),
            machine,
            verify=lambda deadline: verify_scheduler(layout, cluster, node=node, deadline=deadline),
            deadline_s=180,
        )
    took_s = time.monotonic() - began
    print(json.dumps({"state": outcome.state, "changed": outcome.changed, "why": outcome.why, "took_s": took_s}))  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
