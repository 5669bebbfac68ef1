"""The command lines: every command with its options, hidden ones too, the programs by name, and how each ends."""

from __future__ import annotations

import argparse
import enum
import re
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from golden import doors
from golden.shapes import written
from kits.cli import subcommands


def files(folder: Path) -> dict[str, str]:
    return {
        **{f"{name}.json": written(command(doors.get_command(app))) for name, app in doors.COMMAND_LINES.items()},
        **{f"{name}.json": written(parser(make())) for name, make in doors.PARSERS.items()},
        "programs.json": written(programs()),
        "exit-codes.json": written(exits(folder)),
        "environment.json": written(environment()),
    }


def command(one: Any) -> dict[str, Any]:  # noqa: ANN401  (click's command)
    """Return a command without its words for people: parameters as a user gives them, commands by name."""
    made: dict[str, Any] = {"parameters": [parameter(each) for each in one.params]}
    if one.hidden:
        made["hidden"] = True
    if inner := subcommands(one):
        made["alone"] = bool(one.invoke_without_command)
        made["commands"] = {name: command(each) for name, each in sorted(inner.items())}
    return made


def parameter(one: Any) -> dict[str, Any]:  # noqa: ANN401  (typer's parameter)
    is_option = one.opts[0].startswith("-")
    made: dict[str, Any] = {
        "names": [*one.opts, *one.secondary_opts] if is_option else [one.name.rstrip("_")],
        "kind": "option" if is_option else "argument",
        "type": type_of(one.type_descriptor.annotation),
        "default": plain(one.default),
    }
    flags = {
        "required": one.required,
        "multiple": getattr(one, "multiple", False),
        "flag": getattr(one, "is_flag", False),
        "hidden": getattr(one, "hidden", False),
    }
    made |= {name: True for name, is_so in flags.items() if is_so}
    bounds = {side: getattr(one, side, None) for side in ("min", "max")}
    made |= {side: value for side, value in bounds.items() if value is not None}
    if one.nargs != 1:
        made["nargs"] = one.nargs
    if one.envvar:
        made["environment"] = one.envvar
    return made


def type_of(annotation: Any) -> Any:  # noqa: ANN401  (a type)
    """Return a parameter's type by name, its values where it has few."""
    parts = [one for one in get_args(annotation) if one is not type(None)]
    if get_origin(annotation) is Literal:
        return sorted(map(str, parts))
    if parts:
        return type_of(parts[0])
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return sorted(str(one.value) for one in annotation)
    return "path" if annotation is Path else str(annotation.__name__)


def plain(value: Any) -> Any:  # noqa: ANN401  (a default)
    match value:
        case enum.Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [plain(one) for one in value]
        case Path() if value.is_relative_to(doors.ROOT):
            return f"CHECKOUT/{value.relative_to(doors.ROOT)}"
        case Path():
            return str(value)
        case _:
            return "made when it is called"


def parser(made: argparse.ArgumentParser) -> dict[str, Any]:
    """Return the options of a parser of argparse, and its commands."""
    found: dict[str, Any] = {"options": []}
    for action in made._actions:  # noqa: SLF001  (argparse names no other way)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  (as above)
            found["commands"] = {name: parser(one) for name, one in sorted(action.choices.items())}
            continue
        found["options"].append(
            {
                "names": list(action.option_strings) or [action.dest],
                "default": plain(action.default),
                "choices": [plain(one) for one in action.choices] if action.choices else None,
                "nargs": action.nargs,
                "required": action.required,
            }
        )
    return found


def programs() -> dict[str, list[str]]:
    """Return the programs that there are by name: of the package, of what is put on a box; each of them is there."""
    scripts = tomllib.loads((doors.ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    launched = re.findall(r'^ +launcher (\S+) (".*")$', (doors.ROOT / "tools/env").read_text(), re.MULTILINE)
    modules = {target.partition(":")[0] for target in scripts.values()}
    modules |= {name for _, line in launched for name in re.findall(r"(?:-m |from )(edgegpu[\w.]*)", line)}
    lost = sorted(module for module in modules if doors.find_spec(module) is None)
    return {"of the package": sorted(scripts), "on a box": sorted(name for name, _ in launched), "lost": lost}


def exits(folder: Path) -> dict[str, int]:
    """Return how each command line ends: well, asked for nothing, asked wrongly, failed, interrupted, cut off."""
    missing = folder / "none"
    broken = folder / "broken.yaml"
    broken.write_text("version: 7\n")
    box = {
        "--help": ("--help",),
        "--version": ("--version",),
        "nothing": (),
        "no such command": ("no-such-command",),
        "no such option": ("status", "--no-such-option"),
        "status without a plugin": ("status", "--socket", missing),
        "status without a plugin, --json": ("status", "--socket", missing, "--json"),
        "config check, wrong": ("config", "check", broken),
        "config check, right": ("config", "check", doors.EXAMPLES / "plugin.yaml"),
        "agent status of a box in no cloud": ("agent", "status", "--root", folder),
        "doctor, no such check": ("doctor", "--check", "none", "--root", folder),
        "doctor --list": ("doctor", "--list"),
        "install --isolation limiter": ("install", "--isolation", "limiter"),
        "journal without an agent": ("journal", "--socket", missing),
    }
    cloud = {
        "--help": ("--help",),
        "--version": ("--version",),
        "nothing": (),
        "no such command": ("no-such-command",),
        "no such option": ("boxes", "--no-such-option"),
        "boxes without a controller": ("boxes", "--folder", str(missing)),
        "boxes without a controller, --json": ("boxes", "--folder", str(missing), "--json"),
        "label without labels": ("label", "box", "--folder", str(missing)),
    }
    made = {f"edgegpu: {name}": doors.edgegpu(*words).code for name, words in box.items()}
    made |= {f"edgegpu-cloud: {name}": doors.edgegpu_cloud(*words).code for name, words in cloud.items()}
    made["edgegpu-plugin: a configuration that cannot be used"] = doors.plugin_exit("--config", str(broken))
    made |= {
        f"any: {name}": ended(error) for name, error in {"ctrl-C": KeyboardInterrupt(), "all is well": None}.items()
    }
    return made


def ended(error: BaseException | None) -> int:
    """Return the status of a command that is ended so."""

    def command(**_: object) -> None:
        if error is not None:
            raise error

    try:
        doors.commandline.run("edgegpu", lambda: command)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def environment() -> dict[str, list[str]]:
    """Return the variables of the environment that are ours, by who reads them: read from the sources, moved or not."""
    name = re.compile(r"\bEDGEGPU_[A-Z][A-Z_]*\b")
    python = {path for top in doors.PRODUCT for path in top.rglob("*.py")}
    shell = {path for folder in (doors.SCRIPTS, doors.UNITS) for path in folder.iterdir() if path.is_file()}
    return {
        "programs": sorted({word for path in python for word in name.findall(path.read_text())}),
        "scripts and units": sorted({word for path in shell for word in name.findall(path.read_text())}),
    }
