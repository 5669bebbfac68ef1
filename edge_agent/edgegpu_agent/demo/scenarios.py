"""The two scenarios, the same for every cluster; their amounts come from plan.py."""

from edgegpu_agent.demo.model import DemoRow, DemoService
from edgegpu_agent.demo.plan import ServiceAmounts, ServiceSizes, ThreeServices
from edgegpu_agent.demo.stage import DemoStage

THREE_SERVICES = "three-services"
TWO_CARDS = "two-cards"


def three_services(stage: DemoStage, amounts: ServiceAmounts) -> None:
    """Run two services that fill most of the cards, and a third that grows beyond the rest, waits, and shrinks back."""
    stage.run(DemoService("detector", amounts.first))
    stage.run(DemoService("tracker", amounts.second))
    stage.run(DemoService("counter", amounts.third))
    stage.pend(DemoService("counter", amounts.too_much), f"Insufficient {stage.bed.memory_resource}")
    stage.run(DemoService("counter", amounts.third))
    stage.clear()


def three_on_two_cards(stage: DemoStage, amounts: ThreeServices) -> None:
    """Run a small service and two that do not fit on one card together: these two go to two cards."""
    stage.run(DemoService("counter", amounts.small))
    one = stage.run(DemoService("detector", amounts.large))
    other = stage.run(DemoService("tracker", amounts.large))
    stage.apart(one, other)
    stage.clear()


def pairs(stage: DemoStage, amounts: ServiceSizes) -> None:
    """Run two services that fill one card and share it; with one of them larger they go to two cards."""
    stage.together(*_pair(stage, amounts.small, amounts.small))
    stage.apart(*_pair(stage, amounts.small, amounts.larger))


def _pair(stage: DemoStage, one: int, other: int) -> tuple[DemoRow, DemoRow]:
    placed = stage.run(DemoService("reader", one)), stage.run(DemoService("writer", other))
    stage.clear()
    return placed
