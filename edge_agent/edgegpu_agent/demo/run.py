"""Runs the acts, one after the other, on the bed that was asked for."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from edgegpu_agent.demo import scenarios
from edgegpu_agent.demo.model import Bed, DemoError, DemoRow
from edgegpu_agent.demo.plan import (
    CARD_4G_MIB,
    CARD_8G_MIB,
    CARD_24G_MIB,
    FIELD_FILLING,
    FIELD_PAIR,
    FIELD_THREE,
    Filling,
    ServiceSizes,
    Three,
    filling_for,
    pair_for,
    three_for,
)
from edgegpu_agent.demo.real import real
from edgegpu_agent.demo.scenarios import CLOUD, THREE_SERVICES, TWO_CARDS
from edgegpu_agent.demo.stage import DemoStage
from edgegpu_sim.demo.cloud import play_cloud
from edgegpu_sim.demo.controller import find_mosquitto, missing
from edgegpu_sim.demo.embedded import embedded

Say = Callable[[str], None]


@dataclass(slots=True)
class DemoOutcome:
    """What was seen; without failures everything was as it should be."""

    rows: list[DemoRow] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Act:
    """One cluster's worth of the simulated demo."""

    scenario: str
    title: str
    memories_mib: tuple[int, ...]
    amounts: Filling | Three | ServiceSizes


_ACTS = (
    _Act(
        THREE_SERVICES,
        "one card; services of 50, 40 and 1 units; the third grows to 10 and back",
        (CARD_24G_MIB,),
        FIELD_FILLING,
    ),
    _Act(
        TWO_CARDS,
        "two cards; services of 4, 20 and 20 units",
        (CARD_8G_MIB, CARD_8G_MIB),
        FIELD_THREE,
    ),
    _Act(
        TWO_CARDS,
        "two cards; 2 GiB and 2 GiB share one, 2 GiB and 3 GiB take two",
        (CARD_4G_MIB, CARD_4G_MIB),
        FIELD_PAIR,
    ),
)


def run_simulated(outcome: DemoOutcome, *, policy: str, with_cloud: bool, say: Say) -> None:
    """Run every act on an embedded cluster of its own; what cannot go on is a failure, and the next act begins."""
    for act in _ACTS:
        say(f"\n{act.scenario}: {act.title}")
        try:
            with embedded(act.memories_mib, policy=policy) as bed:
                _say_cards(bed, say)
                stage = _stage(bed, act.scenario, outcome, say)
                for card, mib in zip(bed.status().cards, act.memories_mib, strict=True):
                    right = mib // bed.status().unit_mib
                    stage.expect(card.units == right, f"card {card.index} has {card.units} units, {right} are right")
                _play(stage, act.amounts)
        except DemoError as error:
            _give_up(outcome, act.scenario, error, say)
    if with_cloud:
        _run_cloud(outcome, policy=policy, say=say)


def _run_cloud(outcome: DemoOutcome, *, policy: str, say: Say) -> None:
    """Run the act with a controller, a broker and the agent; it is left out, and said, where they are not here."""
    title = "a box and its cloud; an app's limits refused and set; sharing off and on"
    mosquitto = find_mosquitto()
    lacking = missing(mosquitto=mosquitto)
    if lacking:
        outcome.skipped.append(f"{CLOUD}: {title}: {lacking}")
        say(f"\nleft out: {outcome.skipped[-1]}")
        return
    say(f"\n{CLOUD}: {title}")
    try:
        with embedded((CARD_24G_MIB,), policy=policy) as bed:
            play_cloud(bed, _stage(bed, CLOUD, outcome, say), FIELD_FILLING, say, mosquitto=mosquitto)
    except DemoError as error:
        _give_up(outcome, CLOUD, error, say)


def run_real(outcome: DemoOutcome, *, socket: Path, image: str, policy: str, say: Say) -> None:
    """Run the acts that this box's cards allow.

    Raises:
        DemoError: none can be run here.
    """
    with real(socket=socket, image=image, policy=policy) as bed:
        say(f"on {bed.node}, in namespace {bed.namespace}; it is removed at the end")
        _say_cards(bed, say)
        cards = bed.status().cards
        filling, three, pair = filling_for(cards), three_for(cards), pair_for(cards)
        acts = (
            (THREE_SERVICES, "two services, and a third that outgrows the node", filling),
            (TWO_CARDS, "two services that do not fit on one card together", three),
            (TWO_CARDS, "a pair that shares a card, and one that does not", pair),
        )
        for scenario, title, amounts in acts:
            if amounts is None:
                outcome.skipped.append(f"{scenario}: {title}: the cards of this box have not the room for it now")
                say(f"\nleft out: {outcome.skipped[-1]}")
                continue
            say(f"\n{scenario}: {title}; for the room on these cards: {amounts}")
            try:
                _play(_stage(bed, scenario, outcome, say), amounts)
            except DemoError as error:
                _give_up(outcome, scenario, error, say)
                return  # what is left of this act would be in the next one's way
        if not outcome.rows:
            raise DemoError(f"cannot show anything on {bed.node}: its cards are in use, see `edgegpu status`")


def _play(stage: DemoStage, amounts: Filling | Three | ServiceSizes) -> None:
    match amounts:
        case Filling():
            scenarios.three_services(stage, amounts)
        case Three():
            scenarios.three_on_two_cards(stage, amounts)
        case ServiceSizes():
            scenarios.pairs(stage, amounts)
        case _:
            assert_never(amounts)


def _stage(bed: Bed, scenario: str, outcome: DemoOutcome, say: Say) -> DemoStage:
    return DemoStage(
        bed=bed, scenario=scenario, say=say, clock=time.monotonic, rows=outcome.rows, failures=outcome.failures
    )


def _say_cards(bed: Bed, say: Say) -> None:
    for card in bed.status().cards:
        say(f"  card {card.index}  {card.name}  {card.units_free} of {card.units} units free  {card.uuid}")


def _give_up(outcome: DemoOutcome, scenario: str, error: DemoError, say: Say) -> None:
    text = str(error) if str(error).startswith(scenario) else f"{scenario}: {error}"
    outcome.failures.append(text)
    say(f"  WRONG: {error}")
