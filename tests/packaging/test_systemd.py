"""The unit files: systemd takes them, and they keep the promises that the programs are built on."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edgegpu_plugin.selftest import runner

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "systemd").glob("*.service"))
PLUGIN = ROOT / "systemd/edgegpu-plugin.service"
AGENT = ROOT / "systemd/edgegpu-agent.service"
SELFTEST = ROOT / "systemd/edgegpu-selftest.service"
MPS = ROOT / "systemd/edgegpu-mps.service"
DAEMONS = (PLUGIN, AGENT)
HARDENING = (
    *("ProtectSystem", "ProtectControlGroups", "ProtectKernelLogs", "RestrictNamespaces", "RestrictSUIDSGID"),
    *("RestrictAddressFamilies", "LockPersonality", "SystemCallArchitectures", "SystemCallFilter"),
    *("CapabilityBoundingSet", "User", "PrivateDevices", "ProtectClock", "PrivateTmp", "ProtectHome"),
    *("ProtectKernelTunables", "ProtectKernelModules", "ProtectProc", "PrivateUsers", "PrivateNetwork"),
    *("IPAddressDeny", "NoNewPrivileges", "RestrictRealtime", "MemoryDenyWriteExecute"),
)


def values(unit: Path, key: str) -> list[str]:
    lines = (line.partition("=") for line in unit.read_text().splitlines() if not line.startswith("#"))
    return [value for name, _, value in lines if name == key]


def name_of(unit: Path) -> str:
    return unit.name


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_systemd_takes_it(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(
        re.sub(r"^(Exec\w+=[-+!@:]*)/(opt|usr/local)/\S+", r"\1/bin/true", unit.read_text(), flags=re.MULTILINE)
    )
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_says_what_it_is_and_where_it_is_changed(unit: Path) -> None:
    assert unit.read_text().startswith(f"# {unit.stem}")
    assert values(unit, "Description")


@pytest.mark.parametrize("unit", DAEMONS, ids=name_of)
def test_is_started_again_for_ever(unit: Path) -> None:
    assert values(unit, "Restart") == ["always"]
    assert values(unit, "StartLimitIntervalSec") == ["0"]
    assert values(unit, "RestartSec")


@pytest.mark.parametrize("unit", DAEMONS, ids=name_of)
def test_is_watched_and_bounded(unit: Path) -> None:
    assert values(unit, "Type") == ["notify"]
    assert values(unit, "WatchdogSec") == ["30s"]
    assert values(unit, "MemoryMax")
    assert values(unit, "TasksMax")


@pytest.mark.parametrize("unit", [*DAEMONS, MPS, SELFTEST], ids=name_of)
def test_every_hardening_is_on_or_its_omission_explained(unit: Path) -> None:
    explained = unit.read_text().partition("# Left out on purpose:")[2]
    assert explained
    for key in HARDENING:
        assert bool(values(unit, key)) != bool(re.search(rf"\b{key}=(?!strict|full)", explained)), key


def test_the_plugin_is_before_every_kubelet_and_needs_none() -> None:
    assert set(values(PLUGIN, "Before")[0].split()) == {"k3s.service", "k3s-agent.service", "kubelet.service"}
    for key in ("Requires", "BindsTo", "PartOf"):
        assert not values(PLUGIN, key)


def test_the_plugin_is_started_again_at_once() -> None:
    assert values(PLUGIN, "RestartSec") == ["1s"]


def test_the_plugin_sees_nothing_of_tmp() -> None:
    assert values(PLUGIN, "PrivateTmp") == ["yes"]


def test_the_plugin_leaves_what_containers_mount() -> None:
    assert values(PLUGIN, "RuntimeDirectory") == ["edgegpu"]
    assert values(PLUGIN, "RuntimeDirectoryPreserve") == ["yes"]


@pytest.mark.parametrize("key", ["PrivateDevices", "DeviceAllow", "DevicePolicy", "ProtectClock"])
def test_nothing_cuts_the_plugin_off_the_cards(key: str) -> None:
    assert not values(PLUGIN, key)


@pytest.mark.parametrize("key", ["PrivateDevices", "DeviceAllow", "DevicePolicy", "ProtectClock"])
def test_nothing_cuts_the_selftest_off_the_cards(key: str) -> None:
    assert not values(SELFTEST, key)


def test_the_selftest_is_started_by_the_plugin_alone_and_goes_first_when_memory_is_short() -> None:
    assert SELFTEST.name == runner.UNIT
    assert not values(SELFTEST, "WantedBy")
    (command,) = values(SELFTEST, "ExecStart")
    assert command.split()[1:] == [str(runner.WORK)]
    assert values(SELFTEST, "ConditionPathExists") == [f"{runner.WORK}/request"]
    assert int(values(SELFTEST, "OOMScoreAdjust")[0]) > 0


@pytest.mark.parametrize("key", ["Before", "After", "Requires", "BindsTo", "PartOf", "Wants"])
def test_the_agent_waits_for_nobody(key: str) -> None:
    assert not values(AGENT, key)


def test_what_the_agent_is_finishing_goes_on_when_it_ends() -> None:
    assert values(AGENT, "KillMode") == ["process"]


def test_what_the_agent_is_finishing_may_write_its_files() -> None:
    assert values(AGENT, "ProtectSystem") == ["yes"]  # full is stronger than ReadWritePaths=/etc
    assert values(AGENT, "ReadWritePaths") == ["/usr/local"]


@pytest.mark.parametrize("key", ["PrivateDevices", "DeviceAllow", "DevicePolicy", "ProtectClock"])
def test_nothing_keeps_the_agents_command_from_device_links(key: str) -> None:
    assert not values(AGENT, key)


def test_mps_starts_by_the_plugins_file_alone_and_before_containers() -> None:
    assert values(PLUGIN, "Wants") == [MPS.name]
    assert values(MPS, "ConditionPathExists") == values(MPS, "EnvironmentFile") == ["/run/edgegpu/mps.env"]
    assert PLUGIN.name in values(MPS, "After")[0].split()
    assert set(values(MPS, "Before")[0].split()) == set(values(PLUGIN, "Before")[0].split())


@pytest.mark.parametrize("key", ["Requires", "BindsTo", "PartOf", "StopWhenUnneeded", "WantedBy", "WatchdogSec"])
def test_nothing_but_a_crash_ends_mps(key: str) -> None:
    """Its end ends its clients' CUDA programs: a restart of the plugin or of k3s, an upgrade must leave it alone."""
    assert not values(MPS, key)
    assert values(MPS, "Restart") == ["on-failure"]  # told to quit, it stays ended


