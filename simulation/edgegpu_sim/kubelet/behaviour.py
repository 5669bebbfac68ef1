"""How long a container runs and how it ends, read from its command; nothing is really started."""

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A container ends after `runs_s` (infinite: never) with `exit_code`."""

    runs_s: float = math.inf
    exit_code: int = 0


def behaviour(container: Mapping[str, Any]) -> Behaviour:
    """Return what a container does: `true`, `false`, `sleep N`, `exit N`, a `sh -c` of these; all else runs on."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if len(words) > 2 and words[0].rpartition("/")[2] == "sh" and words[1] == "-c":  # noqa: PLR2004  (sh -c TEXT)
        words = shlex.split(words[2].replace(";", " ; "))
    runs_s, code = 0.0, 0
    for part in _split(words):
        name, *rest = part
        match name.rpartition("/")[2], rest:
            case "true", _:
                code = 0
            case "false", _:
                code = 1
            case "exit", [number, *_] if number.isdigit():
                return Behaviour(runs_s, int(number))
            case "sleep", [number, *_] if number.replace(".", "", 1).isdigit():
                runs_s += float(number)
            case _:
                return Behaviour()
    return Behaviour(runs_s, code) if words else Behaviour()


def _split(words: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word in {";", "&&"}:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]
