"""One option lets kubelet wait for the devices at its start, and an uninstall leaves nothing of it."""

import json
import re

from box.bed import WAITS, Bed, differences
from e2e.k3s import DROP_IN
from lab.labrun import wait_until

LINK = "/var/lib/edgegpu/kubelet-resolv.conf"


def test_kubelet_waits_with_one_option_and_an_uninstall_takes_it_back(k3s_box: Bed) -> None:
    bed = k3s_box
    before, starts = bed.disk(), bed.starts()
    shown = bed.line("--yes", "--wait-at-start", "on", "--dry-run").stdout
    assert LINK in shown
    assert "\nrestart   k3s" in shown
    bed.line("--yes", "--wait-at-start", "on")
    bed.offered()
    assert bed.starts() == starts + 1
    assert f"resolv-conf: {LINK}" in bed.machine.exec("cat", DROP_IN).stdout
    waited(bed)
    bed.run_apps()  # with the machine's DNS
    bed.stop_apps()
    assert "nothing to change" in bed.line("--yes").stdout

    bed.edgegpu("uninstall", "--yes")
    bed.machine.ready()
    bed.cluster.kubectl("delete", "deployments", "--all", "-n", "default", "--now", "--wait")
    left = {path: what for path, what in differences(before, bed.disk()).items() if not re.search(WAITS, path)}
    assert not left, left


def waited(bed: Bed) -> None:
    """Wait until the plugin says that the kubelet of the installation waited, and its link is in place again."""

    def said() -> bool:
        told = json.loads(bed.edgegpu("status", "--json", check=False).stdout)
        assert told["kubelet"]["start_wait"]["waits"] is not False, told["kubelet"]["start_wait"]
        return bool(told["kubelet"]["start_wait"]["waits"])

    wait_until(said, what="kubelet waited for the devices")
    assert bed.machine.exec("readlink", LINK).stdout.strip() == "/etc/resolv.conf"
