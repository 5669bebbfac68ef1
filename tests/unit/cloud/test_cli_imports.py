"""What `edgegpu-cloud` loads: the list of commands no command, a command its own part and no other's."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from kits.cli import loaded
from typer.main import get_command

from edgegpu_base.cli.lazy_commands import LazyCommand
from edgegpu_cloud.cli.tree import app

SCRIPT = """\
import atexit, json, os, sys
from edgegpu_cloud.cli.app import main
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
atexit.register(lambda: os.write(int(os.environ["MODULES"]), json.dumps(sorted(sys.modules)).encode()))
main()
"""
WEB = {"alembic", "fastapi", "jinja2", "starlette", "uvicorn"}
SLOW = {  # typer itself reads values by pydantic
    *("alembic", "cryptography", "fastapi", "grpc", "jinja2", "paho", "rich", "sqlalchemy", "starlette"),
    *("urllib3", "uvicorn", "yaml"),
}


def modules(*words: str, **environment: str) -> set[str]:
    """Return the names of the modules that a command has loaded by its end."""
    reader, writer = os.pipe()
    env = {**os.environ, "EDGEGPU_CLOUD_TOKEN": "secret", "MODULES": str(writer), **environment}
    command = [sys.executable, "-c", SCRIPT, *words]
    with subprocess.Popen(command, env=env, pass_fds=[writer], stdout=subprocess.DEVNULL) as process:
        os.close(writer)
        with open(reader, "rb") as file:  # noqa: PTH123  (a number)
            names = json.load(file)
        process.wait(60)
    return set(names)


def packages(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("words", [("--help",), ("--version",), (), ("nonsense",)])
def test_the_list_of_commands_loads_no_command(words: tuple[str, ...]) -> None:
    names = modules(*words)
    assert "edgegpu_cloud.cli.tree" in names
    assert not packages(names) & SLOW
    assert "edgegpu_cloud.cli.common" not in names


def test_the_shell_s_completion_loads_no_command() -> None:
    asked = {"_EDGEGPU_CLOUD_COMPLETE": "complete_bash", "COMP_WORDS": "edgegpu-cloud bo", "COMP_CWORD": "1"}
    names = modules(**asked)
    assert "typer.completion" in names
    assert not packages(names) & (SLOW - {"rich"})  # typer uses it for a shell's text


def test_a_command_loads_what_it_uses_of_a_controller() -> None:
    names = modules("--server", "https://127.0.0.1:1", "boxes")
    assert "edgegpu_cloud.cli.remote.fleet" in names
    assert not {one for one in names if one.startswith(("edgegpu_cloud.rollouts", "edgegpu_cloud.alerts."))}
    assert not {f"edgegpu_cloud.cli.remote.{one}" for one in ("alerts", "enrolment", "evidence", "rollouts")} & names
    assert not packages(names) & {"paho", *WEB}
    assert "edgegpu_cloud.cli.boxes.revoke" not in names
    assert "sqlalchemy.dialects.postgresql" not in names


def test_the_controller_s_own_command_loads_no_store() -> None:
    assert not packages(modules("serve", "--help")) & {"sqlalchemy", *WEB}


@pytest.mark.parametrize("name", list(getattr(get_command(app), "commands")))  # noqa: B009  (of typer's groups)
def test_the_line_in_the_list_is_that_of_the_command(name: str) -> None:
    line = getattr(get_command(app), "commands")[name]  # noqa: B009  (as above)
    assert isinstance(line, LazyCommand)
    command = loaded(line)
    assert command.name == name
    assert line.short_help or command.help.startswith(line.help)
