"""`edgegpu-cloud rollouts`: one change for many boxes, in waves; started, seen, paused, resumed, aborted."""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from pydantic import ValidationError

from edgegpu_base.cli.durations import seconds, waiting_s
from edgegpu_base.cli.helptext import command_group, put
from edgegpu_base.cli.output import counted
from edgegpu_cloud.cli.arguments import AppArgument, ContainerOption, PreviewOption, app_of, check_expected
from edgegpu_cloud.cli.common import (
    DEFAULT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_WAITING,
    Cloud,
    FolderOption,
    JsonOption,
    ago,
    answer,
    confirm,
    moment,
    print_connection_problem,
    print_json,
    print_json_line,
    print_list,
    print_table,
    reached,
    reporting,
    say,
)
from edgegpu_cloud.cli.requests.limits import (
    CoreOption,
    ForceOption,
    InterruptOption,
    MemoryOption,
)
from edgegpu_cloud.cli.requests.operations import print_steps_back
from edgegpu_cloud.cli.requests.rollout_fit import print_fits, print_steps
from edgegpu_cloud.cli.requests.rollout_options import OPTIONS_HELP, Asked, with_rollout_options
from edgegpu_cloud.cli.requests.sharing import ExcludeOption, IsolationOption, PolicyOption, UnitOption
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.fleet.specs import LimitsPatch, SharingSettings
from edgegpu_cloud.numbers import LARGEST
from edgegpu_cloud.rollouts.changes import RolloutChange
from edgegpu_cloud.rollouts.rollouts import RolloutPlan, RolloutRequest
from edgegpu_cloud.rollouts.views import RolloutView
from edgegpu_cloud.rollouts.way_back import WayBack
from edgegpu_cloud.store.rollouts.records import RolloutBoxRecord, RolloutBoxState, RolloutState
from edgegpu_sync.faults import first_fault
from edgegpu_sync.rules.ops import UpgradeArgs

app = command_group("Change many boxes in waves: limits of an app, settings of sharing, or the agent's version.")
_start = command_group("Start a rollout.")

_EXITS = """\
--preview shows the waves and starts nothing. --wait follows it to its end, for at most --timeout.
Exit status: 0 started, 1 refused. With --wait: 0 DONE and no box has failed, 1 another end, 3 not ended in that time.
--json prints {"number", "words", "state", "reason", "wave", "waves": [{"name", "boxes", "states"}], "states", ...};
with --preview {"words", "boxes", "waves": [{"name", "size", "boxes": [...]}], "notes": [TEXT], "seen": TOKEN,
"steps": of limits {"steps": [{"before": {"memory_units", "core"}, "after": the same or null where boxes refuse it,
"boxes"}], "not_asked", "not_judged"}, else null}.
"""
LIMITS_HELP = f"""\
Roll out the limits of one container of an app. Of each cluster the box is changed that applies its app limits.
Of --memory and --core what is not given stays as it is on each box; a box where that is not known refuses it.
Without --container it is the one that holds shares there; where several do, they are named and nothing is started.
--preview says on how many boxes they fit, by how old reports, and why not on the others; with --json each box has that
as "fit". Of a larger rollout the first 10 000 boxes are judged.

{OPTIONS_HELP}
\b
Example:
  edgegpu-cloud rollouts start limits default/asr --memory 10 -l site=hall --waves 1,25% --soak 10m --preview

\b
{_EXITS}"""
SHARING_HELP = f"""\
Roll out how boxes share their cards. What is left out stays as it is on each box.

{OPTIONS_HELP}
\b
Example:
  edgegpu-cloud rollouts start sharing --policy spread --all --first asr-hall --wait

\b
{_EXITS}"""
UPGRADE_HELP = f"""\
Roll out a version of the agent. Boxes take what the release key has signed, and no older version: an upgrade is not
returned. A box whose new agent is not well goes back to its old one by itself, and counts as failed.

{OPTIONS_HELP}
\b
Example:
  edgegpu-cloud rollouts start upgrade --version 1.2.3 --url https://example.com/edgegpu.tar.gz --sha256 HEX \\
      --signature TEXT -l site=hall --soak 1h

\b
{_EXITS}"""
LIST_HELP = """\
List the last rollouts, newest first.

\b
--json prints a list of what `rollouts show --json` does, without the boxes.
"""
SHOW_HELP = """\
Show a rollout: its waves, and where each box stands: tries, last message, next try. --state limits the boxes.

\b
States of boxes: QUEUED, AWAY (offline, joins later), CHANGING, RETRYING, APPLIED, REJECTED, FAILED, SKIPPED, CANCELLED,
RETURNING, RETURNED, NOT_RETURNED.
--json prints {"number", "words", "state", "reason", "wave", "waves", "states", ..., "each": [{"name", "wave", "state",
"attempts", "message", "next_try_at_s", ...}]}
"""
PAUSE_HELP = """\
Pause a rollout: no box is begun until it is resumed. Boxes that are at it end.

\b
--json prints what `rollouts show --json` does, without the boxes.
"""
RESUME_HELP = """\
Resume a rollout. One that its gate has paused goes on to the next wave.

\b
--json prints what `rollouts show --json` does, without the boxes.
"""
ABORT_HELP = """\
Abort a rollout: queued boxes are cancelled, boxes that are at it end. With --return all boxes that it has changed get
back what they had; a box that somebody else has changed since is left as it is.

\b
--return --preview changes nothing: from which values back to which, on how many boxes, and which boxes keep what they
have. With --json {"boxes", "steps": [{"before", "after", "boxes"}], "left": [{"device", "name", "text"}],
"more_boxes"}.
--json prints what `rollouts show --json` does, without the boxes.
"""
FOLLOW_HELP = """\
Follow a rollout to its end: a line for each change.

\b
Exit status: 0 DONE and no box has failed, 1 another end, 3 not ended within --timeout.
--json prints one document per line.
"""

