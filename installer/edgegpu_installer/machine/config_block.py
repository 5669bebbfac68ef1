"""Our lines in the configuration file that k3s reads first, for a k3s too old to take them from a drop-in; pure.

k3s reads `config.yaml.d` from 1.21.0 on (k3s-io/k3s 3162). The next release has keys with `+`, by which a drop-in adds
to a list (k3s-io/k3s 3229). For an older k3s our argument is in `config.yaml` itself, as whole lines between two
comments; every other byte of the file stays the user's.
"""

import re
from typing import Any

import yaml

from edgegpu_installer import yaml_edit
from edgegpu_installer.errors import InstallError
from edgegpu_installer.machine.k3s_config import SCHEDULER_ARG, argument_item, argument_list
from edgegpu_installer.yaml_edit import UnexpectedFormError

_MARK = "# BEGIN edgegpu"
_BEGIN = f"{_MARK}: the scheduler's file. `edgegpu uninstall` takes these lines out."
_JOINED = " The line before them had no end."
_END = "# END edgegpu"
_BLOCK = re.compile(
    rf"^ *{_MARK}(?P<words>[^\n]*)\n(?: *{SCHEDULER_ARG}:\r?\n)? *- '(?:[^'\n]|'')*'\r?\n *{_END}\r?(?:\n|\Z)",
    re.MULTILINE,
)


def holds_block(text: str) -> bool:
    """Return whether our lines are in a configuration file."""
    return _MARK in text


def with_block(text: str, scheduler: str, *, path: str) -> str:
    """Return a configuration file's text with our lines in it; the same text when they are in it already.

    Args:
        text: the file's, empty when there is no file.
        scheduler: the path of our scheduler configuration.
        path: the file's, for messages.

    Raises:
        InstallError: the scheduler has a configuration of its own, or the file's layout does not allow adding lines
            without other changes.
    """
    before = without_block(text, path=path)
    item = f"config={scheduler}"
    given = _given(before)
    own = [word for word in given if word.removeprefix("--").startswith("config=")]
    if own:
        raise InstallError(
            f"{path} gives the scheduler a configuration already: {own[0]}",
            f"take `{own[0]}` out of {SCHEDULER_ARG} there; or upgrade k3s to 1.21.1 or newer, where edgegpu's file "
            "takes its place and holds what is in it. Then install again",
        )
    try:
        if holds_block(text) and _adds(before, text, item):
            return text
        return _added(before, item)
    except UnexpectedFormError as error:
        remedy = f"write it as a list with one argument a line, then install again:\n{argument_list(given)}"
        raise InstallError(
            f"cannot add to {SCHEDULER_ARG} in {path}: {error}",
            remedy
            if given
            else f"write {path} as plain `key: value` lines without an empty {SCHEDULER_ARG}, then install again",
        ) from error


def without_block(text: str, *, path: str) -> str:
    """Return a configuration file's text without our lines, as if they had never been in it.

    Raises:
        InstallError: somebody wrote between our two comments, or removed one of them.
    """
    kept = strip(text)
    if holds_block(kept):
        raise InstallError(
            f"cannot take edgegpu's lines out of {path}: somebody has edited these lines",
            f"remove the lines from `{_MARK}` to `{_END}` from {path}, keep your own, then run this again",
        )
    return kept


def strip(text: str) -> str:
    """Return a text without our blocks; a block that somebody changed stays."""
    while (found := _BLOCK.search(text)) is not None:
        start, end = found.span()
        head = text[:start]
        if _JOINED in found["words"] and end == len(text):
            head = head.removesuffix("\r\n" if found[0].endswith("\r\n") else "\n")
        text = head + text[end:]
    return text


def _given(text: str) -> list[str]:
    """Return the arguments that a file gives the scheduler; an empty list when it cannot be parsed."""
    try:
        value = _values(text).get(SCHEDULER_ARG)
    except UnexpectedFormError:
        return []
    return [str(one) for one in value] if isinstance(value, list) else [] if value is None else [str(value)]


def _adds(before: str, after: str, item: str) -> bool:
    """Return whether `after` has the same values as `before`, and one argument more."""
    values = _values(before)
    there = values.get(SCHEDULER_ARG) or []
    given = there if isinstance(there, list) else [there]
    return _values(after) == values | {SCHEDULER_ARG: [*given, item]}


def _added(text: str, item: str) -> str:
    """Return a text with our lines in it, after checking that its values change only by one argument more."""
    after = _placed(text, item)
    if not _adds(text, after, item):
        raise UnexpectedFormError("an edit would change other parts of the file (aliases, several documents?)")
    return after


def _placed(text: str, item: str) -> str:
    if not _values(text):
        return _insert(text, len(text), argument_list([item]).splitlines(), indent="")
    root = yaml_edit.compose(text)
    if root.flow_style:
        raise UnexpectedFormError(f"its keys stand in braces (line {root.start_mark.line + 1})")
    if yaml_edit.child(root, SCHEDULER_ARG) is None:
        return _insert(text, len(text), argument_list([item]).splitlines(), indent=" " * root.start_mark.column)
    items = yaml_edit.sequence(root, SCHEDULER_ARG)
    if items.flow_style:
        raise UnexpectedFormError(f"the list of line {items.start_mark.line + 1} is not one argument a line")
    end = yaml_edit.end_of(items.value[-1])
    prefix = yaml_edit.block_prefix(text, items.value[0])
    return _insert(text, yaml_edit.line_end(text, end), [argument_item(item)], indent=prefix[: prefix.index("-")])


def _insert(text: str, at: int, rows: list[str], *, indent: str) -> str:
    """Insert our lines after the line that ends at a position."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if text[at:].startswith(("\n", "\r\n")):
        at = text.index("\n", at) + 1
    joined = bool(text) and not text[:at].endswith("\n")
    lines = [f"{_BEGIN}{_JOINED if joined else ''}", *rows, _END]
    block = "".join(f"{indent}{line}{newline}" for line in lines)
    return text[:at] + (newline if joined else "") + block + text[at:]


def _values(text: str) -> dict[str, Any]:
    """Return the values of a YAML text; empty when the text has only comments."""
    try:
        empty = yaml.compose(text, Loader=yaml.SafeLoader) is None
    except yaml.YAMLError:
        empty = False
    return {} if empty else yaml_edit.values(text)
