"""Small edits of a YAML text that leave every other byte as it was."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

Item = str | Mapping[str, object]

_BEFORE_ITEM = re.compile(r" *- +")
_AFTER_ITEM = re.compile(r"[ \t]*(#.*)?\r?")


class UnexpectedFormError(ValueError):
    """The text is no YAML, or its layout does not allow an edit that leaves the rest as it is."""


@dataclass(frozen=True, slots=True)
class TextEdit:
    """An edit that replaces the characters from `start` up to `end`, not included, by `text`."""

    start: int
    end: int
    text: str


def compose(text: str) -> yaml.MappingNode:
    """Return the nodes of a YAML text that is one mapping, with their positions.

    Raises:
        UnexpectedFormError: the text is no YAML, or something else than one mapping.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise UnexpectedFormError(f"it is not YAML: {_one_line(error)}") from error
    if not isinstance(root, yaml.MappingNode):
        raise UnexpectedFormError("it is not a mapping")
    return root


def values(text: str) -> dict[str, Any]:
    """Return the values of a YAML text that is one mapping. Raises UnexpectedFormError."""
    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UnexpectedFormError(f"it means nothing: {_one_line(error)}") from error
    if not isinstance(loaded, dict):
        raise UnexpectedFormError("it is not a mapping")
    return loaded


def apply(text: str, edits: Iterable[TextEdit]) -> str:
    """Return the text with edits made; they do not overlap, and their positions are those before any edit."""
    for edit in sorted(edits, key=lambda one: one.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def child(node: yaml.Node, key: str) -> yaml.Node | None:
    """Return the node of a key's value in a mapping; None when the key is absent.

    Raises:
        UnexpectedFormError: the node is no mapping, or has the key twice.
    """
    if not isinstance(node, yaml.MappingNode):
        raise UnexpectedFormError(f"line {node.start_mark.line + 1} should be a mapping with {key}")
    found = [value for name, value in node.value if name.value == key]
    if len(found) > 1:
        raise UnexpectedFormError(f"{key} stands twice in the mapping of line {node.start_mark.line + 1}")
    return found[0] if found else None


def sequence(node: yaml.Node, key: str) -> yaml.SequenceNode:
    """Return the list that a key holds. Raises UnexpectedFormError when it is missing, empty or no list."""
    found = child(node, key)
    if not isinstance(found, yaml.SequenceNode) or not found.value:
        raise UnexpectedFormError(f"{key} is not a list with at least one item")
    return found


def append(text: str, items: yaml.SequenceNode, item: Item) -> TextEdit:
    """Return the edit that appends an item to a list, in the layout of the other items."""
    end = end_of(items.value[-1])
    if end < items.start_mark.index:
        raise UnexpectedFormError(f"the list of line {items.start_mark.line + 1} ends in an alias")
    if items.flow_style:
        return TextEdit(end, end, f", {json.dumps(item)}")
    prefix = block_prefix(text, items.value[0])
    end = line_end(text, end)
    dumped = yaml.safe_dump([item], default_flow_style=False, sort_keys=False, width=10_000)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [prefix[: prefix.index("-")] + line for line in dumped.splitlines()]
    return TextEdit(end, end, newline + newline.join(lines))


def drop(text: str, items: yaml.SequenceNode, item: yaml.Node) -> TextEdit:
    """Return the edit that removes an item from a list, with its lines.

    Raises:
        UnexpectedFormError: the item is the only one, or shares its lines with something else.
    """
    index = items.value.index(item)
    if len(items.value) == 1:
        raise UnexpectedFormError(f"nothing else stands in the list of line {items.start_mark.line + 1}")
    if items.flow_style:
        if index:
            return TextEdit(end_of(items.value[index - 1]), end_of(item), "")
        return TextEdit(item.start_mark.index, items.value[1].start_mark.index, "")
    block_prefix(text, item)
    before = text.rindex("\n", 0, item.start_mark.index)
    if text[before - 1 : before] == "\r":
        before -= 1
    return TextEdit(before, line_end(text, end_of(item)), "")


def replace(text: str, scalar: yaml.Node, value: str) -> TextEdit:
    """Return the edit that replaces a scalar's value; quotes stay as they are."""
    start, end = scalar.start_mark.index, scalar.end_mark.index
    quote = text[start] if text[start] in "\"'" else ""
    return TextEdit(start, end, f"{quote}{value}{quote}")


def end_of(node: yaml.Node) -> int:
    """Return where the text of a node ends. PyYAML's own end of a block lies after the blank lines that follow it.

    Raises:
        UnexpectedFormError: the node ends in a block scalar (`|` or `>`).
    """
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        last = node.value[-1]
        return end_of(last[1] if isinstance(node, yaml.MappingNode) else last)
    if isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}:
        raise UnexpectedFormError(f"line {node.start_mark.line + 1} begins a block of text")
    return int(node.end_mark.index)


def line_end(text: str, end: int) -> int:
    """Return the end of the line in which a node ends.

    Raises:
        UnexpectedFormError: something else than a comment follows in the line.
    """
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    if not _AFTER_ITEM.fullmatch(text, end, stop):
        raise UnexpectedFormError(f"there is text after the item: {text[end:stop].strip()}")
    return stop - 1 if text[stop - 1 : stop] == "\r" else stop


def block_prefix(text: str, item: yaml.Node) -> str:
    """Return the text before an item of a block list in its line: blanks and the dash.

    Raises:
        UnexpectedFormError: something else is before the item.
    """
    start = text.rfind("\n", 0, item.start_mark.index) + 1
    prefix = text[start : item.start_mark.index]
    if not _BEFORE_ITEM.fullmatch(prefix):
        raise UnexpectedFormError(f"line {item.start_mark.line + 1} should be `- ` and an item")
    return prefix


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
