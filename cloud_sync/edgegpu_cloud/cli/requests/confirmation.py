"""What a person confirms before boxes are changed: the boxes as they are shown, and what happens there."""

from edgegpu_base.cli.output import counted
from edgegpu_cloud.cli.common import Cloud, confirm, say
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.fleet.operations.effects import CONFIRMED_OPS, effects_of, is_confirmed, op_of_change
from edgegpu_cloud.fleet.reports import pods_of
from edgegpu_cloud.fleet.specs import LimitsPatch, SharingSettings
from edgegpu_cloud.fleet.views import BoxView
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.records import Json

CONFIRMED = """\
You are asked before several boxes are changed, and before k3s restarts or GPU sharing is taken off, of one box too;
what changes nothing on a box (doctor.run, inventory.refresh, evidence.check, logs.collect) is not asked about. --yes
does not ask. Where nobody can be asked, in a script or with --json, it is needed."""

_MOST_NAMED = 8


def confirm_op(op: str, view: BoxView, cloud: Cloud, *, yes: bool, as_json: bool) -> None:
    """Say what an op does on one box, and ask whether to send it, where it harms; with `yes` nobody is asked.

    Raises:
        CloudError: nobody can be asked.
        typer.Abort: it is not to be sent.
    """
    if yes or op not in CONFIRMED_OPS:
        return
    if not as_json:
        _say_effects(op)
        pods = pods_of(cloud.fleet.details(view.device).latest).values()
        holders = sum(bool(pod.pieces) for pod in pods)
        say(f"{counted(holders, 'pod')} {'holds a share' if holders == 1 else 'hold shares'} there, by the last report")
    text = f"{op} on {view.name}"
    confirm(f"{text}?", cannot=f"cannot ask for {text}", yes=yes, as_json=as_json)


def confirmed_boxes(cloud: Cloud, where: BoxFilter, kind: OperationKind, args: Json, *, as_json: bool) -> BoxSet | None:
    """Show the boxes of a change and what it does there, and ask whether to start it; return these boxes.

    None: nothing is to be confirmed, or no box is there.

    Raises:
        CloudError: nobody can be asked, or the change is wrong for every box.
        typer.Abort: it is not to start.
    """
    if not is_confirmed(kind, args, boxes=2):
        return None
    views = [view for view in cloud.fleet.boxes(where.selector) if view.is_asked]
    seen, lines = _seen(cloud, where, kind, args) or (BoxSet.of([view.device for view in views]), [])
    if not seen.number or not is_confirmed(kind, args, boxes=seen.number):
        return None
    if not as_json:
        for line in lines:
            say(line)
        _say_effects(op_of_change(kind, args))
        say(f"boxes of -l {where.selector}: {_some([view.name for view in views])}")
    what = f"{op_of_change(kind, args) or kind.value} on {counted(seen.number, 'box')}"
    confirm(f"{what}?", cannot=f"cannot start {what}", yes=False, as_json=as_json)
    return seen


def _seen(cloud: Cloud, where: BoxFilter, kind: OperationKind, args: Json) -> tuple[BoxSet, list[str]] | None:
    """Return the boxes as a preview of the change sees them, with its lines; None where there is no preview."""
    seen, lines = "", list[str]()
    if kind is OperationKind.LIMITS:
        limits = cloud.operations.preview_limits(LimitsPatch(**args), where, limit=1)
        seen, lines = limits.seen, limits.steps.lines() if limits.steps is not None else []
    elif kind is OperationKind.SHARING:
        seen = cloud.operations.preview_sharing(SharingSettings(**args), where, limit=1).seen
    return (BoxSet.read(seen), lines) if seen else None


def _say_effects(op: str) -> None:
    for text in effects_of(op):
        say(text)


def _some(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
