"""docs/mqtt-api.md: its examples are messages, its signatures verify, and its tables name all that the code has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from edgegpu_sync.errors import RefusalReason
from edgegpu_sync.keys import KeyRing, key_id
from edgegpu_sync.messages.downlink import Desired, Keys, RefreshRequest
from edgegpu_sync.messages.readers import read
from edgegpu_sync.messages.spec import MAX_APP_LIMITS, Spec, asked
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.rules.commands import MOST_ATTEMPTS
from edgegpu_sync.rules.ops import OPS
from edgegpu_sync.rules.outbox import OutboxSizes
from edgegpu_sync.rules.replay_guard import MEMORY, WINDOW
from edgegpu_sync.rules.settle import MOST_TRIES
from edgegpu_sync.rules.tracking import QUIET_S, RESEND_S
from edgegpu_sync.signing import open_down
from edgegpu_sync.states import CommandState, ResultCode
from edgegpu_sync.topics import PLAIN_KINDS, TopicKind, parse
from edgegpu_sync.wire import RESULT_MAX_BYTES, WIRE_MAX_BYTES

TEXT = (Path(__file__).resolve().parents[3] / "docs/mqtt-api.md").read_text(encoding="utf-8")
PROSE = " ".join(TEXT.split())
EXAMPLES: list[tuple[TopicKind, str]] = [
    (TopicKind(name), body) for name, body in re.findall(r"```json (\S+)\n(.*?)```", TEXT, re.DOTALL)
]


def missing(example: Any, model: Any, path: str = "") -> list[str]:  # noqa: ANN401
    """Return what stands in the example and not in what the model made of it."""
    match example, model:
        case dict(), dict():
            return [
                line for key in example for line in missing(example[key], model.get(key, "nothing"), f"{path}.{key}")
            ]
        case list(), list() if len(example) == len(model):
            return [line for place, one in enumerate(example) for line in missing(one, model[place], f"{path}.{place}")]
        case _:
            return [] if example == model else [f"{path}: {example!r} is read as {model!r}"]


@pytest.mark.parametrize(("kind", "body"), EXAMPLES, ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(EXAMPLES)])
def test_every_example_is_a_message_and_each_of_its_fields_is_known(kind: TopicKind, body: str) -> None:
    message = read(kind, body.encode())
    assert not missing(json.loads(body), json.loads(message.model_dump_json()))


def test_there_is_an_example_of_every_kind() -> None:
    assert {kind for kind, _ in EXAMPLES} == set(TopicKind)


def test_the_desired_example_shows_every_item() -> None:
    message = next(read(kind, body.encode()) for kind, body in EXAMPLES if kind is TopicKind.DESIRED)
    assert isinstance(message, Desired)
    assert message.spec.keys() == Spec.model_fields.keys() - {"critical"}
    assert not [one for one in asked(message.spec, message.rev) if one.item is None]
    assert [one.name.partition("/")[0] for one in asked(message.spec, message.rev)] == first_cells("item")


def test_the_signed_example_verifies_under_its_topic_with_the_keys_of_the_example() -> None:
    found = re.search(r"controller\s`(\S+?)`.*?on\s`(\S+?)`.*?```payload\n(.*?)\n```", TEXT, re.DOTALL)
    assert found is not None
    public, topic, payload = found.groups()
    chain = next(read(kind, body.encode()) for kind, body in EXAMPLES if kind is TopicKind.KEYS)
    assert isinstance(chain, Keys)
    ring = KeyRing.pinned(json.loads(chain.chain[0].set)["root"]).follow(chain.chain)
    assert (ring.version, ring.public(key_id(public))) == (2, public)
    address = parse(topic)
    assert read(TopicKind.COMMAND, open_down(address, payload.encode(), me=address.device, ring=ring))


def first_cells(head: str) -> list[str]:
    """Return the names in the first column of the table with this heading."""
    table = re.search(rf"^\| {head} \|.*\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert table is not None, head
    return [name for row in table[1].splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def test_the_topics_are_those_of_the_code() -> None:
    shown = {text.replace("edgegpu/v1/{device}/", "") for text in first_cells("topic")}
    assert shown == {*PLAIN_KINDS, "down/cmd/{op}/{id}", "up/cmd/{id}"}
    for row in re.findall(r"^\| `edgegpu/v1/\{device\}/(\w+/\w+)\S*` \| 1 \| (yes|no) \|", TEXT, re.MULTILINE):
        assert TopicKind(row[0]).retained == (row[1] == "yes")


def test_the_tables_name_all_that_the_code_has() -> None:
    assert set(first_cells("code")) == set(ResultCode)
    assert set(first_cells("name")) == set(RefusalReason)
    assert first_cells("settlement") == list(ItemState)
    assert all(state in TEXT for state in CommandState)


def test_each_op_stands_with_how_it_is_settled_and_its_arguments() -> None:
    assert first_cells("op") == list(OPS)
    for name, op in OPS.items():
        row = re.search(rf"^\| `{name}` \|(.*)\|(.*)\|(.*)\|$", TEXT, re.MULTILINE)
        assert row is not None
        assert set(re.findall(r"`(\w+)`", row[1])) == op.args.model_fields.keys() - {"critical"}
        assert row[2].strip().startswith(op.settling)
        assert row[3].strip() == op.proof


def test_the_figures_are_those_of_the_code() -> None:
    for figure in (WIRE_MAX_BYTES, RESULT_MAX_BYTES, WINDOW, MEMORY, OutboxSizes().refusals):
        assert f"{figure:,}".replace(",", " ") in PROSE
    assert f"at most {MAX_APP_LIMITS} apps" in PROSE
    assert f"{OutboxSizes().results} in all" in PROSE
    assert "10, 20, 40, 80, 160 and then every 300 s" in PROSE
    assert RESEND_S == (10, 20, 40, 80, 160, 300)
    assert f"after {QUIET_S} s of silence" in PROSE
    assert MOST_ATTEMPTS == MOST_TRIES == 3
    assert all(f"`{want}`" in TEXT for want in RefreshRequest)
