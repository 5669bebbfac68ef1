"""`edgegpu` itself: help, usage, completion, `config check`, and what a closed pipe or an unforeseen error does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from kits.cli import edgegpu, edgegpu_process

from edgegpu_plugin.config.schema import load

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = ["status", "pods", "config check", "version", "demo"]


def test_help_names_every_command() -> None:
    done = edgegpu("--help")
    assert done.code == 0
    for command in COMMANDS:
        assert f"edgegpu {command}" in done.out or f"  {command}" in done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_each_commands_help_has_an_example_and_says_what_json_is(command: str) -> None:
    done = edgegpu(*command.split(), "--help")
    assert done.code == 0
    assert f"  edgegpu {command}" in done.out.replace("sudo ", "")
    assert "--json" in done.out
    assert "\b" not in done.out


@pytest.mark.parametrize("args", [["status", "--bogus"], ["nonsense"], ["config", "check", "a", "b"], ["pods", "-n"]])
def test_a_command_line_that_makes_no_sense_exits_2(args: list[str]) -> None:
    done = edgegpu(*args)
    assert done.code == 2
    assert done.out == ""
    assert "Traceback" not in done.err


def test_config_check_prints_what_the_file_comes_to(tmp_path: Path) -> None:
    file = tmp_path / "plugin.yaml"
    file.write_text("version: 1\nnode_name: box-1\nplacement: {policy: spread, exclude: [1]}\n")
    done = edgegpu("config", "check", file)
    assert done.code == 0
    assert "\n  policy: spread\n" in done.out
    assert "\n  unit_mib: 256  # default\n" in done.out
    head, _, body = done.out.partition("\n\n")
    assert head == f"{file} is right; with the defaults it comes to:"
    said = json.loads(edgegpu("config", "check", "--json", file).out)
    assert (said["v"], said["file"]) == (1, str(file))
    assert said["config"] == load(file).model_dump(mode="json")
    file.write_text(body)
    assert load(file).model_dump(mode="json") == said["config"]
    assert edgegpu("config", "check", file).code == 0


def test_config_check_says_auto_as_the_documents_do(tmp_path: Path) -> None:
    file = tmp_path / "plugin.yaml"
    file.write_text("version: 1\nisolation: {libraries: auto}\n")
    said = yaml.safe_load(edgegpu("config", "check", file).out.partition("\n\n")[2])
    example = yaml.safe_load((ROOT / "docs/examples/plugin.yaml").read_text())
    assert said["driver"]["containerd_config"] == example["driver"]["containerd_config"] == "auto"
    assert {key: value for key, value in said["isolation"].items() if value == "auto"} == dict.fromkeys(
        ("pods_may", "context_mib", "preload", "libraries"), "auto"
    )
    assert said["isolation"] == example["isolation"]


def test_config_check_names_file_line_key_value_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "plugin.yaml"
    file.write_text("version: 1\nplacement:\n  polcy: spread\nresources: {unit_mib: much}\n")
    done = edgegpu("config", "check", file)
    assert (done.code, done.out) == (1, "")
    head, first, second = done.err.splitlines()
    assert head == f"edgegpu: {file} cannot be used:"
    assert first.startswith(f"  {file}:3: placement.polcy")
    assert second.startswith(f"  {file}:4: resources.unit_mib: 'much'")
    said = json.loads(edgegpu("config", "check", "--json", file).out)
    assert set(said) == {"error", "remedy", "file", "problems"}
    assert said["problems"] == [first.strip(), second.strip()]


def test_config_check_of_no_file(tmp_path: Path) -> None:
    done = edgegpu("config", "check", tmp_path / "none.yaml")
    assert done.code == 1
    assert "there is no such file" in done.err


@pytest.mark.parametrize(("shell", "mark"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --")])
def test_each_shell_gets_its_completion(shell: str, mark: str) -> None:
    done = edgegpu(env={"_EDGEGPU_COMPLETE": f"source_{shell}"})
    assert (done.code, mark in done.out, "edgegpu" in done.out) == (0, True, True)


def test_completion_names_commands_and_options() -> None:
    bash = {"_EDGEGPU_COMPLETE": "complete_bash", "COMP_WORDS": "edgegpu config ", "COMP_CWORD": "2"}
    assert edgegpu(env=bash).out.split() == ["check"]
    options = edgegpu(env={**bash, "COMP_WORDS": "edgegpu pods --"}).out.split()
    assert {"--json", "--namespace", "--socket"} <= set(options)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_completion_shows_itself_in_a_shell() -> None:
    script = f"{sys.executable} -m edgegpu_agent.cli.app --show-completion; exit $?"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, "complete -o" in done.stdout) == (0, True)


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    script = f"{sys.executable} -m edgegpu_agent.cli.app status --help | true"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_the_installed_command_ends_with_the_same_status() -> None:
    done = edgegpu_process("status", "--socket", "/nonexistent/plugin.sock", "--json")
    assert (done.code, done.err) == (1, "")
    assert "not running" in json.loads(done.out)["error"]


def test_help_loads_neither_rich_nor_pydantic() -> None:
    code = "import sys, edgegpu_agent.cli.tree; print(sorted({'rich', 'pydantic', 'yaml', 'grpc'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
