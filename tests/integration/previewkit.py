"""Dry runs of installations and uninstalls on a box of files: its release, and its machine."""

from __future__ import annotations

import os
from pathlib import Path

import yaml
from kits.facts import FakeBox
from kits.scheduler import KUBECONFIG

from edgegpu_installer.cluster.rbac import ClusterRights
from edgegpu_installer.install import Installation, InstallReport
from edgegpu_installer.layout import AGENT_UNIT, PLUGIN_UNIT, SELFTEST_UNIT
from edgegpu_installer.machine.systemd import Systemd
from edgegpu_installer.plan.release import Recovery, Release
from edgegpu_installer.plan.site import InstallOptions, site_of
from edgegpu_installer.transaction.prepare import TransactionMachine
from edgegpu_installer.transaction.transaction import Verify


def server_box(folder: Path) -> FakeBox:
    """Return a box that is a k3s server with cards."""
    made = FakeBox(folder)
    made.k3s()
    made.gpu()
    made.write("/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig", yaml.safe_dump(KUBECONFIG))
    return made


def release() -> Release:
    return Release(
        version="1.2.3",
        folder=Path("/opt/edgegpu/1.2.3"),
        plugin_unit=PLUGIN_UNIT.encode(),
        selftest_unit=SELFTEST_UNIT.encode(),
        agent_unit=AGENT_UNIT.encode(),
        mps_unit=b"mps",
        farewell=b"",
        farewell_unit=b"",
        rights=ClusterRights((), "edgegpu"),
        recovery=Recovery.of_version(Path("/opt/edgegpu/1.2.3")),
    )


def never(_offers: bool) -> Verify:  # noqa: FBT001  (the installer's type)
    raise AssertionError("a dry run verifies nothing")


def machine_of(box: FakeBox) -> TransactionMachine:
    system = Systemd({"PATH": f"{box.bin}:{os.environ['PATH']}"})
    return TransactionMachine(layout=box.layout, system=system, recovery=release().recovery, say=lambda _: None)


def report_of(box: FakeBox, options: InstallOptions) -> InstallReport:
    site = site_of(box.facts())
    made = Installation(site=site, options=options, release=release(), machine=machine_of(box), verifier=never)
    return made.preview()
