"""The wheel: our packages and nothing else, each command's entry point, what the packages need at run time."""

from __future__ import annotations

import configparser
import importlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "edgegpu_agent",
    "edgegpu_base",
    "edgegpu_cloud",
    "edgegpu_core",
    "edgegpu_installer",
    "edgegpu_plugin",
    "edgegpu_sync",
}
SIMULATED = re.compile(r"edgegpu_sim\b|simdriver")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    env = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out], cwd=ROOT, check=True, env=env
    )
    (path,) = out.glob("*.whl")
    return zipfile.ZipFile(path)


def test_holds_our_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name and ".data/" not in name}
    assert tops == PACKAGES


def test_brings_the_units_of_a_controllers_machine_and_no_box(wheel: zipfile.ZipFile) -> None:
    units = {name.partition(".data/")[2] for name in wheel.namelist() if ".data/" in name}
    assert units == {f"data/lib/systemd/system/{one.name}" for one in (ROOT / "systemd/cloud").iterdir()}


def test_brings_what_the_console_needs_and_no_commit_has(wheel: zipfile.ZipFile) -> None:
    console = "edgegpu_cloud/console"
    made = {f"{console}/static/vendor/htmx.min.js", f"{console}/locale/zh/LC_MESSAGES/console.mo"}
    assert made <= set(wheel.namelist())


def test_brings_nothing_of_the_simulation(wheel: zipfile.ZipFile) -> None:
    assert [name for name in wheel.namelist() if SIMULATED.search(name)] == []
    told = [name for name in wheel.namelist() if not name.endswith("/METADATA")]  # the README links to the checkout
    assert [name for name in told if SIMULATED.search(wheel.read(name).decode(errors="replace"))] == []


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_every_package_is_typed(wheel: zipfile.ZipFile, package: str) -> None:
    assert f"{package}/py.typed" in wheel.namelist()


def test_brings_the_protocols_and_no_tests_or_leftovers(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "edgegpu_plugin/pb/proto/deviceplugin.proto" in names
    assert "edgegpu_plugin/pb/gen/deviceplugin_pb2.py" in names
    assert not [name for name in names if "/test" in name or name.endswith((".pyc", ".so", ".orig"))]


def test_carries_the_licence(wheel: zipfile.ZipFile) -> None:
    assert [name for name in wheel.namelist() if name.endswith("dist-info/licenses/LICENSE")]


def test_entry_points_resolve(wheel: zipfile.ZipFile) -> None:
    (name,) = (n for n in wheel.namelist() if n.endswith("/entry_points.txt"))
    parser = configparser.ConfigParser()
    parser.read_string(wheel.read(name).decode())
    scripts = dict(parser["console_scripts"])
    assert set(scripts) == {"edgegpu", "edgegpu-agent", "edgegpu-cloud", "edgegpu-plugin"}
    for target in scripts.values():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_every_run_time_package_is_locked_with_a_hash() -> None:
    blocks = (ROOT / "requirements/run.txt").read_text().split("\n")
    pins = [line for line in blocks if line and not line.startswith((" ", "#"))]
    assert pins
    assert all("==" in line and line.endswith("\\") for line in pins)


def test_tests_run_what_a_box_runs() -> None:
    def pins(name: str) -> set[str]:
        lines = (ROOT / "requirements" / name).read_text().splitlines()
        return {line.split(" ")[0] for line in lines if "==" in line and not line.startswith(" ")}

    assert pins("run.txt") <= pins("dev.txt")