@pytest.mark.parametrize("key", ["PrivateDevices", "DeviceAllow", "DevicePolicy", "ProtectClock", "MemoryMax"])
def test_nothing_cuts_mps_off_the_cards(key: str) -> None:
    assert not values(MPS, key)


def prepared(unit: Path, place: str, folder: Path) -> str:
    """Return the line by which a unit gives a folder of /run a file system of its own, for another folder."""
    text = unit.read_text().replace("\\\n", "").replace("$$", "$")
    (line,) = [one for one in text.splitlines() if one.startswith("ExecStartPre=") and one.endswith(f"{place}'")]
    return line.partition("/bin/sh -c ")[2].replace(place, str(folder))


@pytest.mark.parametrize(
    ("unit", "place", "most"),
    [(PLUGIN, "/run/edgegpu/containers", 64 << 20), (MPS, "/run/edgegpu/mps/pipe", 8 << 20)],
    ids=["containers", "pipe"],
)
def test_what_containers_write_to_has_a_file_system_with_a_size(
    unit: Path, place: str, most: int, tmp_path: Path
) -> None:
    """In a mount namespace of the test's own: what is too much does not fit, a start more keeps what is there."""
    folder = tmp_path / "folder"
    folder.mkdir()
    prepare = f"sh -ec {prepared(unit, place, folder)}"
    script = f"""
    {prepare}
    echo kept > {folder}/kept
    head -c {2 * most} /dev/zero 2> /dev/null > {folder}/large && exit 3
    stat -c %s {folder}/large
    {prepare}
    cat {folder}/kept
    grep -c ' {folder} ' /proc/self/mountinfo
    """
    command = ["unshare", "-Urm", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    written, kept, mounts = done.stdout.split()
    assert most // 2 < int(written) < most
    assert (kept, mounts) == ("kept", "1")
    assert list(folder.iterdir()) == []  # it was in memory, and is gone with its namespace


@pytest.mark.parametrize(
    ("unit", "place", "name"),
    [(PLUGIN, "/run/edgegpu/containers", "usage"), (MPS, "/run/edgegpu/mps/pipe", "control")],
    ids=["containers", "pipe"],
)
def test_nothing_is_mounted_over_what_running_containers_use(unit: Path, place: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    script = f"sh -ec {prepared(unit, place, tmp_path)}; ls {tmp_path}"
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{name}\n"


def test_a_machine_on_which_nothing_can_be_mounted_starts_the_plugin() -> None:
    (line,) = values(PLUGIN, "ExecStartPre")
    assert line.startswith("-+")


@pytest.mark.parametrize("unit", [PLUGIN, MPS], ids=name_of)
def test_what_a_unit_mounts_is_mounted_for_the_machine(unit: Path) -> None:
    """A process of a unit with PrivateTmp= has its own mount namespace, with + as well: nobody else would see it."""
    lines = values(unit, "ExecStartPre")
    assert lines
    assert all(re.match(r"-?\+/usr/bin/nsenter -t 1 -m /bin/sh ", line) for line in lines)


def test_clients_and_daemon_have_one_shm_of_their_own() -> None:
    assert values(MPS, "BindPaths") == ["/run/edgegpu/mps/shm:/dev/shm"]
    assert "size=256m" in MPS.read_text()
