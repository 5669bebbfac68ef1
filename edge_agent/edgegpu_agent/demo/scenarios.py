"""The two scenarios, written once for every bed; which amounts make sense there comes from plan.py."""

from edgegpu_agent.demo.model import Row, Service
from edgegpu_agent.demo.plan import Filling, Pair, Three
from edgegpu_agent.demo.stage import Stage

THREE_SERVICES = "three-services"
TWO_CARDS = "two-cards"
CLOUD = "cloud"


def three_services(stage: Stage, amounts: Filling) -> None:
    """Two services fill most of the cards; a third grows beyond what is left, waits, and shrinks back."""
    stage.run(Service("detector", amounts.first))
    stage.run(Service("tracker", amounts.second))
    stage.run(Service("counter", amounts.third))
    stage.pend(Service("counter", amounts.too_much), f"Insufficient {stage.bed.memory_resource}")
    stage.run(Service("counter", amounts.third))
    stage.clear()


def three_on_two_cards(stage: Stage, amounts: Three) -> None:
    """A small service and two that do not fit on one card together: these two go to two cards."""
    stage.run(Service("counter", amounts.small))
    one = stage.run(Service("detector", amounts.large))
    other = stage.run(Service("tracker", amounts.large))
    stage.apart(one, other)
    stage.clear()


def pairs(stage: Stage, amounts: Pair) -> None:
    """Two services that fill a card share it; with one of them larger they go to two cards."""
    stage.together(*_pair(stage, amounts.small, amounts.small))
    stage.apart(*_pair(stage, amounts.small, amounts.larger))


def _pair(stage: Stage, one: int, other: int) -> tuple[Row, Row]:
    placed = stage.run(Service("reader", one)), stage.run(Service("writer", other))
    stage.clear()
    return placed
