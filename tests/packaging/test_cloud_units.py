"""The units of a controller's machine: systemd takes them, their command lines exist, and little is left to lose."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from kits.cloudcli import run
from kits.units import FOLDER, PROGRAM, UNITS, command, sees, settings

from edgegpu_cloud.app import DESCRIPTORS
from edgegpu_cloud.layout import DEFAULT_FOLDER, CloudLayout

SERVICES = sorted(path.name for path in UNITS.glob("*.service"))
CONSOLE, BROKER = "edgegpu-cloud-console@.service", "edgegpu-broker.service"
PARTS = ("edgegpu-cloud-controller.service", "edgegpu-cloud-https.service", CONSOLE)
OURS = ("edgegpu-cloud.service", *PARTS)
TARGET = "edgegpu-cloud.target"
MOST_EXPOSED = 1.6
"""Of 10, by `systemd-analyze security`."""
LAYOUT = CloudLayout(DEFAULT_FOLDER)
KEYS = {
    str(path.relative_to(DEFAULT_FOLDER))
    for path in (
        *(LAYOUT.ca_key(name) for name in ("boxes", "controllers", "servers")),
        *(LAYOUT.key(name) for name in ("https", "broker", "controller", "console")),
        LAYOUT.signing_key,
        LAYOUT.root_key,
    )
}

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")


@needs_systemd
@pytest.mark.parametrize("unit", sorted(path.name for path in UNITS.iterdir()))
def test_systemd_takes_it(unit: str, tmp_path: Path) -> None:
    copy = tmp_path / unit.replace("@.", "@8444.")
    copy.write_text(re.sub(r"^(Exec\w+)=/\S+", r"\1=/bin/true", (UNITS / unit).read_text(), flags=re.MULTILINE))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("unit", SERVICES)
def test_little_is_left_to_lose(unit: str) -> None:
    words = ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:g}", str(UNITS / unit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Overall exposure level" in done.stdout


@pytest.mark.parametrize("unit", sorted(path.name for path in UNITS.iterdir()))
def test_says_what_it_is_and_where_it_is_changed(unit: str) -> None:
    assert (UNITS / unit).read_text().startswith(f"# {Path(unit).stem}: ")
    assert settings(unit, "Description")


@pytest.mark.parametrize("unit", OURS)
def test_its_command_line_exists(unit: str) -> None:
    program, *words = command(unit, "8444")
    assert program == PROGRAM
    done = run(*words, "--help")
    assert (done.code, done.out.startswith("Usage: edgegpu-cloud serve")) == (0, True), done.err


def test_the_parts_together_are_the_whole() -> None:
    words = {word for unit in PARTS for word in command(unit)[2:] if word.startswith("--no-")}
    assert words == {"--no-link", "--no-https", "--no-console"}
    for unit in PARTS:
        assert len([word for word in command(unit) if word.startswith("--no-")]) == 2
        assert settings(unit, "Conflicts") == ["edgegpu-cloud.service"]
        assert settings(unit, "PartOf") == settings(unit, "WantedBy") == [TARGET]
        assert settings(unit, "Type") == ["notify"]


@pytest.mark.parametrize("unit", SERVICES)
def test_is_started_again_for_ever_and_bounded(unit: str) -> None:
    assert settings(unit, "Restart") == ["always"]
    assert settings(unit, "StartLimitIntervalSec") == ["0"]
    assert settings(unit, "MemoryMax")
    assert settings(unit, "TasksMax")
    assert settings(unit, "LimitNOFILE") == [str(DESCRIPTORS)]


@pytest.mark.parametrize("unit", SERVICES)
def test_works_in_the_controllers_folder_as_its_user_alone(unit: str) -> None:
    assert Path(FOLDER) == DEFAULT_FOLDER
    assert settings(unit, "User") == ["edgegpu-cloud"]
    assert settings(unit, "ReadWritePaths") == [f"{FOLDER}/broker" if unit == BROKER else FOLDER]
    assert settings(unit, "ProtectSystem") == ["strict"]
    assert settings(unit, "CapabilityBoundingSet") == [""]


@pytest.mark.parametrize(("unit", "own"), [(CONSOLE, "console"), (BROKER, "broker")])
def test_a_process_that_others_reach_sees_no_private_key_but_its_own(unit: str, own: str) -> None:
    assert {key for key in KEYS if sees(unit, key)} == {f"tls/{own}.key"}
    assert not sees(unit, "release/install.sh")
    assert sees(unit, "broker/mosquitto.conf") == (unit == BROKER)
    assert sees(unit, "controller.db") == (unit == CONSOLE)


@pytest.mark.parametrize("unit", SERVICES)
def test_it_reaches_no_other_process_of_its_user(unit: str) -> None:
    assert settings(unit, "PrivateUsers") == settings(unit, "NoNewPrivileges") == ["yes"]
    assert settings(unit, "ProtectProc") == ["invisible"]


def test_the_consoles_process_changes_neither_configuration_nor_certificates() -> None:
    assert settings(CONSOLE, "ReadOnlyPaths") == [f"{FOLDER}/tls {FOLDER}/controller.yaml"]
