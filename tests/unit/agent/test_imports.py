"""What the agent's process loads: of other people's packages these, and of ours nothing that is for people."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

SCRIPT = """\
import sys, json, importlib
before = set(sys.modules)
importlib.import_module(sys.argv[1])
loaded = {name: module for name, module in sys.modules.items() if name not in before}
files = {name: getattr(module, "__file__", None) or "" for name, module in loaded.items()}
print(json.dumps(files))
"""
OTHERS = {
    *("_cffi_backend", "annotated_types", "cryptography", "paho", "pydantic", "pydantic_core", "typing_extensions"),
    *("typing_inspection", "urllib3", "yaml", "_yaml"),
}
FOR_PEOPLE = {"kubernetes", "typer", "rich", "click", "grpc", "sqlalchemy", "fastapi", "uvicorn", "edgegpu_cloud"}


def loaded(module: str) -> dict[str, Path]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, module], capture_output=True, text=True, check=True)
    return {name: Path(file) for name, file in json.loads(done.stdout).items()}


def others(modules: dict[str, Path]) -> set[str]:
    site = Path(sysconfig.get_path("purelib"))
    return {name.partition(".")[0] for name, file in modules.items() if file.is_relative_to(site)}


@pytest.mark.parametrize("module", ["edgegpu_agent.session.session", "edgegpu_agent.worker.worker"])
def test_on_the_link_it_loads_these_packages_and_no_others(module: str) -> None:
    modules = loaded(module)
    tops = {name.partition(".")[0] for name in modules}
    assert not tops & FOR_PEOPLE
    assert others(modules) <= OTHERS


def test_without_a_cloud_it_loads_none_of_them() -> None:
    assert not others(loaded("edgegpu_agent.main")) & OTHERS


def test_of_the_command_line_it_loads_the_socket_s_reader_alone() -> None:
    commands = {name for name in loaded("edgegpu_agent.session.session") if name.startswith("edgegpu_agent.cli.")}
    assert not commands
