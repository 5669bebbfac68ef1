"""What a run notes of the versions that it ran on: a virtual machine's are those that the machine reports."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import tested_versions as tool
from lab.labkit import Programs
from lab.labrun import Completed
from unit.tiers.test_examples_drawn import FEW_PLUGINS, ROOT

if TYPE_CHECKING:
    from lab.booted import BootedMachine

NODE = {
    "kubeletVersion": "v1.37.2+k3s1",
    "containerRuntimeVersion": "containerd://2.4.2",
    "osImage": "Debian GNU/Linux 12 (bookworm)",
    "kernelVersion": "6.1.0-50-cloud-amd64",
}
ANSWERS = {"stat": "cgroup2fs\n", "k3s": "k3s version v1.37.2 (stand-in)\n"}
PROGRAMS = Programs("v1.37.2", "2.4.2", "stand-in", "v2", "Debian GNU/Linux 12 (bookworm), kernel 6.1.0-50-cloud-amd64")
TOY = f"""
from pathlib import Path
from e2e.testedrecord import TestedRecord
from lab.labkit import PROGRAMS, Programs

def pytest_configure(config):
    PROGRAMS.add({PROGRAMS!r})
    config.pluginmanager.register(TestedRecord(Path("tested.jsonl"), {{"full": True}}))
"""


class Machine:
    """Answers what is asked of a booted machine."""

    name = "edgebox"

    def exec(self, *cmd: str) -> Completed:
        return Completed(cmd, 0, ANSWERS[cmd[0]], "")

    def kubectl(self, *args: str) -> Completed:
        assert args[:3] == ("get", "node", self.name)
        return Completed(args, 0, json.dumps({"status": {"nodeInfo": NODE}}), "")


def test_a_machine_is_asked_for_its_own_kernel_and_cgroups() -> None:
    assert Programs.of_machine(cast("BootedMachine", Machine())) == PROGRAMS


def test_a_run_writes_a_line_that_the_page_takes(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(TOY)
    (tmp_path / "test_vm_cuts.py").write_text("def test_one(): pass\ndef test_other(): assert False\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    ran = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "--confcutdir", str(tmp_path), "test_vm_cuts.py"],
        env={**os.environ, **FEW_PLUGINS, "PYTHONPATH": str(ROOT / "tests")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout + ran.stderr
    (run,) = tool.read((tmp_path / "tested.jsonl").read_text())
    assert (run.file, run.cell, run.full) == ("test_vm_cuts.py", "1 passed, **1 failed**", True)
    assert run.programs == ("v1.37.2", "2.4.2", "stand-in", "v2", PROGRAMS.system, "FULL=1")
