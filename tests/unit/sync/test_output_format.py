"""`-o json|yaml|wide` on a command line: the same document as `--json`, in YAML, or text with more columns."""

from __future__ import annotations

import json
from typing import Annotated

import pytest
import typer
import yaml
from typer.testing import CliRunner

from edgegpu_base.cli.output import dumped, dumped_one_of_many, is_wide, with_output

ODD = {"host": "a\x1b[2J\u202eb\x9b", "cards": [{"label": "0"}], "größe": 1.5, "none": None}
app = typer.Typer()


@app.command("show")
@with_output
def show(name: str, *, json: Annotated[bool, typer.Option("--json")] = False) -> None:
    if json:
        typer.echo(dumped({"name": name, **ODD}))
        typer.echo(dumped_one_of_many({"name": name}), err=True)
    else:
        typer.echo(f"{name}{' wide' if is_wide() else ''}")


@app.command("plain")
@with_output
def plain(name: str) -> None:
    typer.echo(name)


def said(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.stdout, done.stderr


def test_json_both_ways_is_the_same_document() -> None:
    assert said("show", "a", "-o", "json") == said("show", "a", "--json")
    assert json.loads(said("show", "a", "-o", "json")[1]) == {"name": "a", **ODD}


def test_yaml_says_the_same_and_cannot_steer_a_terminal() -> None:
    code, out, many = said("show", "a", "-o", "yaml")
    assert (code, yaml.safe_load(out)) == (0, {"name": "a", **ODD})
    assert not set(out) & {"\x1b", "\u202e", "\x9b"}
    assert yaml.safe_load(many.removeprefix("---\n")) == {"name": "a"}
    assert "größe" in dumped({"größe": 1})


def test_wide_is_text_with_more() -> None:
    assert said("show", "a", "-o", "wide")[1] == "a wide\n"
    assert said("show", "a")[1] == "a\n"


@pytest.mark.parametrize("words", [("show", "a", "-o", "xml"), ("plain", "a", "-o", "json")])
def test_what_there_is_not_is_a_usage_error(words: tuple[str, ...]) -> None:
    assert said(*words)[0] == 2


def test_the_help_names_the_formats() -> None:
    assert "json|yaml|wide" in said("show", "--help")[1]
