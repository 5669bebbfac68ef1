"""Redaction of what leaves the box: secrets are found by their form, this box's own ones by their value."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import unquote

from pydantic import JsonValue

from edgegpu_installer.layout import AGENT_YAML, CLOUD_TOKEN, K3S_DATA, KUBECONFIG, LIMITS_KUBECONFIG, Layout

HIDDEN = "[hidden]"

_SHORTEST = 8
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_ENDS = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")
_VALUE = (
    r"""(?x: \\+ ["'] .*? (?: \\+ ["'] | $ ) | " (?: [^"\\] | \\ . )* "? """
    r"""| ' (?: [^'] | '' )* '? | [^\s"',;&}]+ )"""
)
"""The value after a secret's name. A quoted one (JSON, YAML, a shell, Python) goes to its closing quote or, where that
was cut off, to the line's end; another one goes up to a space."""

_AFTER_NAME = re.compile(
    r"""(?ix) ( (?: token | secret | passw (?: or )? d | api[_-]?key | key-?data | private[_-]?key
        | cert (?: ificate- )? data | credential ) [\w.-]* \\* ["']? \s* [=:] \s* ) """
    + _VALUE
)
"""NAME=VALUE and `name: value` in logs, YAML and JSON, where the name says that it is secret."""
_FORMS = tuple(
    re.compile(form)
    for form in (
        r"eyJ[\w-]{8,}\.[\w-]+\.[\w-]*",  # a JSON web token
        r"K10[0-9a-f]{32,}::[^\s\"']+",  # k3s's own token
        r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b",  # a bootstrap token
        r"(?<!\S)(?=\S*[A-Z+/])[A-Za-z0-9+/]{60,}={0,2}(?!\S)",  # a line of a key whose first line was cut off
    )
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
_OPTION = re.compile(rf"(?i)(--[\w-]*(?:token|join|password|secret)[\w-]*(?:[\"']?,\s*|[ =]))(?:{_VALUE}|\S+)")
_PASSWORD_IN_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)([^\s/]+)@")
"""The password goes up to the last @, since it may contain one."""
_QUERY = re.compile(r"(https?://[^\s?\"']+\?)[^\s\"']+")

_CUT = "…"
"""The character that `wire.clipped` puts where it has cut a text."""
_CUT_OFF = (
    re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+$"),
    re.compile(r"()\beyJ[\w-]{8,}[.\w-]*$"),
)
"""The beginnings of secrets whose form is known by its end, which was cut off."""

_WORDS = (
    *("token", "secret", "passw", "keydata", "key-data", "apikey", "api_key", "api-key", "private_key", "private-key"),
    *("privatekey", "certdata", "certificate-data", "credential", "bearer", "basic", "join", "://", "eyj", "k10"),
)
_TAIL = re.compile(r"\.[a-z0-9]{16}\b")
_LONG = 60

_FILES = (
    AGENT_YAML,
    CLOUD_TOKEN,
    KUBECONFIG,
    LIMITS_KUBECONFIG,
    "/etc/rancher/k3s/k3s.yaml",
    f"{K3S_DATA}/server/token",
    f"{K3S_DATA}/server/node-token",
    f"{K3S_DATA}/server/agent-token",
    "/etc/rancher/node/password",
    "/etc/rancher/k3s/config.yaml",
    "/etc/systemd/system/k3s.service.env",
    "/etc/systemd/system/k3s-agent.service.env",
)
_VALUES = re.compile(
    r"""(?mx) ^ \s* (?: (?:agent-)?token | password | client-key-data | keyData | K3S_(?:AGENT_)?TOKEN ) (?: :\s* | = )
        (?: "(?P<double>[^"\n]+)" | '(?P<single>[^'\n]+)' | (?P<plain>[^\s"']+) )"""
)
_K3S_TOKEN = re.compile(r"K10[0-9a-f]{32,}::(?:[^:\s]*:)?(\S+)")
"""k3s's token: after the hash of its CA comes a password, which k3s accepts alone as well (k3s's manual)."""


@dataclass(frozen=True, slots=True)
class Redactor:
    """A filter that takes secrets out of text; `known` are values to hide wherever they occur."""

    known: tuple[str, ...] = ()

    @classmethod
    def of_box(cls, layout: Layout, more: Iterable[Path] = ()) -> "Redactor":
        """Return a redactor that knows the secrets stored on this box."""
        found: set[str] = set()
        for path in (*(layout.at(name) for name in _FILES), *more):
            found |= _secrets(path)
        return cls(tuple(sorted(found, key=len, reverse=True)))

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines without secrets; one line replaces all lines of a private key."""
        inside = False
        for line in lines:
            if inside or _KEY_BEGINS.search(line):
                if not inside:
                    yield f"{HIDDEN} private key\n"
                inside = _KEY_ENDS.search(line) is None
            else:
                yield self.line(line)

    def text(self, text: str) -> str:
        """Return a text without secrets; it may have many lines, and may have been cut in the middle of a secret."""
        *cut, whole = "".join(self.lines(text.splitlines(keepends=True))).split(_CUT)
        return _CUT.join([*(self._without_rest(piece) for piece in cut), whole])

    def _without_rest(self, piece: str) -> str:
        """Hide the beginning of a secret that was cut off at the end of a piece."""
        for value in self.known:
            for length in range(len(value) - 1, _SHORTEST - 1, -1):
                if piece.endswith(value[:length]):
                    return piece[:-length] + HIDDEN
        for form in _CUT_OFF:
            piece = form.sub(rf"\1{HIDDEN}", piece)
        return piece

    def line(self, text: str) -> str:
        """Return a line without secrets."""
        for value in self.known:
            text = text.replace(value, HIDDEN)
        if not _may_hold(text):
            return text  # true of most lines of a log; the rest is many times slower
        text = _BEARER.sub(rf"\1 {HIDDEN}", text)
        text = _OPTION.sub(rf"\1{HIDDEN}", text)
        text = _PASSWORD_IN_URL.sub(rf"\1{HIDDEN}@", text)
        text = _QUERY.sub(rf"\1{HIDDEN}", text)
        text = _AFTER_NAME.sub(rf"\1{HIDDEN}", text)
        for form in _FORMS:
            text = form.sub(HIDDEN, text)
        return text


def _may_hold(text: str) -> bool:
    """Return whether a line contains anything that is typical of a secret."""
    low = text.lower()
    if any(word in low for word in _WORDS) or _TAIL.search(low):
        return True
    return any(len(word) >= _LONG for word in text.split())


def _secrets(path: Path) -> set[str]:
    """Return the secrets in a file: its only word, values of secret keys, passwords in addresses."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    lines = text.split()
    found = {next(filter(None, value.groups())) for value in _VALUES.finditer(text)}
    found |= set(lines) if len(lines) == 1 else set()
    found |= {part for value in found for part in _K3S_TOKEN.findall(value)}
    passwords = {password for _, password in _PASSWORD_IN_URL.findall(text)}
    found |= passwords | {unquote(password) for password in passwords}
    return {value for value in found if len(value) >= _SHORTEST}


RedactBody = Callable[[bytes], bytes]
"""A function that returns a message's body without secrets."""

_TEXT, _DATA = "text", "data"
"""The fields that are redacted: a text at any depth, and all data that an action has put into its result."""


def redacted_body(body: bytes, *, redactor: Callable[[], Redactor]) -> bytes:
    """Return a message's body without secrets; no text becomes longer, so the body still fits.

    Args:
        body: JSON, as `wire.encode` writes it.
        redactor: called for each message with text, since a new token may have been stored since the last one.
    """
    if not any(f'"{name}":'.encode() in body for name in (_TEXT, _DATA)):
        return body
    said = cast("JsonValue", json.loads(body))
    clean = _redacted(said, redactor(), words=False)
    return body if clean == said else json.dumps(clean, separators=(",", ":"), ensure_ascii=False).encode()


def _redacted(value: JsonValue, redactor: Redactor, *, words: bool) -> JsonValue:
    match value:
        case str() if words:
            return redactor.text(value)[: len(value)]
        case dict():
            return {
                name: _redacted(one, redactor, words=words or name in {_TEXT, _DATA}) for name, one in value.items()
            }
        case list():
            return [_redacted(one, redactor, words=words) for one in value]
        case _:
            return value
