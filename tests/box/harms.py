"""What is harmed on a booted box, and the doctor's remedies run word for word until it finds no more than before."""

import json
from typing import Any

from box.bed import Bed
from lab.labrun import wait_until

HARMS = {
    "agent": "systemctl disable --now edgegpu-agent",
    "plugin": "systemctl disable edgegpu-plugin",
    "kubeconfig": "chmod 644 /etc/edgegpu/kubeconfig",
    "scheduler": "rm /etc/rancher/k3s/edgegpu-scheduler.yaml",
    "recover": "chmod -x /usr/local/lib/edgegpu/edgegpu-recover",
    "files": "rm /etc/systemd/system/edgegpu-recover.service",
    "leftovers": "mkdir /opt/edgegpu/.9.9.9.new",
    "cdi": "rm /var/run/cdi/edgegpu.json",
}
"""By the check that has to see it."""

_RANK = {"warning": 1, "broken": 2}


def doctor(bed: Bed) -> dict[str, dict[str, Any]]:
    """Return what the doctor finds, by the names of its checks."""
    done = bed.edgegpu("doctor", "--json", check=False)
    return {one["name"]: one for one in json.loads(done.stdout)["checks"]}


def remedies_mend(bed: Bed) -> None:
    """Harm the box in every way at once, paste each remedy that the doctor names: it finds no more than before."""
    before = {name: _rank(one) for name, one in doctor(bed).items()}
    for harm in HARMS.values():
        bed.machine.exec("sh", "-c", harm)
    found = doctor(bed)
    unseen = [name for name in HARMS if _rank(found[name]) <= before[name]]
    assert not unseen, found

    def mended() -> bool:
        now = doctor(bed)
        worse = [one for name, one in now.items() if _rank(one) > before[name]]
        lines = [trouble["remedy"] for one in worse for trouble in one["troubles"] if _RANK.get(trouble["level"])]
        for line in dict.fromkeys(lines):
            paste(bed, line)
        return not worse

    # one of the remedies installs anew, with a restart of k3s
    wait_until(mended, what="the doctor finds no more than before", timeout_s=400, every_s=1)


def paste(bed: Bed, line: str) -> None:
    """Run a line of the doctor's as it stands; the box has no sudo."""
    bed.machine.exec("bash", "-c", f'sudo() {{ "$@"; }}; {line}', check=False, timeout_s=240)


def _rank(one: dict[str, Any]) -> int:
    return _RANK.get(one["level"], 0)
