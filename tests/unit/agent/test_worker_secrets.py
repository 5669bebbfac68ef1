"""What goes up has no secret in its words, whoever wrote them: acts, settlers, faults, the source of telemetry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from kits.worker import Wire
from kits.workercontroller import RESTART
from kits.workerodd import odd, odd_wire

from edgegpu_agent.actions.redact import HIDDEN, Redactor, redacted_body
from edgegpu_agent.ports import ActionOutcome
from edgegpu_sync.messages.spec import Sharing, Spec
from edgegpu_sync.messages.uplink import Condition
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.states import CommandState

if TYPE_CHECKING:
    from collections.abc import Iterator

PROXY = "http://edge:hunter22@proxy:3128"
TOLD = f"cannot reach {PROXY}: 407"
CLEAN = f"cannot reach http://edge:{HIDDEN}@proxy:3128: 407"


@pytest.fixture
def wire() -> Iterator[Wire]:
    with odd_wire() as wire:
        yield wire


def test_a_result_has_none_in_text_and_data(wire: Wire) -> None:
    data = {"level": "broken", "checks": 7, "troubled": [{"name": "the link", "text": TOLD}], "problem": TOLD}
    odd(wire).act.says = ActionOutcome(state=CommandState.SUCCEEDED, text=TOLD, data=data)  # type: ignore[arg-type]
    id_ = wire.controller.command(RESTART)
    wire.exchange()
    result = wire.controller.results[id_]
    assert result.text == CLEAN
    assert result.data == data | {"troubled": [{"name": "the link", "text": CLEAN}], "problem": CLEAN}


def test_nor_has_a_fault_that_nobody_foresaw(wire: Wire) -> None:
    odd(wire).act.raises = {"token": OSError(TOLD)}
    id_ = wire.controller.command(RESTART)
    wire.exchange()
    assert wire.controller.results[id_].text == f"it cannot be told how things stand: OSError: {CLEAN}"


def test_nor_has_what_is_told_of_an_item(wire: Wire) -> None:
    odd(wire).settler.says = Settlement.rejected("PRECHECK", TOLD)
    wire.controller.desire(Spec(sharing=Sharing(rev=1, installed=True)))
    wire.down += wire.controller.desired_message()
    wire.exchange()
    wire.box.worker.noticed("sharing", (Condition(type="Drifted", text=TOLD),))
    wire.pass_time(10)
    assert wire.controller.reported is not None
    item = wire.controller.reported.items["sharing"]
    assert (item.text, item.conditions) == (CLEAN, (Condition(type="Drifted", text=CLEAN),))


def test_a_cleaned_body_is_the_same_but_for_its_words_and_not_longer() -> None:
    body = {"v": 1, "n": 2.5, "text": "password=ab, ü", "items": {"text": {"name": "a:b", "text": "pw"}}, "name": TOLD}
    written = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    clean = redacted_body(written, redactor=Redactor)
    assert len(clean) <= len(written)
    assert json.loads(clean) == body | {"text": "password=[hidd"}


@pytest.mark.parametrize("body", [b'{"v":1, "name":"x"}', b'{"v":1, "text":"all is well"}'])
def test_a_body_without_a_secret_goes_as_it_was_written(body: bytes) -> None:
    assert redacted_body(body, redactor=Redactor) is body
