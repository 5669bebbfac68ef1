"""Whether the limits of a rollout fit on its boxes, in words of the command line."""

from collections.abc import Sequence

import typer

from edgegpu_base.cli.output import counted
from edgegpu_cloud.cli.common import ago, print_table
from edgegpu_cloud.fleet.limits.preview_bars import CardPlace
from edgegpu_cloud.fleet.present.steps import LimitsSteps
from edgegpu_cloud.rollouts.fit import OLD_S, FitCounts, PlannedFit
from edgegpu_cloud.rollouts.targets import PlannedBox
from edgegpu_core.limits.outcome import CardShortage
from edgegpu_core.limits.verdict import FitResult


def print_fits(boxes: Sequence[PlannedBox], *, of: int, now_s: float) -> None:
    """Print on how many of the boxes of a plan limits fit, and what would come of them on the others.

    Args:
        boxes: those of the plan that were judged; one that has moved in its order meanwhile may be there twice.
        of: how many boxes the plan has.
        now_s: the present time, by which reports are old.
    """
    judged = {box.device: (box.name, box.fit) for box in boxes if box.fit is not None}
    if not judged:
        return
    counts = FitCounts.of((fit for _, fit in judged.values()), now_s=now_s)
    told = {
        "fit on": counts.fits,
        "need a stop of the app on": counts.after_stop,
        "do not fit on": counts.never,
        "are not known on": counts.not_known,
    }
    parts = (f"{words} {counted(number, 'box')}" for words, number in told.items() if number)
    some = f" of the first {counts.judged} of {counted(of, 'box')}" if counts.judged < of else ""
    typer.echo(f"by the last reports{some} the limits {', '.join(parts)}")
    if counts.old:
        typer.echo(f"{counts.old} of them by reports older than {int(OLD_S) // 60} minutes")
    rows = [(name, _words(fit, now_s)) for name, fit in judged.values() if not fit.fits or fit.is_old(now_s)]
    if rows:
        print_table(("BOX", "WHY"), rows)


def print_steps(steps: LimitsSteps | None) -> None:
    """Print from which limits to which a change leads, and on how many boxes; an older server does not say it."""
    if steps is not None:
        typer.echo("units/core on all boxes:")
        for line in steps.lines():
            typer.echo(f"  {line}")


def _words(fit: PlannedFit, now_s: float) -> str:
    """Return in words of a command line why limits do not just fit on a box, or by how old reports they do."""
    if fit.preview is None:
        return f"not known: {fit.text}"
    newer_s = fit.preview.newer_pods_s
    pods = f", its pods {ago(newer_s, now_s)}" if newer_s is not None else ""
    age = f" (reported {ago(fit.preview.as_of_s, now_s)}{pods})" if fit.is_old(now_s) else ""
    if fit.fits:
        return f"fits{age}"
    if fit.preview.answer is FitResult.AFTER_STOP:
        return f"needs a stop of this app, then fits on {', '.join(_place(one) for one in fit.places)}{age}"
    missing = [_missing(one) for one in fit.missing if one.missing_units or one.missing_core or one.in_use]
    return f"does not fit: {', '.join(missing) or fit.preview.text}{age}"


def _place(one: CardPlace | CardShortage) -> str:
    return f"card {one.card} of {one.node}"


def _missing(one: CardShortage) -> str:
    if one.in_use:
        return f"{_place(one)} is in use"
    units = [counted(one.missing_units, "unit")] if one.missing_units else []
    core = [f"core {one.missing_core}"] if one.missing_core else []
    return f"{' and '.join([*units, *core])} missing on {_place(one)}"
