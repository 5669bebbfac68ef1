"""Whether the limits of a rollout fit on its boxes: each is judged with its whole cluster, by the last reports."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Self

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.limits.preview_bars import BarsPreview, CardPlace, bars_preview
from edgegpu_cloud.fleet.operations.limits_preview import judged_in_clusters
from edgegpu_cloud.fleet.present.amounts import whole_in
from edgegpu_cloud.fleet.preview.limits import Preview
from edgegpu_cloud.fleet.specs import LimitsPatch
from edgegpu_cloud.fleet.views import PRESENT_S, BoxDetails
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import BoxQuery
from edgegpu_core.limits.outcome import CardShortage
from edgegpu_core.limits.verdict import FitResult
from edgegpu_sync.ids import DeviceId

OLD_S = PRESENT_S
"""A report that is older is an old one: a box that is there would have sent another by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFit:
    """What a box would make of the limits of a rollout; `preview` is None where that is not known.

    `text` says why then, `remedy` what to do. `places`: the cards that the app's pods would be on. `missing`: what each
    card lacks where the limits do not fit.
    """

    preview: Preview | None
    places: Sequence[CardPlace] = ()
    missing: Sequence[CardShortage] = ()
    text: str = ""
    remedy: str = ""

    @property
    def fits(self) -> bool:
        """Whether the limits fit beside what runs there now."""
        return self.preview is not None and self.preview.answer is FitResult.FITS

    def is_old(self, now_s: float) -> bool:
        """Whether the oldest of the reports that it is judged by is an old one."""
        return self.preview is not None and now_s - self.preview.as_of_s > OLD_S


@dataclass(frozen=True, slots=True)
class FitCounts:
    """How many boxes the limits fit on, fit on after a stop of the app, do not fit on, and of how many is not known.

    `old`: how many of all these are judged by old reports.
    """

    fits: int = 0
    after_stop: int = 0
    never: int = 0
    not_known: int = 0
    old: int = 0

    @property
    def judged(self) -> int:
        """How many boxes were looked at."""
        return self.fits + self.after_stop + self.never + self.not_known

    def __add__(self, other: "FitCounts") -> "FitCounts":
        """Return the counts of both."""
        return FitCounts(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))

    @classmethod
    def of(cls, fits: Iterable[PlannedFit | None], *, now_s: float) -> Self:
        """Count some boxes."""
        each = list(fits)
        answers = [one.preview.answer if one is not None and one.preview is not None else None for one in each]
        old = sum(one is not None and one.is_old(now_s) for one in each)
        return cls(
            fits=answers.count(FitResult.FITS),
            after_stop=answers.count(FitResult.AFTER_STOP),
            never=answers.count(FitResult.NEVER),
            not_known=answers.count(None),
            old=old,
        )


def fits_of(
    tx: Transaction, query: BoxQuery, devices: Sequence[DeviceId], limits: LimitsPatch, *, now_s: float
) -> dict[DeviceId, PlannedFit]:
    """Return what boxes of a query would make of limits."""
    return judged_in_clusters(tx, query, devices, partial(_fit, limits=limits), now_s=now_s)


def _fit(box: BoxDetails, others: Sequence[BoxDetails], limits: LimitsPatch) -> PlannedFit:
    try:
        bars: BarsPreview = bars_preview(box, others, whole_in(limits, box, others))
    except CloudError as error:
        return PlannedFit(preview=None, text=error.text, remedy=error.remedy)
    return PlannedFit(preview=bars.preview, places=bars.places, missing=bars.missing)