MOST_BOXES = 10_000
"""Boxes that a command prints at most."""

NumberArgument = Annotated[
    int, typer.Argument(metavar="NUMBER", help="As `rollouts list` shows it.", min=1, max=LARGEST)
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Follow it to its end.")]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="How long --wait waits: 90s, 10m.  [default: 1h]")
]
FollowTimeOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long it is followed: 90s, 10m.")]
StateOption = Annotated[
    list[RolloutBoxState] | None,
    typer.Option("--state", metavar="STATE", help="Only boxes in this state; several times.", case_sensitive=False),
]
ReturnOption = Annotated[bool, typer.Option("--return", help="Give changed boxes back what they had.")]
LimitOption = Annotated[int, typer.Option("--limit", metavar="NUMBER", min=1, max=MOST_BOXES, help="How many.")]
VersionOption = Annotated[str, typer.Option("--version", metavar="VERSION", help="The release: 1.2.3.")]
UrlOption = Annotated[str, typer.Option("--url", metavar="URL", help="Where boxes fetch it: https://...")]
ShaOption = Annotated[str, typer.Option("--sha256", metavar="HEX", help="Its SHA-256.")]
SignatureOption = Annotated[str, typer.Option("--signature", metavar="TEXT", help="The release key's signature.")]


@with_rollout_options
def start_limits(  # noqa: PLR0913  (one for each option)
    app_: AppArgument,
    *,
    request: Asked,
    memory: MemoryOption = None,
    core: CoreOption = None,
    container: ContainerOption = None,
    force: ForceOption = False,
    interrupt: InterruptOption = False,
    folder: FolderOption = DEFAULT,
    show_preview: PreviewOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> None:
    """Roll out the limits of one container of an app."""
    wait_s = waiting_s(timeout, wait=wait, default="1h")
    namespace, name = app_of(app_)
    limits = LimitsPatch(
        namespace=namespace,
        app=name,
        container=container or "",
        memory_units=memory,
        core=core,
        force=force,
        interrupt=interrupt,
    )
    with reporting(as_json=json), reached(folder) as cloud:
        _started(cloud, request, limits, wait_s=wait_s, preview=show_preview, as_json=json)


@with_rollout_options
def start_sharing(  # noqa: PLR0913  (one for each option)
    *,
    request: Asked,
    policy: PolicyOption = None,
    exclude: ExcludeOption = None,
    unit_mib: UnitOption = None,
    isolation: IsolationOption = None,
    folder: FolderOption = DEFAULT,
    show_preview: PreviewOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> None:
    """Roll out how boxes share their cards."""
    wait_s = waiting_s(timeout, wait=wait, default="1h")
    settings = SharingSettings(
        isolation=isolation, policy=policy, exclude=None if exclude is None else tuple(exclude), unit_mib=unit_mib
    )
    with reporting(as_json=json), reached(folder) as cloud:
        _started(cloud, request, settings, wait_s=wait_s, preview=show_preview, as_json=json)


@with_rollout_options
def start_upgrade(  # noqa: PLR0913  (one for each option)
    *,
    request: Asked,
    version: VersionOption,
    url: UrlOption,
    sha256: ShaOption,
    signature: SignatureOption,
    folder: FolderOption = DEFAULT,
    show_preview: PreviewOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> None:
    """Roll out a version of the agent."""
    wait_s = waiting_s(timeout, wait=wait, default="1h")
    try:
        release = UpgradeArgs(version=version, url=url, sha256=sha256, signature=signature)
    except ValidationError as error:
        raise typer.BadParameter(first_fault(error)) from error
    with reporting(as_json=json), reached(folder) as cloud:
        _started(cloud, request, release, wait_s=wait_s, preview=show_preview, as_json=json)


def _started(cloud: Cloud, asked: Asked, change: RolloutChange, *, wait_s: int, preview: bool, as_json: bool) -> None:
    request = asked.request(change)
    check_expected(asked.expect, preview=preview)
    if preview:
        plan = cloud.rollouts.preview(request, limit=MOST_BOXES)
        _print_plan(plan, as_json=as_json)
        if not as_json:
            typer.echo(f"to start it for these boxes, --expect in the place of --preview:\n  --expect {plan.seen}")
        return
    asks = asked.expect is None and not asked.yes
    expect = _confirmed(cloud, request, as_json=as_json) if asks else asked.expect
    number = cloud.rollouts.start(request, expect=expect)
    print_connection_problem(cloud)
    view = cloud.rollouts.show(number)
    if wait_s:
        say(f"rollout {number}: {view.words}, {counted(view.boxes, 'box')} in {counted(len(view.waves), 'wave')}")
        _followed(cloud, number, wait_s, as_json=as_json)
        return
    text = (
        f"rollout {number} has started: {view.words}, {counted(view.boxes, 'box')} in "
        f"{counted(len(view.waves), 'wave')}\nedgegpu-cloud rollouts follow {number} follows it"
    )
    answer(view, text, as_json=as_json)


def _confirmed(cloud: Cloud, request: RolloutRequest, *, as_json: bool) -> BoxSet:
    """Show the waves of a rollout and ask whether to start it; return the boxes that were shown.

    Raises:
        CloudError: nobody can be asked.
        typer.Abort: it is not to start.
    """
    plan = cloud.rollouts.preview(request, limit=MOST_BOXES)
    if not as_json:
        _print_plan(plan, as_json=False)
    question = f"start it for {counted(plan.boxes, 'box')}?"
    confirm(question, cannot="cannot start a rollout", yes=False, as_json=as_json)
    return BoxSet.read(plan.seen)


def _print_plan(plan: RolloutPlan, *, as_json: bool) -> None:
    if as_json:
        print_json(plan)
        return
    typer.echo(f"{plan.words}: {counted(plan.boxes, 'box')} in {counted(len(plan.waves), 'wave')}")
    rows = [(wave.name, str(wave.size), _names([box.name for box in wave.boxes], wave.size)) for wave in plan.waves]
    print_table(("WAVE", "BOXES", "WHICH"), rows)
    print_steps(plan.steps)
    print_fits([box for wave in plan.waves for box in wave.boxes], of=plan.boxes, now_s=time.time())
    for note in plan.notes:
        typer.echo(f"note: {note}")


def _names(names: Sequence[str], of: int, most: int = 8) -> str:
    shown = names[:most]
    more = f"{' and ' if shown else ''}{of - len(shown)} more" if of > len(shown) else ""
    return ", ".join(shown) + more


# look


def list_(*, folder: FolderOption = DEFAULT, limit: LimitOption = 20, json: JsonOption = False) -> None:
    """List the last rollouts."""
    with reporting(as_json=json), reached(folder) as cloud:
        found = cloud.rollouts.all(limit=limit)
        print_list(found, _HEADS, _row, none="no rollouts yet", as_json=json)


_HEADS = ("NUMBER", "WHAT", "STARTED", "STATE", "WAVE", "BOXES", "FAILED", "BY")


def _row(view: RolloutView) -> tuple[str, ...]:
    return (
        str(view.number),
        view.words,
        ago(view.at_s, time.time()),
        view.state.value,
        _wave(view),
        f"{view.done_boxes} of {view.boxes}",
        str(view.failures) if view.failures else "-",
        view.by,
    )


def _wave(view: RolloutView) -> str:
    return view.waves[view.wave].name if view.wave < len(view.waves) else "all"


def show(
    number: NumberArgument,
    *,
    state: StateOption = None,
    limit: LimitOption = 500,
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Show a rollout, and where each box stands."""
    with reporting(as_json=json), reached(folder) as cloud:
        view = cloud.rollouts.show(number)
        boxes = cloud.rollouts.boxes(number, tuple(state or ()), limit=limit)
        if json:
            print_json({**_document(view), "each": boxes})
            return
        _print_view(view)
        print_table(_BOX_HEADS, [_box_row(view, box) for box in boxes])
        print_connection_problem(cloud)


def _document(view: RolloutView) -> dict[str, object]:
    return {name: getattr(view, name) for name in type(view).__dataclass_fields__}


def _print_view(view: RolloutView) -> None:
    typer.echo(f"rollout {view.number}: {view.words}, by {view.by}, {moment(view.at_s)}")
    why = f": {view.reason}" if view.reason else ""
    soak = f", {_wave(view)} soaks until {moment(view.soaks_until_s)}" if view.soaks_until_s is not None else ""
    typer.echo(f"{view.state}{why}{soak}")
    rows = [(wave.name, str(wave.boxes), _states(wave.states)) for wave in view.waves]
    print_table(("WAVE", "BOXES", "STATES"), rows)


def _states(states: Mapping[RolloutBoxState, int]) -> str:
    return ", ".join(f"{number} {state}" for state, number in states.items())


_BOX_HEADS = ("BOX", "WAVE", "STATE", "TRIES", "SINCE", "NEXT TRY", "MESSAGE")


def _box_row(view: RolloutView, box: RolloutBoxRecord) -> tuple[str, ...]:
    next_try = moment(box.next_try_at_s) if box.next_try_at_s is not None else "-"
    name = view.waves[box.wave].name
    since = ago(box.since_s, time.time())
    return box.name, name, box.state.value, str(box.attempts), since, next_try, box.message or "-"


def follow(
    number: NumberArgument,
    *,
    folder: FolderOption = DEFAULT,
    timeout: FollowTimeOption = "1h",
    json: JsonOption = False,
) -> None:
    """Follow a rollout to its end."""
    wait_s = seconds(timeout, option="--timeout")
    with reporting(as_json=json), reached(folder) as cloud:
        print_connection_problem(cloud)
        _followed(cloud, number, wait_s, as_json=json)


def _followed(cloud: Cloud, number: int, wait_s: float, *, as_json: bool) -> None:
    """Print the progress of a rollout, and exit with its status."""
    view = cloud.rollouts.show(number)
    try:
        for view in cloud.rollouts.follow(number, timeout_s=wait_s):
            if as_json:
                print_json_line(view)
            else:
                typer.echo(f"{time.strftime('%H:%M:%S')}  {_line(view)}")
    except KeyboardInterrupt:
        say(f"it goes on: edgegpu-cloud rollouts follow {number}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if not view.ended:
        say(f"not ended yet; it goes on: edgegpu-cloud rollouts follow {number}")
        raise typer.Exit(EXIT_WAITING)
    if view.state is not RolloutState.DONE or view.failures:
        raise typer.Exit(EXIT_FAILED)


def _line(view: RolloutView) -> str:
    why = f": {view.reason}" if view.reason else ""
    return f"{view.state}  {_wave(view)}  {_states(view.states)}{why}"


# change


def pause(number: NumberArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Pause a rollout."""
    with reporting(as_json=json), reached(folder) as cloud:
        cloud.rollouts.pause(number)
        answer(cloud.rollouts.show(number), f"rollout {number} is paused; boxes that are at it end", as_json=json)


def resume(number: NumberArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Resume a rollout."""
    with reporting(as_json=json), reached(folder) as cloud:
        cloud.rollouts.resume(number)
        answer(cloud.rollouts.show(number), f"rollout {number} goes on", as_json=json)


def abort(
    number: NumberArgument,
    *,
    returns: ReturnOption = False,
    show_preview: PreviewOption = False,
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Abort a rollout."""
    if show_preview and not returns:
        raise typer.BadParameter("without --return no box gets anything back", param_hint="--preview")
    with reporting(as_json=json), reached(folder) as cloud:
        if show_preview:
            _print_way_back(cloud.rollouts.way_back(number), as_json=json)
            return
        cloud.rollouts.abort(number, returns=returns)
        then = ", then changed boxes get back what they had" if returns else ""
        text = f"rollout {number} is aborted: queued boxes are cancelled, boxes that are at it end{then}"
        answer(cloud.rollouts.show(number), text, as_json=json)


def _print_way_back(found: WayBack, *, as_json: bool) -> None:
    if as_json:
        print_json({name: getattr(found, name) for name in ("boxes", "steps", "left", "more_boxes")})
        return
    print_steps_back(found.steps, found.left, more_boxes=found.more_boxes)
    if not found.steps:
        typer.echo("no box gets anything back")


put(_start, "limits", start_limits, LIMITS_HELP, "Roll out the limits of an app.")
put(_start, "sharing", start_sharing, SHARING_HELP, "Roll out how boxes share their cards.")
put(_start, "upgrade", start_upgrade, UPGRADE_HELP, "Roll out a version of the agent.")
app.add_typer(_start, name="start")
put(app, "list", list_, LIST_HELP, "List the last rollouts.")
put(app, "show", show, SHOW_HELP, "Show a rollout, and where each box stands.")
put(app, "follow", follow, FOLLOW_HELP, "Follow a rollout to its end.")
put(app, "pause", pause, PAUSE_HELP, "Begin no box until it is resumed.")
put(app, "resume", resume, RESUME_HELP, "Go on with a paused rollout.")
put(app, "abort", abort, ABORT_HELP, "End a rollout before its end.")
