"""Whether new limits need new pods: they may hold just that already, or be held to less by the limiter; pure."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from edgegpu_cloud.fleet.preview.case import Limits, PreviewCase
from edgegpu_cloud.phrases import phrase
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_sync.messages.telemetry import CardShare, PodAlloc

_HELD = "enforced"


class PodChange(StrEnum):
    """What becomes of an app's pods under new limits, by what the boxes of its cluster have reported."""

    NEW = "new"
    """They are made anew."""
    HELD = "held"
    """They stay, and are held to other memory at once."""
    NONE = "none"
    """They stay as they are: they hold just that."""


def pod_change(case: PreviewCase, wanted: Limits) -> PodChange:
    """Return what becomes of an app's pods."""
    pieces = [_pieces(pod, wanted) for pod in case.own.values()]
    if pieces and all(_is_just(one, wanted) for one in pieces):
        return PodChange.NONE
    return PodChange.HELD if wanted.live and not why_not_live(case, wanted) else PodChange.NEW


def why_not_live(case: PreviewCase, wanted: Limits) -> str:
    """Return why limits cannot change without new pods; empty where they can. The box asked is the case's first."""
    if not case.own:
        return phrase("no pod of the app holds a share")
    if wanted.core >= CORE_PER_CARD:
        return phrase("whole cards need new pods")
    here = case.reports[0].pods
    for uid, pod in sorted(case.own.items()):
        if uid not in here:
            return phrase("%(pod)s is on another box of the cluster", pod=pod.name)
        if why := _why_not(pod, _pieces(pod, wanted), wanted):
            return why
    return ""


def _why_not(pod: PodAlloc, pieces: Sequence[CardShare], wanted: Limits) -> str:
    if pod.enforced != _HELD:
        return phrase("nothing holds %(pod)s to its memory", pod=pod.name)
    if len(pieces) != 1:
        return phrase("%(pod)s does not hold just one card", pod=pod.name)
    [one] = pieces
    if one.core != wanted.core:
        return phrase("%(pod)s has core %(core)d, and core needs new pods", pod=pod.name, core=one.core)
    if one.memory_units < wanted.memory_units:
        return phrase("%(pod)s holds fewer units", pod=pod.name)
    return "" if wanted.memory_units else phrase("without a share its pods are made anew")


def _pieces(pod: PodAlloc, wanted: Limits) -> list[CardShare]:
    return [one for one in pod.pieces if one.container == wanted.container]


def _is_just(pieces: Iterable[CardShare], wanted: Limits) -> bool:
    """Return whether a container holds what is wanted, and is held to no less."""
    held = list(pieces)
    amounts = sum(one.memory_units for one in held), sum(one.core for one in held)
    return amounts == (wanted.memory_units, wanted.core) and all(one.live_units is None for one in held)
