"""Bodies that are no message, and topics that are none, by hypothesis."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from edgegpu_sync.ids import DeviceId

Draw = Any  # what `st.composite` gives

_OPS = ("k3s.restart", "plugin.restart", "sharing.uninstall", "doctor.run", "agent.upgrade", "never.heard")
_NUMBERS = {
    TopicKind.DESIRED: ("enrolment", "rev"),
    TopicKind.COMMAND: ("enrolment", "seq", "floor", "valid_s"),
    TopicKind.RECEIPT: ("enrolment", "n", "rev", "server_time"),
}
"""The whole numbers that each body must have."""

_TEXTS = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "1.5",
    "-1",
    "true",
    "null",
    '"7"',
    "[]",
    "{}",
    "9" * 400,
    "01",
    "+1",
)
"""JSON, or nearly, that is no count."""

_NO_JSON = (b"", b"{", b"[", b"nul", b"\xff\xfe{}", b"\x00", b"{}{}", b"'v': 1", b'{"v":1,}', b"\xef\xbb\xbf{}", b"[1]")
_NOT_TEXT = (
    b'"\xff"',
    b'"\xc3"',
    b'"\xed\xa0\x80"',
    b'"\xf8\x88\x80\x80\x80"',
    b'"\x00"',
    b'"\n"',
    b'"\\ud800"',
    b'"\\x"',
)
"""Strings that are not UTF-8, or not JSON's."""


def _number(value: dict[str, Any], name: str) -> st.SearchStrategy[bytes]:
    return st.sampled_from(_TEXTS).map(lambda text: _with(value, name, text))


def _missing(value: dict[str, Any], name: str) -> st.SearchStrategy[bytes]:
    return st.just(json.dumps({key: one for key, one in value.items() if key != name}).encode())


def _twice(value: dict[str, Any], name: str) -> st.SearchStrategy[bytes]:
    """Name a field twice: the last one counts."""
    body = json.dumps(value)[:-1]
    return st.sampled_from(_TEXTS).map(lambda text: f'{body}, "{name}": {text}}}'.encode())


def _version(value: dict[str, Any], _name: str) -> st.SearchStrategy[bytes]:
    versions = st.sampled_from(("0", "2", "1.5", '"1"', "null", "[1]", "9" * 30))
    return versions.map(lambda text: _with(value, "v", text))


def _deep(value: dict[str, Any], name: str) -> st.SearchStrategy[bytes]:
    def nested(names: str, pair: tuple[str, str], depth: int) -> bytes:
        return _with(value, names, f"{pair[0] * depth}0{pair[1] * depth}")

    pairs = st.sampled_from((("[", "]"), ('{"a":', "}")))
    return st.builds(nested, st.sampled_from(("args", "spec", "x", name)), pairs, st.integers(260, 9_000))


def _not_text(value: dict[str, Any], _name: str) -> st.SearchStrategy[bytes]:
    body = json.dumps(value)[:-1].encode()
    return st.sampled_from(_NOT_TEXT).map(lambda text: body + b', "x": ' + text + b"}")


def _no_json(_value: dict[str, Any], _name: str) -> st.SearchStrategy[bytes]:
    return st.sampled_from(_NO_JSON) | st.binary(max_size=200).map(lambda data: b"\x80" + data)


def _epoch(value: dict[str, Any], name: str) -> st.SearchStrategy[bytes]:
    if "epoch" not in value:
        return _missing(value, name)
    texts = st.sampled_from(("null", "42", '"x"', "{}", '{"count": 1}', "[]"))
    return texts.map(lambda text: _with(value, "epoch", text))


def _long(value: dict[str, Any], name: str) -> st.SearchStrategy[bytes]:
    return st.integers(30_000, 32_000).map(lambda count: _with(value, name, "[" + "0," * count + "0]"))


def misfits(body: bytes, kind: TopicKind) -> st.SearchStrategy[bytes]:
    """Return what a reader of this kind must refuse, made of a message that it would take."""
    value: dict[str, Any] = json.loads(body)
    ways = (_number, _missing, _twice, _version, _deep, _not_text, _no_json, _epoch, _long)
    return st.one_of([way(value, name) for way in ways for name in _NUMBERS[kind]])


def _with(value: dict[str, Any], name: str, text: str) -> bytes:
    """Return it with the text in the place of a field, as it stands."""
    rest = json.dumps({key: one for key, one in value.items() if key != name})[1:-1]
    return f'{{"{name}": {text}, {rest}}}'.encode()


_IDS = st.from_regex(r"fuzz[0-9a-z-]{8,20}", fullmatch=True)


@st.composite
def command_topics(draw: Draw, device: DeviceId) -> str:
    """Return the topic of a command that nobody has asked for."""
    return f"edgegpu/v1/{device}/down/cmd/{draw(st.sampled_from(_OPS))}/{draw(_IDS)}"


_WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="+#/"), max_size=30)
"""What a broker takes in a topic: no wildcards, no control characters."""


_OTHERS = ("Desired", "desired/", "/desired", "receipts", "cmd", "keys/1", "status")
_NO_OPS = ("K3S.restart", "a.b.c.d", "", ".", "a b", "x" * 25)
_NO_IDS = ("short", "A" * 16, "-" + "a" * 12, "a" * 41, "", "ä" * 9)


def other_topics(device: DeviceId) -> st.SearchStrategy[str]:
    """Return a topic that the box hears, and that is none of the protocol's."""
    base = f"edgegpu/v1/{device}/down"
    return st.one_of(
        st.just(base),
        st.tuples(_WORDS, st.lists(_WORDS, max_size=4)).map(lambda two: "/".join([base, "x" + two[0], *two[1]])),
        st.tuples(st.sampled_from(_NO_OPS), _IDS).map(lambda two: f"{base}/cmd/{two[0]}/{two[1]}"),
        st.sampled_from(_NO_IDS).map(lambda id_: f"{base}/cmd/k3s.restart/{id_}"),
        st.integers(1, 150).map(lambda depth: base + "/x" * depth),
        st.sampled_from(_OTHERS).map(lambda name: f"{base}/{name}"),
    )
