"""`edgegpu-cloud box` in words: who it is, its items, its cards, its health."""

import time
from collections.abc import Mapping

import typer

from edgegpu_cloud.cli.common import ago, moment, print_table, standing
from edgegpu_cloud.cli.plain import one_line
from edgegpu_cloud.fleet.views import Details
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_sync.messages import READERS
from edgegpu_sync.telemetry import Alloc, Card, Health, Inventory
from edgegpu_sync.topics import Kind
from edgegpu_sync.up import ItemReport


def show_box(details: Details) -> None:
    """Print a box for people."""
    view, now_s = details.box, time.time()
    typer.echo(f"{view.name}  {view.device}  {standing(view)}, heard {ago(view.seen_at_s, now_s)}")
    typer.echo(f"  enrolment {view.enrolment} of {moment(view.enrolled_at_s)}, host {one_line(view.host) or '-'}")
    versions = ", ".join(one_line(f"{name} {version}") for name, version in view.versions.items() if version)
    typer.echo(f"  {versions or 'no birth was heard yet'}")
    typer.echo(f"  revision {view.rev}, observed {view.observed_rev}, settled {view.applied_rev}")
    if view.restored:
        typer.echo(f"  it knows more than this store, which came from a backup: edgegpu-cloud confirm {view.name}")
    _show_health(details, now_s)
    if view.items:
        print_table(
            ("ITEM", "STATE", "REV", "WHY"),
            [(name, item.state.value, str(item.rev), _why(item)) for name, item in sorted(view.items.items())],
        )
    _show_cards(details)


def _why(item: ItemReport) -> str:
    words = [word for word in (item.code, item.text) if word]
    return ": ".join([*words]) or "-"


def _show_health(details: Details, now_s: float) -> None:
    latest = details.latest.get(Kind.HEALTH)
    if latest is None:
        typer.echo("  health: not heard yet")
        return
    told: Health = READERS[Kind.HEALTH].validate_python(latest.body, strict=False)
    typer.echo(f"  health: {told.state}, {ago(latest.at_s, now_s)}")
    for part in told.parts:
        if part.state in {"warn", "bad"}:
            typer.echo(f"    {part.name} {part.state}: {one_line(part.text) or '-'}")


def _show_cards(details: Details) -> None:
    latest = details.latest.get(Kind.INVENTORY)
    if latest is None:
        typer.echo("  cards: not heard yet")
        return
    told: Inventory = READERS[Kind.INVENTORY].validate_python(latest.body, strict=False)
    if not told.cards:
        typer.echo("  no cards")
        return
    held = _held(details, {card.uuid: card.units for card in told.cards})
    rows = [
        (card.label, card.name, f"{card.memory_mib} MiB", f"{held.get(card.uuid, 0)} of {card.units}", _state(card))
        for card in told.cards
    ]
    print_table(("CARD", "NAME", "MEMORY", "UNITS HELD", "STATE"), rows)


def _held(details: Details, units: Mapping[str, int]) -> dict[str, int]:
    """Return how many units of each card are held; who has a whole card holds all of them."""
    latest = details.latest.get(Kind.ALLOC)
    held: dict[str, int] = {}
    if latest is not None:
        told: Alloc = READERS[Kind.ALLOC].validate_python(latest.body, strict=False)
        for piece in (piece for pod in told.pods.values() for piece in pod.pieces):
            mine = units.get(piece.card, 0) if piece.core >= CORE_PER_CARD else piece.memory_units
            held[piece.card] = held.get(piece.card, 0) + mine
    return held


def _state(card: Card) -> str:
    if card.excluded:
        return "excluded"
    return "healthy" if card.healthy else f"not healthy: {card.text}".removesuffix(": ")
