"""The output of `edgegpu status` in a terminal."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from edgegpu_agent.cli.clients.document import API, KUBELET, CardRow, NodeRow, OtherCard, PodRow, StatusDocument
from edgegpu_agent.cli.views.bars import BROKEN, FREE, UNKNOWN, BarPiece, PodLetter, holders, pieces, widths
from edgegpu_agent.cli.views.isolation import holds_any
from edgegpu_agent.cli.views.silence import silence_lines
from edgegpu_base.cli.output import counted
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_core.reasons import start_wait_words

_Say = Callable[..., None]

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")
_LEAST_BAR = 10
_WAITING = "waiting"
_HELD = "held"
_TROUBLES = {
    "refused": "refused",
    "lost": "its card is gone",
    "cardless": "runs without its card",
    "unrecorded": "kubelet has no record of it",
    "unknown": "what its pod does is not known yet",
}


def show(document: StatusDocument, problems: Sequence[str], console: Console, letters: Mapping[str, str]) -> None:
    """Print the head, each card with its holders, pods that have no card yet, other nodes, and the problems.

    `letters` has the letter of each pod that has a card, by UID.
    """

    def say(text: Text | str = "", indent: int = 0) -> None:
        if console.is_terminal:
            console.print(Padding(text, (0, 0, 0, indent)))
        else:  # the reader of a pipe wants whole lines
            console.print(Text(" " * indent).append(text), soft_wrap=True)

    for line in _head(document):
        say(line)
    known = holders(document.pods, letters)
    is_silent = any(one.name == KUBELET for one in document.silent)
    for card in document.cards:
        say()
        held = pieces(card, document.pods, known)
        say(_card_head(card))
        for line in _bar(card, held, console.width):
            say(line, 2)
        for piece in held:
            say(_holder(piece, silent=is_silent), 2)
    for other in document.other_cards:
        rows = [row for row in document.pods if any(ref.uuid == other.uuid for ref in row.cards)]
        _section(say, _other_head(other), [_row(row, known[row.uid]) for row in rows])
    if document.has_cards and not document.cards:
        say()
        say("no card is offered")
    _section(say, "waiting for a card", [_without_card(row) for row in document.pods if _is_waiting(row)])
    _section(say, "Pending", [line for row in document.pending for line in _pending(row)])
    if document.pending_more:
        say(f"and {counted(document.pending_more, 'more pod')}", 2)
    _section(say, "silent", [Text(line, style="yellow") for line in silence_lines(document)])
    _section(say, "nodes", [_node(node) for node in document.nodes])
    _section(say, "Problems", [Text(line, style="red") for line in problems])


def _section(say: _Say, title: str | Text, lines: Sequence[Text]) -> None:
    if lines:
        say()
        say(title if isinstance(title, Text) else Text(title, style="bold"))
        for line in lines:
            say(line, 2)


def _head(document: StatusDocument) -> Iterator[Text]:
    unit = f"1 unit = {document.unit_mib} MiB"
    policy = f"policy {document.policy}" if document.policy else ""
    parts = [document.role, f"edgegpu {document.version}", policy, unit if document.has_cards else ""]
    yield Text(document.node, style="bold").append("  " + "  ".join(filter(None, parts)), style="not bold")
    if document.has_cards:
        yield _fact("driver", document.driver_version or "unknown", document.driver_problem)
        why = f" ({document.injection_why})" if document.injection_why else ""
        yield _fact("injection", f"{document.injection_mode or 'unknown'}{why}")
        if holds_any(document):
            yield _fact("isolation", document.isolation, document.isolation_problem)
            yield _fact("self-test", *_selftest(document))
        took = "" if document.registered_ms is None else f" in {document.registered_ms:.0f} ms"
        waiting = "" if document.registered else f"waiting for {document.waiting_for or 'kubelet'}"
        yield _fact("kubelet", f"registered{took}" if document.registered else "not registered", waiting)
        if (wait := document.start_wait) is not None:
            yield _fact("start", f"kubelet waits for the devices: {start_wait_words(wait.waits, wait.why)}")
    is_silent = any(one.name == API for one in document.silent)
    connected = "silent" if is_silent and document.api_synced else "connected"
    yield _fact("API", connected if document.api_synced else "not connected yet", document.api_problem)
    yield _extender(document)


def _selftest(document: StatusDocument) -> tuple[str, str]:
    """Return what the self-test says of all cards in one word, and what is wrong where it does not vouch for one.

    A driver that is newer than the limiter's list, or whose pointers are not its symbols, is named too, once: the cards
    have one driver.
    """
    found = document.selftest
    if found.running or not found.cards:
        return ("runs" if found.running else "not run yet"), ""
    notes = sorted({note for one in found.cards for note in (one.newer_driver, one.by_name) if note})
    wrong = [one for one in found.cards if one.verdict != "passed"]
    if not wrong:
        lacking = ", ".join(sorted({name for one in found.cards for name in one.not_tried}))
        return f"passed (not tried: {lacking})" if lacking else "passed", "; ".join(notes)
    reasons = [f"card {one.index}: {one.reason}" for one in wrong if one.reason]
    return wrong[0].verdict or "not run yet", "; ".join([*reasons, *notes])


def _extender(document: StatusDocument) -> Text:
    extender = document.extender
    if extender is None:
        return _fact("extender", "none on this node: pods are placed by the servers of the cluster")
    insecure = "" if not extender.insecure else ", insecure: any process of this box may call it"
    return _fact("extender", f"{extender.listen}{insecure}", "" if extender.healthy else "nothing answers there")


def _fact(name: str, text: str, problem: str = "") -> Text:
    line = Text(f"{name:<10} ", style="dim").append(text, style="not dim")
    return line.append(f": {problem}", style="not dim red") if problem else line


def _card_head(card: CardRow) -> Text:
    line = Text(f"card {card.index}", style="bold").append(f"  {card.name}  {card.uuid}", style="not bold")
    if not card.healthy:
        return line.append("  out of order", style="not bold red")
    return line if card.watched else line.append("  errors not watched", style="not bold dim")


def _bar(card: CardRow, held: Sequence[BarPiece], width: int) -> Iterator[Text]:
    if card.healthy:
        yield Text(f"{card.units_free} of {card.units} units free, core {card.core_free} of {CORE_PER_CARD} free")
    else:
        yield Text(f"{counted(card.units, 'unit')}, none of them offered now")
    room = max(_LEAST_BAR, width - len("  []"))
    bar, taken = Text("["), 0
    for piece, length in zip(held, widths((piece.units for piece in held), card.units, room), strict=True):
        bar.append(_letter(piece) * length, style=_style(piece))
        taken += length
    rest = min(card.units, room) - taken
    yield bar.append((FREE if card.healthy else BROKEN) * rest, style="dim").append("]")
    if card.units > room:
        yield Text(f"one character is about {card.units / room:.1f} units", style="dim")


def _holder(piece: BarPiece, *, silent: bool = False) -> Text:
    """Return the line of a piece; `silent`: kubelet does not answer, so nobody knows what it has freed since."""
    line = (
        Text()
        .append(_letter(piece), style=_style(piece))
        .append(f"  {piece.units:>4} {'unit ' if piece.units == 1 else 'units'}  ")
    )
    if piece.holder is None:
        return line.append("in use; by which pod is not known yet")
    line.append(f"core {piece.core:<3}  {piece.holder.name}  {', '.join(piece.containers)}")
    if piece.state == _WAITING:
        return line.append("  waiting for kubelet", style="yellow")
    if piece.state == _HELD and silent:
        return line.append(
            "  its pod is gone; kubelet is silent: whether it has freed the units is not known", "yellow"
        )
    if piece.state == _HELD:
        return line.append("  its pod is gone; kubelet has not freed the units yet", style="yellow")
    return line.append(f"  {_TROUBLES[piece.state]}", style="red") if piece.state in _TROUBLES else line


def _other_head(card: OtherCard) -> Text:
    line = Text(f"card {card.index}", style="bold").append(f"  {card.name}  {card.uuid}", style="not bold")
    if card.gone:
        return line.append("  gone", style="not bold red")
    return line.append("  not offered; its pods count against the other cards", style="not bold")


def _row(row: PodRow, holder: PodLetter) -> Text:
    """Return the line of a container on a card that has no bar."""
    return _holder(BarPiece(holder, row.units, row.core, (row.container,), row.state))


def _letter(piece: BarPiece) -> str:
    return UNKNOWN if piece.holder is None else piece.holder.letter


def _style(piece: BarPiece) -> str:
    holder: PodLetter | None = piece.holder
    return "dim" if holder is None else f"bold {_COLOURS[holder.number % len(_COLOURS)]}"


def _is_waiting(row: PodRow) -> bool:
    return not row.cards and row.state == _WAITING


def _without_card(row: PodRow) -> Text:
    asks = f"{counted(row.units, 'unit')}  core {row.core}"
    return Text(f"{row.full_name}  {row.container}  {asks}  {row.phase}  {row.reason}".rstrip())


def _pending(row: PodRow) -> Iterator[Text]:
    yield Text(f"{row.full_name}  {row.container}  {counted(row.units, 'unit')}  core {row.core}")
    yield Text(f"  {row.reason}", style="yellow")


def _node(node: NodeRow) -> Text:
    return Text(f"{node.name}  {counted(node.cards, 'card')}  {node.units_free} of {node.units} units free")
