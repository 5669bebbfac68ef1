"""A strict reader of YAML: it refuses what two parsers could read differently; pure.

The scheduler has another YAML parser than ours. What is refused here either makes the scheduler exit (a key twice) or
can have another value in one parser than in the other (`yes`, `1_000`, an alias).
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

_MOST_TEXT = 256 * 1024
_DEEPEST = 40
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_FLOAT = re.compile(r"-?[0-9]+\.[0-9]+")
_NUMBERLIKE = re.compile(r"[-+.]?[0-9][-0-9a-fA-FxXoObB_+.:TtZz ]*|[-+]?\.(inf|nan)|[-+.]", re.IGNORECASE)
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "<<", "="})
_PRINTABLE = re.compile(r"[\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufdcf\ufdf0-\ufefe\uff00-\ufffd]*")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in the file; `where` is a path (`extenders[0].weight`), a line, or empty for the whole file."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


def load(text: str) -> tuple[Any, list[Problem]]:
    """Return a file's only document as plain values (None when there are problems), and all its problems."""
    if len(text) > _MOST_TEXT:
        return None, [Problem("", f"larger than {_MOST_TEXT // 1024} KiB")]
    if not _PRINTABLE.fullmatch(text):
        return None, [Problem("", "it has characters that are not allowed in text")]
    if text.lstrip().startswith("{") and not _is_json(text):
        return None, [Problem("", "it begins with {, so the scheduler reads it as JSON, and it is not JSON")]
    try:
        problems = list(_odd_events(text))
        root = None if problems else yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        return None, [_syntax(error)]
    if problems or root is None:
        return None, problems or [Problem("", "it is empty")]
    value = _value(root, "", problems)
    return (None, problems) if problems else (value, [])


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _syntax(error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None)
    what = str(getattr(error, "problem", None) or "it is not YAML")
    return Problem(f"line {mark.line + 1}" if mark else "", what)


def _odd_events(text: str) -> Iterator[Problem]:
    """Yield the YAML that is not plain: anchors, tags, directives, a second document, nesting that is too deep."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        where = _line(event)
        match event:
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    yield Problem(where, "a second document begins: only the first would count")
                if event.version or event.tags:
                    yield Problem(where, "a % directive: leave it out")
            case yaml.AliasEvent():
                yield Problem(where, "an alias (*): write the value out")
            case yaml.NodeEvent() if event.anchor is not None or getattr(event, "tag", None) is not None:
                yield Problem(where, "an anchor (&) or a tag (!): leave it out")
            case yaml.CollectionEndEvent():
                depth -= 1
            case _:
                pass
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                yield Problem(where, "nested too deeply")
                return


def _value(node: yaml.Node, where: str, problems: list[Problem]) -> Any:  # noqa: ANN401  (YAML)
    match node:
        case yaml.MappingNode():
            return _table(node, where, problems)
        case yaml.SequenceNode():
            return [_value(item, f"{where}[{number}]", problems) for number, item in enumerate(node.value)]
        case _:
            return _scalar(node, where or _line(node), problems)


def _table(node: yaml.MappingNode, where: str, problems: list[Problem]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = _value(key_node, _line(key_node), problems)
        if not isinstance(key, str):
            problems.append(Problem(_line(key_node), f"{key!r} is not a valid field name"))
            continue
        path = f"{where}.{key}" if where else key
        if key in table:
            problems.append(Problem(path, f"given twice, the second time on {_line(key_node)}"))
        table[key] = _value(value_node, path, problems)
    return table


def _scalar(node: yaml.Node, where: str, problems: list[Problem]) -> str | int | float | bool | None:
    text = str(node.value)
    if getattr(node, "style", None) is not None:
        return text
    if text in {"true", "false"}:
        return text == "true"
    if text in {"", "~", "null"}:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if text.lower() in _WORDS or _NUMBERLIKE.fullmatch(text):
        problems.append(
            Problem(
                where,
                f"{text} can be read in two ways: put text in quotes, write true or false, or a decimal number",
            )
        )
    return text


def _line(part: yaml.Node | yaml.Event) -> str:
    return f"line {part.start_mark.line + 1}" if part.start_mark else ""
