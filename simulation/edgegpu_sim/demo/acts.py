"""The acts of the simulated demo, each on an embedded cluster of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgegpu_agent.demo.model import DemoError
from edgegpu_agent.demo.plan import (
    CARD_4G_MIB,
    CARD_8G_MIB,
    CARD_24G_MIB,
    FIELD_FILLING,
    FIELD_PAIR,
    FIELD_THREE,
    ServiceAmounts,
    ServiceSizes,
    ThreeServices,
)
from edgegpu_agent.demo.run import DemoOutcome, Say, make_stage, record_failure, run_scenario, say_cards
from edgegpu_agent.demo.scenarios import THREE_SERVICES, TWO_CARDS
from edgegpu_sim.demo.box import DemoBox
from edgegpu_sim.demo.cloud import CloudScenario, play_cloud
from edgegpu_sim.demo.controller import DemoController, find_mosquitto, missing
from edgegpu_sim.demo.embedded import EmbeddedBed, embedded

CLOUD = "cloud"
_CLOUD_TITLE = "a box and its cloud; an app's limits refused and set; sharing off and on"


@dataclass(frozen=True, slots=True)
class _Act:
    """One act of the simulated demo, on one cluster."""

    scenario: str
    title: str
    memories_mib: tuple[int, ...]
    amounts: ServiceAmounts | ThreeServices | ServiceSizes


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleBox:
    """A box of the console, which belongs to its cloud: where an act is played while people look."""

    bed: EmbeddedBed
    box: DemoBox


def play_in_console(
    outcome: DemoOutcome, boxes: Sequence[ConsoleBox], controller: DemoController, *, with_cloud: bool, say: Say
) -> None:
    """Run every act on the box of a console that has its cards; an act that cannot continue is a failure.

    Args:
        outcome: gets the rows and failures.
        boxes: by act; the cloud's act is played on the first.
        controller: of the boxes.
        with_cloud: whether the cloud's act is played too.
        say: takes lines for people.
    """
    for act, there in zip(_ACTS, boxes, strict=True):
        say(f"\n{act.scenario}, on {there.bed.node}: {act.title}")
        try:
            run_scenario(make_stage(there.bed, act.scenario, outcome, say), act.amounts)
        except DemoError as error:
            record_failure(outcome, act.scenario, error, say)
    if with_cloud:
        there = boxes[0]
        say(f"\n{CLOUD}, on {there.bed.node}: {_CLOUD_TITLE}")
        stage = make_stage(there.bed, CLOUD, outcome, say)
        try:
            CloudScenario(there.bed, stage, controller, there.box, say).play_enrolled(FIELD_FILLING)
        except DemoError as error:
            record_failure(outcome, CLOUD, error, say)


def run_simulated(outcome: DemoOutcome, *, policy: str, with_cloud: bool, say: Say) -> None:
    """Run every act on its own embedded cluster; an act that cannot continue is a failure, and the next begins."""
    for act in _ACTS:
        say(f"\n{act.scenario}: {act.title}")
        try:
            with embedded(act.memories_mib, policy=policy) as bed:
                say_cards(bed, say)
                stage = make_stage(bed, act.scenario, outcome, say)
                for card, mib in zip(bed.status().cards, act.memories_mib, strict=True):
                    right = mib // bed.status().unit_mib
                    stage.expect(card.units == right, f"card {card.index} has {card.units} units, {right} are right")
                run_scenario(stage, act.amounts)
        except DemoError as error:
            record_failure(outcome, act.scenario, error, say)
    if with_cloud:
        _run_cloud(outcome, policy=policy, say=say)


def _run_cloud(outcome: DemoOutcome, *, policy: str, say: Say) -> None:
    """Run the act with a controller, a broker and the agent; if one is missing, say so and leave the act out."""
    mosquitto = find_mosquitto()
    lacking = missing(mosquitto=mosquitto)
    if lacking:
        outcome.skipped.append(f"{CLOUD}: {_CLOUD_TITLE}: {lacking}")
        say(f"\nleft out: {outcome.skipped[-1]}")
        return
    say(f"\n{CLOUD}: {_CLOUD_TITLE}")
    try:
        with embedded((CARD_24G_MIB,), policy=policy) as bed:
            play_cloud(bed, make_stage(bed, CLOUD, outcome, say), FIELD_FILLING, say, mosquitto=mosquitto)
    except DemoError as error:
        record_failure(outcome, CLOUD, error, say)
