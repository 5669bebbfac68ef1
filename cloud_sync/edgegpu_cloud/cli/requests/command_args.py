"""The arguments of `edgegpu-cloud command`: KEY=VALUE words, read by what the op takes."""

import json
from collections.abc import Sequence

import typer

from edgegpu_sync.ids import OpName
from edgegpu_sync.rules.ops import OPS, Args
from edgegpu_sync.wire import Json

HELP = """\
Arguments, each --arg KEY=VALUE:
  logs.collect   url=https://... (PUT with the box's certificate; ends with /: a folder), since_s=86400, max_mib=64
  agent.upgrade  version=1.2.3 url=https://... sha256=HEX signature=TEXT, all of them, as the release says
  all others     none
"""
_OWN = {"sharing.install": "install", "sharing.uninstall": "uninstall"}


def read(op: str, box: str, words: Sequence[str]) -> Json:
    """Return arguments; of an op that this version does not know JSON, else text.

    Raises:
        typer.BadParameter: what the op does not take, or lacks; an op that has a command of its own.
    """
    if op in _OWN:
        raise typer.BadParameter(f"say: edgegpu-cloud {_OWN[op]} {box}", param_hint="OP")
    model = OPS[OpName(op)].args if op in OPS else None
    found: Json = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise _wrong(f"no KEY=VALUE: {word}")
        if key in found:
            raise _wrong(f"{key} is given twice")
        found[key] = value if model is not None and _is_text(model, key) else _value(value)
    if model is not None:
        _check(op, model, found)
    return found


def _check(op: str, model: type[Args], found: Json) -> None:
    known = [name for name in model.model_fields if name != "critical"]
    unknown = [key for key in found if key not in model.model_fields]
    if unknown:
        takes = f"takes {', '.join(known)}" if known else "takes no arguments"
        raise _wrong(f"{op} {takes}, not {', '.join(unknown)}")
    missing = [name for name in known if model.model_fields[name].is_required() and name not in found]
    if missing:
        raise _wrong(f"{op} needs {', '.join(missing)}: --arg {missing[0]}=...")
    url = found.get("url")
    if isinstance(url, str) and not url.startswith("https://"):
        raise _wrong(f"url: https:// only, not {url}")


def _is_text(model: type[Args], key: str) -> bool:
    return key in model.model_fields and model.model_fields[key].annotation is str


def _value(text: str) -> "Json | str":
    try:
        return json.loads(text)  # type: ignore[no-any-return]  # whatever JSON has
    except ValueError:
        return text


def _wrong(text: str) -> typer.BadParameter:
    return typer.BadParameter(text, param_hint="--arg")
