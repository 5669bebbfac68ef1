"""The run of the scenarios on this box, its outcome, and the steps that runs on all clusters share."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from edgegpu_agent.demo import scenarios
from edgegpu_agent.demo.model import Bed, DemoError, DemoRow
from edgegpu_agent.demo.plan import ServiceAmounts, ServiceSizes, ThreeServices, filling_for, pair_for, three_for
from edgegpu_agent.demo.real import real
from edgegpu_agent.demo.scenarios import THREE_SERVICES, TWO_CARDS
from edgegpu_agent.demo.stage import DemoStage

Say = Callable[[str], None]


@dataclass(slots=True)
class DemoOutcome:
    """The outcome of a demo: results, failures, and scenarios that were left out."""

    rows: list[DemoRow] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def run_real(outcome: DemoOutcome, *, socket: Path, image: str, policy: str, say: Say) -> None:
    """Run the scenarios that this box's cards allow.

    Raises:
        DemoError: no scenario can run here.
    """
    with real(socket=socket, image=image, policy=policy) as bed:
        say(f"on {bed.node}, in namespace {bed.namespace}; it is removed at the end")
        say_cards(bed, say)
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
                run_scenario(make_stage(bed, scenario, outcome, say), amounts)
            except DemoError as error:
                record_failure(outcome, scenario, error, say)
                return  # what this scenario has left would disturb the next one
        if not outcome.rows:
            raise DemoError(f"cannot show anything on {bed.node}: its cards are in use, see `edgegpu status`")


def run_scenario(stage: DemoStage, amounts: ServiceAmounts | ThreeServices | ServiceSizes) -> None:
    """Run the scenario that these amounts are for."""
    match amounts:
        case ServiceAmounts():
            scenarios.three_services(stage, amounts)
        case ThreeServices():
            scenarios.three_on_two_cards(stage, amounts)
        case ServiceSizes():
            scenarios.pairs(stage, amounts)
        case _:
            assert_never(amounts)


def make_stage(bed: Bed, scenario: str, outcome: DemoOutcome, say: Say) -> DemoStage:
    """Return the stage of a scenario; its rows and failures go into the outcome."""
    return DemoStage(
        bed=bed, scenario=scenario, say=say, clock=time.monotonic, rows=outcome.rows, failures=outcome.failures
    )


def say_cards(bed: Bed, say: Say) -> None:
    """Print the cards of a cluster with their free units."""
    for card in bed.status().cards:
        say(f"  card {card.index}  {card.name}  {card.units_free} of {card.units} units free  {card.uuid}")


def record_failure(outcome: DemoOutcome, scenario: str, error: DemoError, say: Say) -> None:
    """Record and print that a scenario cannot go on."""
    text = str(error) if str(error).startswith(scenario) else f"{scenario}: {error}"
    outcome.failures.append(text)
    say(f"  WRONG: {error}")
