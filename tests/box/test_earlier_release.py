"""The one line over an earlier release: pods run on, k3s too, doctor is content, and an uninstall leaves nothing."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from box.bed import APPS, SIMULATED, WAITS, WITH_K3S, Bed, differences

EARLIER = os.environ.get("EARLIER_BUNDLE", "")
pytestmark = pytest.mark.skipif(not EARLIER, reason="EARLIER_BUNDLE: build/bundle of an earlier commit and version")


def test_a_box_of_an_earlier_release_takes_this_one(bed: Bed) -> None:
    bed.fresh(WITH_K3S)
    pristine = bed.disk()
    (archive,) = Path(EARLIER).glob("*.tar.gz")
    bed.machine.push(archive, Path(EARLIER) / "install.sh", to="/srv")
    words = ["--offline", f"/srv/{archive.name}", "--driver-root", SIMULATED, "--yes"]
    bed.machine.exec("sh", "/srv/install.sh", *words, timeout_s=240)
    bed.machine.exec("rm", f"/srv/{archive.name}", "/srv/install.sh")
    bed.offered()
    bed.run_apps()
    before, containers, k3s = running(bed), bed.apps_run(), bed.restarts()

    print(bed.line("--yes").stdout)  # noqa: T201  (what a failure is looked for with)
    assert running(bed) != before
    bed.offered()
    assert bed.apps_run() == containers
    assert bed.restarts() == k3s, "k3s reads nothing of this"
    told = json.loads(bed.edgegpu("doctor", "--json", check=False).stdout)
    assert not [one for one in told["checks"] if one["level"] == "broken"]

    bed.edgegpu("uninstall", "--yes", "--force")
    bed.machine.ready()
    assert bed.apps_run() == containers
    bed.cluster.kubectl("delete", "deployments", *APPS, "--now", "--wait")
    left = {path: what for path, what in differences(pristine, bed.disk()).items() if not re.search(WAITS, path)}
    assert not left, left


def running(bed: Bed) -> str:
    return bed.machine.exec("readlink", "/opt/edgegpu/current").stdout.strip()
