"""`edgegpu config check`: check the plugin's configuration, and print it with all defaults."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgegpu_agent.cli.clients.plugin import DEFAULT_CONFIG
from edgegpu_agent.cli.common import EXIT_WRONG, CliError, JsonOption, print_json, reporting
from edgegpu_base.cli.helptext import command_group, put

if TYPE_CHECKING:
    from pydantic import BaseModel

JSON_VERSION = 1

HELP = """\
Read the plugin's configuration and print what it comes to, defaults included.

The file is read by the plugin's own reader. Each thing that is wrong is a line with file, line, key, value and what to
write instead; the plugin does not start with such a file. Nothing is changed and nothing is restarted.

\b
Examples:
  edgegpu config check
  edgegpu config check ./plugin.yaml && sudo install -m 0644 plugin.yaml /etc/edgegpu/plugin.yaml
  edgegpu config check --json | jq .config.placement.policy

\b
--json: {"v": 1, "file": TEXT, "config": {the whole configuration}}
  or, with exit status 1, {"error", "remedy", "file": TEXT, "problems": [TEXT]}
"""

_AUTO = "auto"
"""How the file says what has no value of its own; the JSON document has null there."""

app = command_group("The plugin's configuration file.")

FileArgument = Annotated[Path, typer.Argument(metavar="[FILE]", help="The configuration to read.")]


def check(file: FileArgument = DEFAULT_CONFIG, *, json: JsonOption = False) -> None:
    """Read the plugin's configuration and print what it comes to, defaults included."""
    with reporting(as_json=json):
        from edgegpu_agent.cli.clients.settings import load_settings  # noqa: PLC0415  (pydantic is slow to load)

        try:
            loaded = load_settings(file)
        except CliError as error:
            if json or "problems" not in error.more:
                raise
            _say_problems(file, error)
            raise typer.Exit(EXIT_WRONG) from error
        if json:
            print_json({"v": JSON_VERSION, "file": str(file), "config": loaded.model_dump(mode="json")})
            return
        typer.echo(f"{file} is right; with the defaults it comes to:\n")
        for line in _lines(loaded, 0):
            typer.echo(line)


def _say_problems(file: Path, error: CliError) -> None:
    typer.echo(f"edgegpu: {file} cannot be used:", err=True)
    problems = error.more["problems"]
    for line in problems if isinstance(problems, list) else []:
        typer.echo(f"  {line}", err=True)


def _lines(model: "BaseModel", depth: int) -> list[str]:
    """Return a model as lines of YAML, with a mark at each value that the file does not set."""
    from pydantic import BaseModel  # noqa: PLC0415  (slow to load)

    lines: list[str] = []
    for name in type(model).model_fields:
        value = getattr(model, name)
        head = "  " * depth + f"{name}:"
        if isinstance(value, BaseModel):
            lines += [head, *_lines(value, depth + 1)]
        else:
            shown = model.model_dump(mode="json", include={name})[name]
            default = "" if name in model.model_fields_set else "  # default"
            lines.append(f"{head} {_scalar(_AUTO if shown is None else shown)}{default}")
    return lines


def _scalar(value: Any) -> str:  # noqa: ANN401  (any JSON value)
    """Return a value as one line of YAML."""
    import yaml  # noqa: PLC0415  (slow to load)

    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n").strip()


put(app, "check", check, HELP, "Check it, and print it with its defaults.")
