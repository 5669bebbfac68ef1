"""The driver as Debian lays it out: what the plugin finds there is what programs in a container need.

The packages are installed with their own scripts, in a layer over this machine that ends with the test (layouts.py).
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from driver.cache import LIBRARIES, Unpacked
from driver.report import Figures

from edgegpu_base.driver_libraries import FIRST_DRIVER
from edgegpu_plugin.containers.driver_files import soname

pytestmark = pytest.mark.driver

PROGRAM = Path(__file__).with_name("layouts.py")
HANDED_ON = {"450", "460", "525"}
"""Branches whose packages lay no links any more: they have the next branch's installed beside them."""
TOOLS = ["nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"]
NOT_LOADED = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
NO_DEVICE, UNKNOWN = "100", "999"
"""What cuInit says without the module; 390 the second."""


def test_what_the_plugin_finds_is_what_a_container_needs(driver: Unpacked, figures: Figures) -> None:
    if os.geteuid():
        pytest.skip("only root can lay out a machine")
    tried = _tried(driver)
    found = tried["found"]
    if driver.branch.name in HANDED_ON:
        assert f"cannot find the driver's libcuda.so.{driver.branch.version}" in found["error"]
        return
    assert (found["error"], found["left_out"], found["same_without_version"]) == ("", [], True)
    assert set(found["libraries"]) == _names(driver)
    # before 450 another library asks for it
    left = [] if driver.branch.name in {"390", "418"} else ["libnvidia-ptxjitcompiler.so.1"]
    assert found["missing"] == ["-", *left]
    assert found["tools"] == [name for name in TOOLS if driver.program(name)]
    _check_unloaded(found["unloaded"], driver.branch.version)
    assert sorted(tried["answers"]) == ["cdi", "devices"]
    for answers in tried["answers"].values():
        status, line = answers["nvidia-smi"]
        assert (status, line.startswith(NOT_LOADED)) == (9, True)
        assert answers["nvmlInit_v2"] == [0, "9"]
        assert answers["cuInit"] == [0, UNKNOWN if driver.branch.name == "390" else NO_DEVICE]
        assert answers["load"] == [0, "loaded"]
    figures.note("layouts", names=len(found["libraries"]), tools=len(found["tools"]))


def _check_unloaded(unloaded: dict[str, list[str]], version: str) -> None:
    """Check that plugin, doctor and installer name the state: installed, and the module is not loaded."""
    kind, _ = unloaded["plugin"]
    assert kind == "NOT_LOADED"
    too_old = int(version.partition(".")[0]) < FIRST_DRIVER
    problem, *others = unloaded["doctor"]
    assert [f"the driver {version} is older than 418" in text for text in others] == [True] * too_old
    assert re.match(
        rf"the NVIDIA driver \({re.escape(version)}\) is installed, its kernel module is not loaded", problem
    )
    refused = [f"the NVIDIA driver {version}"] * too_old
    assert unloaded["installer"] == [*refused, "1 NVIDIA card, and a driver that is installed and not loaded"]


def _tried(driver: Unpacked) -> dict[str, Any]:
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, str(PROGRAM), driver.branch.version]
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[1])}
    done = subprocess.run(
        [*command, *driver.packages], capture_output=True, text=True, timeout=240, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _names(driver: Unpacked) -> set[str]:
    """Return all names under which programs may ask for the packages' libraries, by the packages' own files."""
    files = [path for path in (driver.root / LIBRARIES).rglob("lib*.so.*") if not path.is_symlink()]
    return {name for path in files for name in (path.name, soname(path)) if name} | {"libcuda.so"}
