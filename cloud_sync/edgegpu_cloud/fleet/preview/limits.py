"""The preview of new limits of an app, by the last reports of its cluster's boxes; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgegpu_cloud.fleet.present.amounts import UNKNOWN, PresentLimits
from edgegpu_cloud.fleet.preview.case import Limits, PreviewCase, amounts_held, preview_case
from edgegpu_cloud.fleet.preview.live import PodChange, pod_change, why_not_live
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_cloud.phrases import of_sentence, phrase
from edgegpu_core.limits.verdict import CardNumbers, FitResult, limits_verdict
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.messages.telemetry import PodAlloc

_LAST_WORD = "the box has the last word: selectors, taints, quotas and how the app replaces its pods are known there"
_OF_CHANGE = {
    PodChange.HELD: phrase("at once: no pod is made anew"),
    PodChange.NONE: phrase("its pods hold just that"),
}


def _units(number: int) -> str:
    return "1 unit" if number == 1 else f"{number} units"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What would come of new limits, by the last reports; `as_of_s`: the oldest of them, seconds since 1970.

    `pods_as_of_s`: since when the pods of all its boxes are known to be so; None: not said by the server.

    `answer` and `cards` are the verdict of `edgegpu_core.limits` on new pods; where the pods stay, the limits fit.
    `pods`: whether they stay. `live`: whether the limits take no new pod, if `live` is asked. `not_live`: why they do,
    where it was asked; else empty. `before`: what the container has now.
    """

    answer: FitResult
    text: str
    need_units: int
    need_core: int
    replicas: int
    cards: Sequence[CardNumbers]
    notes: Sequence[str]
    as_of_s: float
    pods_as_of_s: float | None = None
    pods: PodChange = PodChange.NEW
    live: bool = False
    not_live: str = ""
    before: PresentLimits = UNKNOWN

    @property
    def newer_pods_s(self) -> float | None:
        """Since when its pods are known to be so, where that is later than what is known of its cards."""
        return self.pods_as_of_s if self.pods_as_of_s is not None and self.pods_as_of_s > self.as_of_s else None

    @property
    def after(self) -> RequestedAmounts:
        """The amounts that are judged."""
        return RequestedAmounts(self.need_units, self.need_core)

    @property
    def fits(self) -> bool:
        """Whether the limits fit, now or after the app's own pods have gone."""
        return self.answer is not FitResult.NEVER

    def words(self) -> str:
        """Return the preview as lines for people."""
        fit = {
            FitResult.FITS: "fits",
            FitResult.AFTER_STOP: (
                "fits when the app's own pods have gone (one that is not recreated needs --interrupt)"
            ),
            FitResult.NEVER: "does not fit",
        }[self.answer]
        head = {
            PodChange.NEW: fit,
            PodChange.HELD: "at once, without a new pod",
            PodChange.NONE: "its pods hold just that",
        }[self.pods]
        pods = f", {self.replicas} pods" if self.replicas != 1 else ""
        lines = [f"{head}: {_units(self.need_units)}, core {self.need_core}{pods}"]
        lines += [f"  now {self.before.words()}"] if self.before != UNKNOWN else []
        lines += [f"  {self.text}"] if self.text and self.pods is PodChange.NEW else []
        lines += [f"  {self.live_words()}"] if self.live_words() else []
        for card in self.cards:
            held = f", {card.held_by_app_units} of them held by the app" if card.held_by_app_units else ""
            lines.append(
                f"  node {card.node} card {card.card}: {_units(card.free_units)}, core {card.free_core} free{held}"
            )
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def live_words(self) -> str:
        """Return what people can know of a change without new pods beyond `text`; empty where that says all."""
        if self.not_live:
            return f"not at once: {self.not_live}"
        return "with --live at once: no pod is made anew" if self.live and self.pods is PodChange.NEW else ""


def preview(box: BoxDetails, others: Iterable[BoxDetails], wanted: Limits) -> Preview:
    """Judge new limits as a box would, over every box of its cluster that has reported.

    Raises:
        CloudError: the box has not reported its cards yet, or no box accepts such limits.
    """
    return preview_of(preview_case(box, others, wanted), wanted)


def preview_of(case: PreviewCase, wanted: Limits) -> Preview:
    """Return the preview of a case."""
    verdict = limits_verdict(case.change)
    pods = pod_change(case, wanted)
    stay = pods is not PodChange.NEW
    why_not = "" if stay else why_not_live(case, wanted)
    return Preview(
        answer=FitResult.FITS if stay else verdict.answer,
        text=_OF_CHANGE[pods] if stay else of_sentence(verdict.text),
        need_units=wanted.memory_units,
        need_core=wanted.core,
        replicas=case.change.workload.replicas,
        cards=verdict.cards,
        notes=_notes(case.own, wanted),
        as_of_s=min(one.as_of_s for one in case.reports),
        pods_as_of_s=min(one.pods_as_of_s for one in case.reports),
        pods=pods,
        live=not why_not,
        not_live=why_not if wanted.live else "",
        before=case.before,
    )


def _notes(own: Mapping[str, PodAlloc], wanted: Limits) -> list[str]:
    notes = [_LAST_WORD]
    if not own:
        notes.append(f"no pod of {wanted.namespace}/{wanted.app} holds a share now: reckoned as one pod")
    elif wanted.container not in amounts_held(own):
        known = ", ".join(sorted(amounts_held(own)))
        notes.append(f"container {wanted.container} holds no share now; those that do: {known}")
    return notes
