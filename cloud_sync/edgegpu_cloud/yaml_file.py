"""A YAML file of settings: read so that each fault has its line and its key, in plain words."""

import difflib
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function

from edgegpu_base.yaml_lines import line_of
from edgegpu_sync.faults import fault


class _Once(yaml.SafeLoader):
    """A YAML loader that refuses a key given twice, of which the last would be taken without a warning."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        names = [key.value for key, _ in node.value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"{', '.join(twice)} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


@dataclass(frozen=True, slots=True)
class YamlText:
    """The content of a YAML file: its value, and the nodes that know their lines."""

    value: Any
    root: yaml.Node | None

    def line(self, location: Sequence[object]) -> int:
        """Return the line of a key, or of the last part of its path that the file has."""
        return line_of(self.root, location, otherwise=1)


def parse(text: str) -> YamlText:
    """Read the text of a YAML file.

    Raises:
        yaml.YAMLError: it is none, or has a key twice; `place` says where.
    """
    loader = _Once(text)
    try:
        root = loader.get_single_node()
        return YamlText(None if root is None else loader.construct_document(root), root)
    finally:
        loader.dispose()


def place(error: yaml.YAMLError) -> str:
    """Return where a text is no YAML, and why: `line 3: X is given twice`."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return f"line {mark.line + 1}: {problem}" if mark is not None else str(problem)


def explain(text: YamlText, error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return what is wrong with the values of a file, in its order: `line 3: broker.port: must be 65535 or less`."""
    if text.value is None:
        return ["it is empty: write at least `version: 1`"]
    if not isinstance(text.value, dict):
        return ["line 1: write `key: value`, first `version: 1`"]
    told = []
    for one in error.errors(include_url=False):
        key = ".".join(map(str, one["loc"]))
        line = text.line(one["loc"])
        words = _wrong(one, model)
        told.append((line, f"line {line}: {key}: {words}" if key else words))
    return [words for _, words in sorted(told, key=lambda one: one[0])]


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a text: a pattern, which a schema shows, and in words what is wanted: `https://HOST`."""

    pattern: str
    wanted: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return how pydantic checks it."""
        return no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return how a JSON schema shows it."""
        return {**handler(schema), "pattern": self.pattern}

    def _check(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"give {self.wanted}")
        return text


def _wrong(one: Mapping[str, Any], model: type[BaseModel]) -> str:
    match one["type"]:
        case "value_error":
            return str(one["ctx"]["error"])
        case "extra_forbidden":
            return _unknown(one["loc"], model)
        case "model_type":
            return "it is a section: write its keys below it, two spaces in"
        case "tuple_type":
            return "it is a list: write [ONE, ANOTHER], [] for none"
        case "literal_error" if " or " not in one["ctx"]["expected"]:
            return f"must be {one['ctx']['expected']}"
        case _:
            return fault(one)


def _unknown(location: Sequence[Any], model: type[BaseModel]) -> str:
    for step in location[:-1]:
        kinds = _models(model.model_fields[step].annotation) if step in model.model_fields else ()
        if not kinds:
            return "there is no such key"
        model = kinds[0]
    known = sorted(model.model_fields)
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"there is no such key; {f'is it {close[0]}?' if close else 'there are ' + ', '.join(known)}"


def _models(annotation: Any) -> tuple[type[BaseModel], ...]:  # noqa: ANN401  (whatever a field is annotated with)
    """Return the sections that a field may be: itself, or one of a union's."""
    parts = (annotation, *getattr(annotation, "__args__", ()))
    return tuple(part for part in parts if isinstance(part, type) and issubclass(part, BaseModel))
