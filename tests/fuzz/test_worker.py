"""A controller that has gone wrong: odd messages under its own good signature; the worker takes or refuses each."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest
from fuzz import seeds
from fuzz.mutate import mutated
from kits.worker import Wire, fast_folder, wired
from kits.workercontroller import DEVICE

from edgegpu_sync.topics import TopicKind, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

_EACH = 150


@pytest.fixture
def wire() -> Iterator[Wire]:
    with fast_folder() as folder:
        wire = wired(folder)
        yield wire
        wire.box.crash()


def odd(wire: Wire, kind: TopicKind, number: int) -> bytes:
    """Return a body that is new to the box, with something odd in it: of a document in its spec, else anywhere."""
    known = seeds.commands() if kind is TopicKind.COMMAND else seeds.bodies(kind)
    plain = json.loads(known[number % len(known)])
    if kind is TopicKind.DESIRED:
        spec = mutated(json.dumps(plain["spec"]).encode(), number)
        assert spec is not None
        return b'{"v":1,"enrolment":3,"rev":%d,"spec":%s}' % (number + 1, spec)
    epoch = {"count": wire.box.worker.status().epoch, "nonce": f"{wire.box.epochs:016x}"}
    body = mutated(json.dumps(plain | {"epoch": epoch, "seq": number + 1, "floor": 0}).encode(), number)
    assert body is not None
    return body


@pytest.mark.parametrize("kind", [TopicKind.DESIRED, TopicKind.COMMAND, TopicKind.RECEIPT])
def test_odd_messages_that_are_well_signed_end_nothing(
    wire: Wire, kind: TopicKind, caplog: pytest.LogCaptureFixture
) -> None:
    taken = 0
    for number in range(_EACH):
        body = odd(wire, kind, number)
        tail = f"/k3s.restart/odd0{number:08}" if kind is TopicKind.COMMAND else ""
        topic = parse(f"edgegpu/v1/{DEVICE}/{kind}{tail}")
        before = sum(wire.box.worker.status().refused.values())
        wire.box.arrive(str(topic), wire.controller.signer.seal(topic, body[:60_000]))
        wire.box.settle()
        wire.box.deliver()
        taken += sum(wire.box.worker.status().refused.values()) == before
    assert taken > _EACH // 5, "all were refused: nothing was looked at"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert len(wire.box.link.acked) >= _EACH


@pytest.mark.parametrize("spec", [{"app_limits": [0] * 20_000}, {"critical": [f"{n:x}" for n in range(7_000)]}])
def test_a_document_of_thousands_of_items_is_answered(wire: Wire, spec: dict[str, object]) -> None:
    topic = parse(f"edgegpu/v1/{DEVICE}/{TopicKind.DESIRED}")
    body = json.dumps({"v": 1, "enrolment": 3, "rev": 9, "spec": spec}).encode()
    wire.box.arrive(str(topic), wire.controller.signer.seal(topic, body))
    wire.exchange()
    assert wire.box.worker.status().observed_rev == wire.box.worker.status().applied_rev == 9
