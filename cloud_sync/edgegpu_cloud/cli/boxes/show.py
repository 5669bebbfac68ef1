"""`edgegpu-cloud box` as text: the box's identity, its items, its cards, its health."""

import time
from collections.abc import Sequence

import typer

from edgegpu_base.cli.output import counted, one_line
from edgegpu_cloud.cli.common import ago, moment, print_table, standing
from edgegpu_cloud.cli.requests.settlements import SETTING_FIELDS, fix, reports, requested, setting_text, state_word
from edgegpu_cloud.fleet.card_views import CardPiece, UsedMemory, box_cards
from edgegpu_cloud.fleet.history.box_history import MachineChange
from edgegpu_cloud.fleet.preview.capacity import held_units
from edgegpu_cloud.fleet.reports import card_reports, pending_of, read_latest
from edgegpu_cloud.fleet.specs import desired_items
from edgegpu_cloud.fleet.views import BoxDetails, BoxView, is_problem
from edgegpu_cloud.store.records import UNINSTALLED, BoxState
from edgegpu_core.model import size_text
from edgegpu_sync.messages.telemetry import CLOUD, PERSON, RECOVERY, BoxHealth, CardReport
from edgegpu_sync.messages.uplink import ItemReport
from edgegpu_sync.topics import TopicKind


def show_box(details: BoxDetails) -> None:
    """Print a box for people."""
    view, now_s = details.box, time.time()
    typer.echo(f"{view.name}  {view.device}  {standing(view)}, heard {ago(view.seen_at_s, now_s)}")
    times = f", set up {view.enrolment} times" if view.enrolment > 1 else ""
    typer.echo(f"  host {one_line(view.host) or '-'}, enrolled {moment(view.enrolled_at_s)}{times}")
    if view.labels:
        typer.echo(f"  labels {labels_of(view)}")
    versions = ", ".join(one_line(f"{name} {version}") for name, version in view.versions.items() if version)
    typer.echo(f"  {versions or 'it has not connected yet'}")
    settles = ", whose app limits it applies" if view.holder else ""
    typer.echo(f"  cluster {view.cluster or 'not heard yet'}{settles}")
    if view.claim:
        claim = one_line(view.claim)
        typer.echo(f"  it reports the cluster {claim}, which does not count: edgegpu-cloud boxes cluster -h")
    typer.echo(f"  {requested(view)}")
    if view.left == UNINSTALLED and view.state is BoxState.ENROLLED:
        typer.echo(f"  edgegpu was taken off it: edgegpu-cloud boxes forget {view.name}")
    if view.restored:
        typer.echo(f"  it knows more than this store, which came from a backup: edgegpu-cloud confirm {view.name}")
    _show_health(details, now_s)
    _show_items(details)
    _show_cards(details, now_s)
    _show_pods(details, now_s)
    _show_pending(details, now_s)


def labels_of(view: BoxView) -> str:
    """Return a box's labels in a line."""
    return ",".join(f"{key}={value}" for key, value in sorted(view.labels.items())) or "-"


def show_changes(changes: Sequence[MachineChange]) -> None:
    """Print the last changes of a box's machine."""
    rows = [(moment(one.at_s), *map(one_line, (_what(one), _author(one), _result(one)))) for one in changes]
    if rows:
        print_table(("CHANGED", "WHAT", "WHO", "WHAT CAME OF IT"), rows)


def _what(one: MachineChange) -> str:
    told = one.transaction
    if told is None:
        field = SETTING_FIELDS.get(one.item, "")
        asked = setting_text(one.item, one.setting.get(field)) if one.setting else ""
        return " ".join(filter(None, (one.item, asked)))
    return " ".join(filter(None, (told.op, " → ".join(filter(None, (told.before, told.version))))))


def _author(one: MachineChange) -> str:
    told = one.transaction
    if told is None or told.author == CLOUD:
        return one.by or "-"
    person = f"on the box, by {told.user}" if told.user else "on the box"
    return {PERSON: person, RECOVERY: "on the box, by itself"}.get(told.author, told.author)


def _result(one: MachineChange) -> str:
    if one.transaction is not None:
        return ": ".join(filter(None, (one.transaction.result, one.transaction.why)))
    outcome = one.outcome
    return "-" if outcome is None else ": ".join(filter(None, (outcome.state.value, outcome.code, outcome.text)))


def _show_items(details: BoxDetails) -> None:
    told = reports(details, desired_items(details.spec))
    if told:
        rows = [(name, state_word(report), _why(report)) for name, report in told.items()]
        print_table(("REQUESTED", "STATE", "WHY"), rows)
    problems = [(name, report) for name, report in told.items() if report is not None and is_problem(report)]
    if problems:
        typer.echo("Problems")
    for name, report in problems:
        typer.echo(f"  {name}: {_why(report)}")
        typer.echo(f"    {fix(details.box.name, name, report)}")


