"""The help of both command lines: every value has a name, and no word of a program's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from kits.cli import commands
from typer.testing import CliRunner

from edgegpu_agent.cli.tree import app as edgegpu
from edgegpu_base.cli.helptext import named
from edgegpu_cloud.cli.tree import app as edgegpu_cloud

if TYPE_CHECKING:
    import typer


@pytest.mark.parametrize("app", [edgegpu, edgegpu_cloud], ids=["edgegpu", "edgegpu-cloud"])
def test_every_value_has_a_name(app: typer.Typer) -> None:
    for words in commands(app):
        done = CliRunner().invoke(app, [*words, "--help"], prog_name="x", env={"COLUMNS": "160"})
        assert done.exit_code == 0, words
        assert not re.search(r"<[a-z |]+>", done.stdout), (words, done.stdout)
        assert "{" not in done.stdout.partition("\n\n")[0], (words, done.stdout)
        assert "makes no sense" not in done.stdout


def test_an_argument_is_told_by_its_name() -> None:
    done = CliRunner().invoke(edgegpu, ["config", "check", "--help"], prog_name="edgegpu", env={"COLUMNS": "160"})
    assert re.search(r"^  \[FILE\] +The configuration to read\.", done.stdout, re.MULTILINE)


def test_a_type_is_room_and_braces_are_none() -> None:
    text = "Usage: x set [OPTIONS] {BOX} [[APP]] {KEY}...\n\n  BOX <str>  Its name.\n  prints {x}\n"
    assert named(text) == "Usage: x set [OPTIONS] BOX [APP] KEY\n\n  BOX        Its name.\n  prints {x}\n"


def test_a_usage_error_names_values_too() -> None:
    done = CliRunner().invoke(edgegpu_cloud, ["box"], prog_name="edgegpu-cloud")
    assert (done.exit_code, "{" in done.stderr, "BOX" in done.stderr) == (2, False, True)
