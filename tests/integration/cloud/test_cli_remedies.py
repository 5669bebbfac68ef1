"""Each command that a message of the controller names is one that runs as it is written, with a name put in."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kits.cloudcli import ok, run
from typer.main import get_command

import edgegpu_cloud
from edgegpu_cloud.cli import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(edgegpu_cloud.__file__ or "").parent
NAMED = re.compile(r"`edgegpu-cloud ([^`]+)`")
PLACEHOLDER = re.compile(r"%\(\w+\)s|\{[^}]*\}|\b[A-Z]+\b")
DIGITS = "7"  # a name of a box, of a person, and a number
PARSED_ONLY = {"serve", "init"}  # they would run on, or make a controller


def texts(module: ast.AST) -> Iterator[str]:
    """Yield the texts of a piece of code, without its docstrings; what is put in stands between braces."""
    documents = {id(one.value) for one in ast.walk(module) if isinstance(one, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part)}}}"
                for part in node.values
            )


def named() -> set[str]:
    """Return each command that a text names whole, with digits for what is put in."""
    found: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        whole = ast.parse(path.read_text())
        # what the command line says outside of its functions is help, which names commands without their arguments
        functions = [one for one in ast.walk(whole) if isinstance(one, ast.FunctionDef)]
        for piece in functions if path.is_relative_to(SOURCES / "cli") else [whole]:
            found.update(line for text in texts(piece) for line in NAMED.findall(text))
    return {PLACEHOLDER.sub(DIGITS, line) for line in found}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cloud") / "cloud"
    ok("init", "--name", "127.0.0.1", folder=made)
    return made


@pytest.mark.parametrize("line", sorted(named()))
def test_a_command_that_a_message_names_is_no_wrong_use(folder: Path, line: str) -> None:
    words = shlex.split(line)
    if words[0] in PARSED_ONLY:
        command = get_command(tree.app)
        command.make_context("edgegpu-cloud", words)
        return
    done = run(*words, folder=folder)
    assert done.code != 2, done.err + done.out


def test_the_commands_are_found() -> None:
    assert {"people list", "boxes", "rollouts list", "people tokens 7"} <= named()
