"""`edgegpu selftest`: try the limiter on this box's cards."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from edgegpu_agent.cli.clients.document import SelftestCard, StatusDocument
from edgegpu_agent.cli.clients.plugin import ask_selftest, fetch_status, find_socket
from edgegpu_agent.cli.common import (
    EXIT_WRONG,
    CliError,
    ConfigOption,
    JsonOption,
    SocketOption,
    print_json,
    reporting,
    sayer,
)
from edgegpu_agent.cli.views.isolation import holds_any
from edgegpu_core.reasons import BY_NAME_REMEDY, NEWER_DRIVER_REMEDY

JSON_VERSION = 1

_LOOK_S = 0.3
_MOST_S = 900.0
"""More than two runs take at most; what is red is tried twice."""

HELP = """\
Try the limiter on this box's cards, and say whether it holds there.

For each card a small program takes a CUDA context and up to 128 MiB for a moment, first without the limiter, then with
it and a limit that leaves room for three allocations of four. It takes memory in five ways, one of them a graph's, and
by the functions that cuGetProcAddress gives, as CUDA's runtime does; it asks how much there is, and a second program
tries meanwhile. It loads a module and runs its kernel, a tenth of a second by the card's timer, which a compute limit
of 20 percent has to make at least twice as long. Each function that the limiter stands in is looked up in the ways of
programs, which has to find the limiter's. What does not work without the limiter either is not tried, and
named. So is a driver that is newer than the limiter's list of functions, which changes nothing for containers. A card
with less than 768 MiB free is left alone. That takes some seconds for each card. The plugin does the same by itself
once for each driver and version of edgegpu, where isolation.mode is limiter.

\b
What follows for containers:
  passed        they are `enforced`
  loose         a limit did not hold: they keep the limiter, and are `degraded`
  harmful       a program that works without the limiter does not with it: new containers get none, and are `degraded`
  inconclusive  nothing can be said: they have the limiter, and are `degraded` until it can

\b
Examples:
  sudo edgegpu selftest
  sudo edgegpu selftest --last
  sudo edgegpu selftest --json | jq '.cards[] | {index, verdict, context_mib}'

Exit status: 0 it passed on each card, 1 not.

\b
--json: {"v": 1, "node", "isolation": TEXT, "cards": [{"index", "card": UUID, "verdict": as above or "" for none yet,
  "reason", "remedy": TEXT, "at_s", "context_mib", "native_us", "held_us": NUMBER or null,
  "native_work_us", "held_work_us", "core_percent": NUMBER or null, "granted": {WAY: NUMBER of four},
  "not_tried": {WAY, "kernel", "compute" or "count": why, TEXT}, "cuda_version": NUMBER (12060: 12.6) or null,
  "newer_driver": TEXT, "" where the limiter's list has the functions of that version,
  "by_name": TEXT, for which functions the limiter goes by name since the driver's pointers are not its symbols}]}
"""

LastOption = Annotated[bool, typer.Option("--last", help="Show what was found last, and try nothing.")]

_FOLLOWS = {
    "passed": "containers are held to their shares",
    "loose": "containers keep the limiter, and are degraded",
    "harmful": "new containers get no limiter, and are degraded",
    "inconclusive": "containers have the limiter, and are degraded until it can say",
    "": "it has not been tried on this card",
}


def selftest(
    *,
    last: LastOption = False,
    json: JsonOption = False,
    socket: SocketOption = None,
    config: ConfigOption = None,
) -> None:
    """Try the limiter on this box's cards."""
    with reporting(as_json=json):
        path = find_socket(socket, config)
        if not last:
            sayer(as_json=True)("trying the limiter on each card, first without it and then with it")
        document = fetch_status(path) if last else _run(path)
        if json:
            names = {"v": JSON_VERSION, "node": document.node, "isolation": document.isolation}
            print_json({**names, "cards": [asdict(one) for one in document.selftest.cards]})
        else:
            for line in _lines(document):
                typer.echo(line)
    if not document.selftest.cards or any(one.verdict != "passed" for one in document.selftest.cards):
        raise typer.Exit(EXIT_WRONG)


def _run(path: Path) -> StatusDocument:
    """Have the plugin run it, and return the status after its end."""
    before = ask_selftest(path)
    end_s = time.monotonic() + _MOST_S
    while time.monotonic() < end_s:
        document = fetch_status(path)
        if document.selftest.ended != before and not document.selftest.running:
            if document.selftest.error:
                raise CliError(
                    f"cannot try the limiter: {document.selftest.error}", remedy="edgegpu doctor names what is wrong"
                )
            return document
        time.sleep(_LOOK_S)
    raise CliError(f"cannot say whether the limiter holds: no end in {_MOST_S:g} s", remedy="does nvidia-smi answer?")


def _lines(document: StatusDocument) -> Iterator[str]:
    names = {card.uuid: card.name for card in document.cards}
    for one in document.selftest.cards:
        yield f"card {one.index}  {names.get(one.card, one.card)}  {one.verdict or 'not tried'}"
        yield from (f"  {line}" for line in _about(one, is_on=holds_any(document)))
    if not document.selftest.cards:
        yield "no card is offered"


def _about(one: SelftestCard, *, is_on: bool) -> Iterator[str]:
    if one.reason:
        yield one.reason
    if one.verdict == "passed":
        yield f"held within the limit: {', '.join(one.granted)}, and a second program"
    if one.context_mib is not None:
        yield f"a CUDA context counts {one.context_mib} MiB"
    if one.native_us is not None and one.held_us is not None:
        yield f"the first CUDA call took {one.native_us / 1000:.1f} ms, with the limiter {one.held_us / 1000:.1f} ms"
    if one.native_work_us is not None and one.held_work_us is not None:
        with_it = f"with a compute limit of {one.core_percent} percent {one.held_work_us / 1000:.1f} ms"
        yield f"a row of kernels took {one.native_work_us / 1000:.1f} ms, {with_it}"
    yield from (f"not tried: {name}: {why}" for name, why in one.not_tried.items())
    if one.newer_driver:
        yield f"{one.newer_driver}: {NEWER_DRIVER_REMEDY}"
    if one.by_name:
        yield f"{one.by_name}: {BY_NAME_REMEDY}"
    yield _FOLLOWS.get(one.verdict, "") if is_on else "isolation.mode is none: no container has the limiter"
    if one.remedy:
        yield f"to do: {one.remedy}"