def _why(report: ItemReport | None) -> str:
    if report is None:
        return "-"
    words = [word for word in (report.code, report.text) if word]
    return ": ".join(words) or "-"


def _show_health(details: BoxDetails, now_s: float) -> None:
    told: BoxHealth | None = read_latest(details.latest, TopicKind.HEALTH)
    if told is None:
        typer.echo("  health: not heard yet")
        return
    typer.echo(f"  health: {told.state}, {ago(details.latest[TopicKind.HEALTH].at_s, now_s)}")
    for part in told.parts:
        if part.state in {"warn", "bad"}:
            typer.echo(f"    {part.name} {part.state}: {one_line(part.text) or '-'}")


def _show_cards(details: BoxDetails, now_s: float) -> None:
    reports = card_reports(details.latest)
    if reports is None:
        typer.echo("  cards: not heard yet")
        return
    cards = reports.inventory.cards
    if not cards:
        typer.echo("  no cards")
        return
    newer = reports.pods_at_s is not None and reports.pods_at_s > reports.cards_at_s
    pods = f", pods {ago(reports.pods_at_s or 0.0, now_s)}" if newer else ""
    typer.echo(f"  cards as reported {ago(reports.cards_at_s, now_s)}{pods}")
    if not reports.inventory.sharing:
        typer.echo("  GPU sharing is off: no units are handed out, and pods that hold some keep them")
        print_table(("CARD", "NAME", "MEMORY"), [(one.label, one.name, f"{one.memory_mib} MiB") for one in cards])
        return
    held = held_units({card.uuid: card.units for card in cards}, reports.pods)
    rows = [
        (card.label, card.name, f"{card.memory_mib} MiB", f"{held.get(card.uuid, 0)} of {card.units}", _state(card))
        for card in cards
    ]
    print_table(("CARD", "NAME", "MEMORY", "UNITS HELD", "STATE"), rows)


def _show_pods(details: BoxDetails, now_s: float) -> None:
    """Print each container's shares of cards, with what it uses of them."""
    found = box_cards(details.latest)
    cards = () if found is None else found.cards
    rows = [
        (
            f"{piece.namespace}/{piece.pod}",
            piece.container,
            card.label or card.uuid,
            str(piece.units),
            str(piece.core),
            _uses(piece),
        )
        for card in cards
        for piece in card.pieces
    ]
    if rows:
        print_table(("POD", "CONTAINER", "CARD", "UNITS", "CORE", "USES"), rows)
    for card in cards:
        for one in card.others:
            whose = f"by {one.owner}, without a share of it" if one.owner else "outside of pods"
            used = f"{_amount(one.used)} used {whose} ({counted(one.used.processes, 'process')})"
            typer.echo(f"  card {card.label or card.uuid}: {used}")
    measured = [card.use_at_s for card in cards if card.use_at_s is not None]
    if measured:
        typer.echo(f"  USES as measured {ago(min(measured), now_s)}")


def _show_pending(details: BoxDetails, now_s: float) -> None:
    """Print the pods without a card, with the box's words for why they have none."""
    found = pending_of(details.latest)
    if found is None:
        return
    listed = found.listed
    if listed is None:
        typer.echo("  pods without a card: its agent does not report them")
        return
    if listed.pods or listed.silent:
        typer.echo(f"  pods without a card, as reported {ago(found.as_of_s, now_s)}")
    if listed.silent:
        typer.echo(f"  the API server is silent, they may be old: {one_line(listed.silent)}")
    rows = [
        (
            f"{pod.namespace}/{pod.name}",
            pod.state,
            ago(pod.created_at, now_s) if pod.created_at else "-",
            ", ".join(f"{counted(one.memory_units, 'unit')} core {one.core}" for one in pod.containers),
            one_line(pod.reason) or "-",
        )
        for pod in listed.pods
    ]
    if rows:
        print_table(("POD", "STATE", "SINCE", "ASKS FOR", "REASON"), rows)
    if listed.more:
        typer.echo(f"  and {counted(listed.more, 'more pod')}")


def _uses(piece: CardPiece) -> str:
    if piece.used is None:
        return "-"
    of = f" of {size_text(piece.usable_mib)}" if piece.usable_mib else ""
    return f"{_amount(piece.used)}{of}{' (over)' if piece.uses_too_much else ''}"


def _amount(used: UsedMemory) -> str:
    return "not reported" if used.memory_mib is None else size_text(used.memory_mib)


def _state(card: CardReport) -> str:
    if card.excluded:
        return "excluded"
    return "healthy" if card.healthy else f"not healthy: {card.text}".removesuffix(": ")
