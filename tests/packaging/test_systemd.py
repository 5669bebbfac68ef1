"""The unit files: systemd takes them, and they keep the promises that the plugin is built on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "systemd/edgegpu-plugin.service"


def values(key: str) -> list[str]:
    lines = (line.partition("=") for line in UNIT.read_text().splitlines() if not line.startswith("#"))
    return [value for name, _, value in lines if name == key]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_takes_it(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(values("ExecStart")[0].split()[0], "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_is_before_every_kubelet_and_needs_none() -> None:
    assert set(values("Before")[0].split()) == {"k3s.service", "k3s-agent.service", "kubelet.service"}
    assert not values("Requires")
    assert not values("BindsTo")
    assert not values("PartOf")


def test_is_started_again_for_ever_and_at_once() -> None:
    assert values("Restart") == ["always"]
    assert values("StartLimitIntervalSec") == ["0"]
    assert values("RestartSec") == ["1s"]


def test_leaves_what_containers_mount() -> None:
    assert values("RuntimeDirectory") == ["edgegpu"]
    assert values("RuntimeDirectoryPreserve") == ["yes"]


@pytest.mark.parametrize("key", ["PrivateDevices", "DeviceAllow", "DevicePolicy", "ProtectClock", "PrivateTmp"])
def test_nothing_cuts_it_off_the_cards(key: str) -> None:
    assert not values(key)
