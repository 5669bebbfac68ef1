"""A new rollout: its form, its waves and whether limits fit, and its start with the number of boxes typed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.context import Pages, VisitorRollouts
from edgegpu_cloud.console.pages.rollouts.fit_part import (
    ALL,
    COUNTED,
    EACH,
    NOTHING_COUNTED,
    FitPart,
    FitSeal,
    fit_part,
)
from edgegpu_cloud.console.pages.rollouts.form import NAMES, NUMBERS, RolloutForm
from edgegpu_cloud.console.rendering import PageRenderer
from edgegpu_cloud.console.visitor import Operator, Visitor
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.operations.box_set import LONGEST_SET, BoxSet
from edgegpu_cloud.fleet.specs import LimitsPatch
from edgegpu_cloud.numbers import is_number
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.rollouts.changes import RolloutKind
from edgegpu_cloud.rollouts.rollouts import RolloutPlan, RolloutRequest, Rollouts

router = APIRouter(prefix="/rollouts")

JUDGED = 100
"""Boxes that one request judges: the reports of thousands are not loaded for one page."""

_LONGEST_QUERY = 24_000
"""Letters of a form as a query: as many names of boxes as one request may have, of usual length."""

FIT_COUNTS = "fit-counts"
"""The part of the page that asks for the next counts by itself."""


@router.get("/new")
def new_page(request: Request, visitor: Operator, rollouts: VisitorRollouts, pages: Pages) -> Response:
    """Show the form; where it was filled in, the waves too, and whether limits fit."""
    given = dict(request.query_params)
    shown = {name: given.pop(name, "") for name in (COUNTED, EACH)}
    page = _Page(request, visitor, rollouts, pages)
    asked = request.headers.get("hx-request") == "true" and request.headers.get("hx-target") == FIT_COUNTS
    if asked and given.get("what") == RolloutKind.LIMITS:
        return page.counts(RolloutForm(given), shown)
    return page.answer(RolloutForm(given), shown=shown)


@router.post("")
def start(
    request: Request,
    visitor: Operator,
    rollouts: VisitorRollouts,
    pages: Pages,
    *,
    query: Annotated[str, Form(max_length=_LONGEST_QUERY)] = "",
    typed: Annotated[str, Form(max_length=10)] = "",
    seen: Annotated[str, Form(max_length=LONGEST_SET)] = "",
) -> Response:
    """Start what was previewed; the number of boxes was typed, and they have to be the same ones by now."""
    form = RolloutForm(dict(parse_qsl(query, keep_blank_values=True)))
    page = _Page(request, visitor, rollouts, pages)
    wanted = form.read()
    if wanted is None:
        return page.answer(form)
    try:
        number = rollouts.start(wanted, expect_boxes=_typed(typed), expect=BoxSet.read(seen))
    except CloudError as error:
        return page.answer(form, problem=error)
    return RedirectResponse(f"/rollouts/{number}", 303)


def _typed(text: str) -> int:
    words = text.strip() or "0"
    if not is_number(words, digits=10):
        raise CloudError(
            phrase("cannot start a rollout: the %(number)s is %(text)r", number=phrase("number of boxes"), text=text),
            remedy=phrase("give a whole number"),
        )
    return int(words)


@dataclass(frozen=True, slots=True)
class _Page:
    """What the page of a new rollout is made with."""

    request: Request
    visitor: Visitor
    rollouts: Rollouts
    pages: PageRenderer

    def answer(
        self, form: RolloutForm, *, shown: Mapping[str, str] | None = None, problem: CloudError | None = None
    ) -> Response:
        """Show the form, and where it is filled in and nothing was refused what a rollout would do."""
        plan: RolloutPlan | None = None
        fit: FitPart | None = None
        query = form.query
        wanted = form.read() if set(form.given) - {"what"} else None
        if wanted is not None and problem is None and self._known(form):
            try:
                if isinstance(wanted.change, LimitsPatch):
                    plan, fit = self._fit(form, wanted, shown or {})
                    query = fit.seal.query
                else:
                    plan = self.rollouts.outline(wanted)
            except CloudError as error:
                problem = error
        values = {
            "given": form.given,
            "what": form.kind,
            "problems": form.problems,
            "numbers": {one.name: one for one in NUMBERS.values()},
            "plan": plan,
            "fit": fit,
            "problem": problem,
            "query": query,
        }
        status = 400 if problem or form.problems else 200
        return self.pages.page(self.request, "rollout-new.html", values, block="plan", status=status)

    def counts(self, form: RolloutForm, shown: Mapping[str, str]) -> Response:
        """Answer with the counts alone, one part further; what is refused stands there, with a link to go on."""
        fit: FitPart | None = None
        problem: CloudError | None = None
        wanted = form.read()
        if wanted is None:
            problem = next(iter(form.problems.values()))
        else:
            try:
                _, fit = self._fit(form, wanted, shown, outlined=False)
            except CloudError as error:
                problem = error
        url = self.request.url
        values = {"fit": fit, "problem": problem, "go_on": f"{url.path}?{url.query}"}
        return self.pages.page(self.request, "rollout-fit-part.html", values)

    def _known(self, form: RolloutForm) -> bool:
        """Whether each box that the form names is there; what is not is a problem of its field."""
        for field in NAMES:
            for error in self.rollouts.not_found(form.names(field)).values():
                form.problems.setdefault(field, error)
        return not form.problems

    def _fit(
        self, form: RolloutForm, wanted: RolloutRequest, shown: Mapping[str, str], *, outlined: bool = True
    ) -> tuple[RolloutPlan, FitPart]:
        """Return the plan of limits, and whether they fit on a part of its boxes."""
        counted = shown.get(COUNTED, "")

        def after(plan: RolloutPlan) -> str:
            return self._seal(form, plan).read(counted, most=plan.boxes).after

        found = self.rollouts.judged_outline(wanted, limit=JUDGED, after=after, outlined=outlined)
        before = self._seal(form, found.plan).read(counted, most=found.plan.boxes)
        whole = form.with_container(found.change)
        fit = fit_part(
            self._seal(whole, found.plan),
            found,
            before,
            every=shown.get(EACH) == ALL,
            anew=bool(counted) and before == NOTHING_COUNTED,
        )
        return found.plan, fit

    def _seal(self, form: RolloutForm, plan: RolloutPlan) -> FitSeal:
        seen = BoxSet.read(plan.seen).boxes_alone.text  # a change elsewhere does not have the boxes counted anew
        return FitSeal(session=self.visitor.csrf, query=form.query, seen=seen)
