"""Reader of a YAML file that knows the lines of its keys and turns pydantic's errors into texts for people."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from edgegpu_base.yaml_lines import line_of
from edgegpu_plugin.errors import ConfigError

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)$")
_MOST_VALUE = 60

_Model = TypeVar("_Model", bound=BaseModel)


class _Loader(yaml.SafeLoader):
    """A YAML loader without base-60 numbers: `1:2` is the second MIG device of card 1, not 62."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:int"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A file's content: as plain values, and as nodes that know their lines."""

    path: Path
    value: dict[str, Any]
    root: yaml.MappingNode

    def line(self, location: Sequence[str | int]) -> int:
        """Return the line of a key, or of the last part of its path that the file has."""
        return line_of(self.root, location, otherwise=self.root.start_mark.line + 1)


def load(path: Path, model: type[_Model]) -> _Model:
    """Read a YAML file into a pydantic model.

    Raises:
        ConfigError: it has one line for each problem: file, line, key, value, what is wrong, what would be right.
    """
    document = read(path)
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        raise ConfigError(explain(document, error, model)) from error


def read(path: Path) -> YamlDocument:
    """Read a YAML file that holds one mapping; sections without content count as left out.

    Raises:
        ConfigError: the file is missing, unreadable, empty, no YAML, too deep or no mapping, or has a key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError([f"{path}: there is no such file; write one that says `version: 1`"]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            [f"{path}: cannot read it: {error}; it must be a text file that the plugin may read"]
        ) from error
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            twice = _keys_twice(path, root) if root is not None else []
            value = loader.construct_document(root) if root is not None else None
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError([f"{path}{_place(error)}: not YAML: {_problem(error)}"]) from error
    except RecursionError:
        raise ConfigError([f"{path}: brackets or lists within each other, too deep to read; remove them"]) from None
    if value is None:
        raise ConfigError([f"{path}: the file is empty; write at least `version: 1`"])
    if not isinstance(value, dict) or not isinstance(root, yaml.MappingNode):
        raise ConfigError([f"{path}:1: not a list of `key: value`; start with `version: 1`"])
    if twice:
        raise ConfigError(twice)
    return YamlDocument(path, {key: part for key, part in value.items() if part is not None}, root)


def explain(document: YamlDocument, error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return one line for each problem, in the order of the file."""
    told = []
    for detail in error.errors(include_url=False):
        location = tuple(step for step in detail["loc"] if isinstance(step, str | int))
        line = document.line(location)
        told.append((line, f"{document.path}:{line}: {_key(location)}: {_wrong(detail, location, model)}"))
    return [text for _, text in sorted(told, key=lambda one: one[0])]


def _wrong(detail: ErrorDetails, location: tuple[str | int, ...], model: type[BaseModel]) -> str:
    if detail["type"] == "extra_forbidden":
        return _unknown(location, model)
    field = _field(location, model)
    wanted = (field.description if field is not None else None) or "a section with keys below it"
    if detail["type"] == "missing":
        return f"missing; add {wanted}"
    what = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if detail["type"] == "model_type":
        what = "not a section"
    value = "nothing" if detail["input"] is None else _without_sign_in(str(detail["input"]))
    shown = value if len(value) <= _MOST_VALUE else value[:_MOST_VALUE] + "…"
    return f"{shown!r} {_verb(what)}; give {wanted}"


def _without_sign_in(value: str) -> str:
    """Return a value without what stands before its last @: a proxy's user and password, which no log is to have."""
    _, at, place = value.rpartition("@")
    return f"[hidden]@{place}" if at else value


def _verb(what: str) -> str:
    """Return pydantic's text "should be …" or our own "not a …" with its verb."""
    return what if what.startswith("should") else f"is {what}"


def _unknown(location: tuple[str | int, ...], model: type[BaseModel]) -> str:
    import difflib  # noqa: PLC0415  (a process that runs has a configuration without mistakes)

    section = _section(location[:-1], model)
    known = sorted(section.model_fields) if section is not None else []
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return "unknown key; " + (f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}")


def _section(location: tuple[str | int, ...], model: type[BaseModel]) -> type[BaseModel] | None:
    """Return the model of a section."""
    for step in location:
        field = model.model_fields.get(str(step))
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            return None
        model = field.annotation
    return model


def _field(location: tuple[str | int, ...], model: type[BaseModel]) -> FieldInfo | None:
    """Return the field of a key; for an entry of a list, the field of the list."""
    names = [step for step in location if isinstance(step, str)]
    section = _section(tuple(names[:-1]), model)
    return section.model_fields.get(names[-1]) if section is not None and names else None


def _key(location: tuple[str | int, ...]) -> str:
    """Return a location as text: `placement.exclude[1]`."""
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".") or "the file"


def _keys_twice(path: Path, node: yaml.Node) -> list[str]:
    """Return a problem for each key that a section has twice: YAML would silently ignore the first."""
    told: list[str] = []
    if isinstance(node, yaml.SequenceNode):
        for entry in node.value:
            told += _keys_twice(path, entry)
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if str(key.value) in seen:
                told.append(f"{path}:{line}: {key.value}: stands in line {seen[str(key.value)]} already; remove one")
            seen[str(key.value)] = line
            told += _keys_twice(path, value)
    return told


def _place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}" if mark is not None else ""


def _problem(error: yaml.YAMLError) -> str:
    """Return the parser's text for an error with a remedy; tabs, the most frequent mistake, have their own."""
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    remedy = "; indent with blanks" if "\\t" in problem else "; check quotes, colons and indentation"
    return f"{problem}{remedy}"
