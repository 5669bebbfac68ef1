"""Kubernetes objects as JSON: merge patches, selectors, times, quantities."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

_REQUIREMENT = re.compile(
    r"\s*(?P<key>[^\s!=,()]+)\s*(?P<op>==|=|!=|\bin\b|\bnotin\b)\s*(?P<value>\([^)]*\)|[^,]*)\s*$"
)
_SPLIT = re.compile(r",(?![^(]*\))")


def now_text(now_s: float | None = None) -> str:
    """Return a time as the API writes it, whole seconds in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))


def merge(target: object, patch: object) -> Any:  # noqa: ANN401  (any JSON value)
    """Return `target` with a JSON merge patch applied; neither is changed."""
    if not isinstance(patch, dict):
        return patch
    result: Json = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


_BY_KEY = {"containers": "name", "initContainers": "name", "conditions": "type"}
"""The lists that a strategic merge patch merges element by element, with the key field of each."""


def strategic(target: object, patch: object, name: str = "") -> Any:  # noqa: ANN401  (any JSON value)
    """Return `target` with a strategic merge patch applied, without its `$` directives; `name` is the field's name."""
    if isinstance(patch, list) and (key := _BY_KEY.get(name)):
        merged = {one[key]: one for one in target} if isinstance(target, list) else {}
        for one in patch:
            merged[one[key]] = strategic(merged.get(one[key]), one)
        return list(merged.values())
    if not isinstance(patch, dict):
        return patch
    result: Json = dict(target) if isinstance(target, dict) else {}
    for field_name, value in patch.items():
        if value is None:
            result.pop(field_name, None)
        else:
            result[field_name] = strategic(result.get(field_name), value, field_name)
    return result


def field(item: Mapping[str, Any], path: str) -> str:
    """Return the text at a dotted path; empty when there is none."""
    value: Any = item
    for part in path.split("."):
        value = (value or {}).get(part) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)


def amount(value: object) -> int:
    """Return a whole quantity; `2k` and `2Ki` are read too.

    Raises:
        ValueError: not a whole number.
    """
    text = str(value)
    for suffix, factor in (("Ki", 1024), ("Mi", 1024**2), ("k", 1000), ("M", 1000**2)):
        if text.endswith(suffix):
            return int(text.removesuffix(suffix)) * factor
    return int(text)


def limits(container: Mapping[str, Any]) -> dict[str, int]:
    """Return a container's limits of extended resources: names with a domain."""
    found = (container.get("resources") or {}).get("limits") or {}
    return {name: amount(value) for name, value in found.items() if "/" in name}


@dataclass(frozen=True, slots=True)
class SelectorRequirement:
    """One part of a selector: the value at `key` is, or is not, among `values`; without values, it exists or not."""

    key: str
    values: tuple[str, ...]
    wanted: bool

    def holds(self, value: str | None) -> bool:
        """Return whether a value, or None for a missing one, meets the requirement."""
        met = value is not None if not self.values else value in self.values
        return met == self.wanted


@dataclass(frozen=True, slots=True)
class ObjectSelector:
    """A selector of objects by labels and fields."""

    labels: tuple[SelectorRequirement, ...] = ()
    fields: tuple[SelectorRequirement, ...] = ()

    @classmethod
    def parse(cls, labels: str = "", fields: str = "") -> "ObjectSelector":
        """Read `labelSelector` and `fieldSelector`.

        Raises:
            ValueError: a part is no requirement.
        """
        return cls(_requirements(labels), _requirements(fields))

    def matches(self, item: Mapping[str, Any]) -> bool:
        """Return whether an object matches the selector."""
        labels = (item.get("metadata") or {}).get("labels") or {}
        return all(r.holds(labels.get(r.key)) for r in self.labels) and all(
            r.holds(field(item, r.key)) for r in self.fields
        )


def _requirements(text: str) -> tuple[SelectorRequirement, ...]:
    return tuple(_requirement(part) for part in _SPLIT.split(text) if part.strip())


def _requirement(text: str) -> SelectorRequirement:
    found = _REQUIREMENT.match(text)
    if found is None:
        name = text.strip().removeprefix("!")
        if not re.fullmatch(r"[\w./-]+", name):
            raise ValueError(f"cannot read the selector {text!r}")
        return SelectorRequirement(name, (), not text.strip().startswith("!"))
    operator, value = found["op"], found["value"].strip()
    values = tuple(v.strip() for v in value.strip("()").split(",")) if operator in {"in", "notin"} else (value,)
    return SelectorRequirement(found["key"], values, operator not in {"!=", "notin"})
