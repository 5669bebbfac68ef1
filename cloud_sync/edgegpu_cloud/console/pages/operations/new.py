"""A new change of many boxes: what is typed, what would come of it, and its start with the number of boxes typed."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Form, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.context import Pages, VisitorFleet, VisitorOperations
from edgegpu_cloud.console.pages.fleet import FleetQuery
from edgegpu_cloud.console.pages.operations.confirmation import check_typed
from edgegpu_cloud.console.rendering import PageRenderer
from edgegpu_cloud.console.visitor import Operator
from edgegpu_cloud.errors import CloudError, ConflictError
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.limits.amounts import MemoryMeasure, read_core, read_memory
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.box_set import LONGEST_SET, BoxSet
from edgegpu_cloud.fleet.operations.effects import effects_of, op_of_change
from edgegpu_cloud.fleet.operations.kinds import checked_args
from edgegpu_cloud.fleet.operations.operations import KEY_MAX, Operations
from edgegpu_cloud.fleet.operations.preview import SAMPLE, Change, OperationPreview, preview_operation
from edgegpu_cloud.fleet.present.steps import LimitsSteps
from edgegpu_cloud.fleet.specs import LimitsPatch, SharingSettings, read_app
from edgegpu_cloud.numbers import is_number
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.records import Json
from edgegpu_core.placement import Policy
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.rules.ops import OPS, EvidenceArgs, NoArgs

router = APIRouter(prefix="/operations")

COMMANDS = tuple(
    str(op) for op, one in OPS.items() if one.args in {NoArgs, EvidenceArgs} and not op.startswith("sharing.")
)
"""The commands that need no arguments."""

_DEVICE = re.compile("[0-9a-z]{16}")
_WITHOUT_FIELDS = {OperationKind.INSTALL, OperationKind.UNINSTALL}
_LONGEST_QUERY = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationForm:
    """A form as its address has it: its fields, and the boxes that were selected."""

    given: Mapping[str, str]
    boxes: Sequence[DeviceId]

    @property
    def fields(self) -> Sequence[tuple[str, str]]:
        """Return what says which boxes the change is for, and its kind: the form sends it along."""
        kept = ("kind", "which", *FleetQuery.model_fields)
        whole = self.given.get("which") == "all"
        boxes = [] if whole else [("box", str(box)) for box in self.boxes]
        return [*((name, self.given[name]) for name in kept if name in self.given), *boxes]

    @property
    def query(self) -> str:
        """Return the form as a query."""
        more = [(name, text) for name, text in self.given.items() if name not in dict(self.fields)]
        return urlencode([*self.fields, *more])

    @property
    def filled(self) -> bool:
        """Whether the change was typed: some kinds have nothing to type."""
        return bool(self.given.get("filled")) or self.given.get("kind") in _WITHOUT_FIELDS


def _read(pairs: Sequence[tuple[str, str]]) -> OperationForm:
    boxes = sorted({DeviceId(text) for name, text in pairs if name == "box" and _DEVICE.fullmatch(text)})
    return OperationForm(given={name: text for name, text in pairs if name != "box"}, boxes=boxes)


@router.get("/new")
def new_page(
    request: Request, _: Operator, fleet: VisitorFleet, operations: VisitorOperations, pages: Pages
) -> Response:
    """Show the form; where it was filled in, what would come of it too. Without a change, lead to the list of boxes."""
    if "kind" not in request.query_params:
        return RedirectResponse("/", 303)
    return _Page(request, fleet, operations, pages).answer(_read(request.query_params.multi_items()))


@router.post("")
def start(
    *,
    request: Request,
    _: Operator,
    fleet: VisitorFleet,
    operations: VisitorOperations,
    pages: Pages,
    query: Annotated[str, Form(max_length=_LONGEST_QUERY)] = "",
    typed: Annotated[str, Form(max_length=10)] = "",
    seen: Annotated[str, Form(max_length=LONGEST_SET)] = "",
    key: Annotated[str, Form(max_length=KEY_MAX)] = "",
) -> Response:
    """Start what was previewed; the number of boxes was typed, and they have to be the same ones by now."""
    form = _read(parse_qsl(query, keep_blank_values=True))
    try:
        kind = _kind(form)
        args, _change = _wanted(kind, form.given)
        expect = BoxSet.read(seen)
        check_typed(typed, expect.number)
        view = operations.start(kind, args, where=_where(form), key=key, expect=expect)
    except CloudError as error:
        return _Page(request, fleet, operations, pages).answer(form, problem=error)
    return RedirectResponse(f"/operations/{view.operation.id}", 303)


@dataclass(frozen=True, slots=True)
class _Page:
    """What the page of a new change of many boxes is made with."""

    request: Request
    fleet: Fleet
    operations: Operations
    pages: PageRenderer

    def answer(self, form: OperationForm, *, problem: CloudError | None = None) -> Response:
        """Show the form, and where it is filled in its preview with the set of boxes that it is of."""
        plan: OperationPreview | None = None
        steps: LimitsSteps | None = None
        seen, kind, args = BoxSet.of(()), OperationKind.LIMITS, None
        try:
            kind, where = _kind(form), _where(form)
            seen = self.operations.seen(where)
            if form.filled:
                args, change = _wanted(kind, form.given)
                if isinstance(change, LimitsPatch):
                    change = self.operations.with_container(change, where)
                    args = asdict(change)
                    form = replace(form, given={**form.given, "container": change.container})
                    steps = self.operations.limits_steps(change, where)
                plan = preview_operation(self.fleet, where, change)
        except CloudError as error:
            problem = problem or error
        values = {
            "form": form,
            "given": form.given,
            "kind": kind.value,
            "args": args,
            "seen": seen,
            "plan": plan if seen.number else None,
            "steps": steps,
            "effects": effects_of(op_of_change(kind, args)) if args is not None else (),
            "pods": self.operations.pods(_where(form)) if plan is not None and seen.number else None,
            "key": secrets.token_hex(16),
            "sample": SAMPLE,
            "policies": tuple(policy.value for policy in Policy),
            "commands": COMMANDS,
            "problem": problem,
        }
        status = 409 if isinstance(problem, ConflictError) else 400 if problem else 200
        return self.pages.page(self.request, "operation-new.html", values, status=status)


def _kind(form: OperationForm) -> OperationKind:
    text = form.given.get("kind", "")
    try:
        return OperationKind(text)
    except ValueError as error:
        raise CloudError(
            phrase("cannot change many boxes: %(text)r is no change", text=text),
            remedy=phrase("choose one above the list of boxes"),
        ) from error


def _where(form: OperationForm) -> BoxFilter:
    """Return the boxes: those that match the search of the list, or those that were selected."""
    if form.given.get("which") == "all":
        try:
            return FleetQuery.model_validate(
                {name: form.given.get(name, "") for name in ("q", "labels", "free", "agent")}
                | {"show": form.given.get("show", "all")}
            ).filter()
        except ValidationError as error:
            raise CloudError(
                phrase("cannot change many boxes: the search is too long"), remedy=phrase("look for less")
            ) from error
    if not form.boxes:
        raise CloudError(
            phrase("cannot change many boxes: none is selected"),
            remedy=phrase("select some in the list of boxes, or change all that match"),
        )
    return BoxFilter(devices=frozenset(form.boxes))


def _wanted(kind: OperationKind, given: Mapping[str, str]) -> tuple[Json, Change | None]:
    """Return the arguments of the operation, and the change of them that can be previewed.

    Limits are checked with the container that is meant: a person may have named none.
    """
    change: Change | None = None
    args: Json = {}
    if kind is OperationKind.LIMITS:
        change = _limits(given)
        args = asdict(change)
    elif kind is OperationKind.SHARING:
        change = _settings(given)
        args = asdict(change)
    elif kind is OperationKind.COMMAND:
        args = {"op": given.get("op", "")}
    return args if kind is OperationKind.LIMITS else checked_args(kind, args), change


def _limits(given: Mapping[str, str]) -> LimitsPatch:
    """Return limits as they were typed; an empty amount stays as it is on each box."""
    namespace, app = read_app(given.get("app", ""))
    memory, core = (given.get(name, "").strip() for name in ("memory", "core"))
    return LimitsPatch(
        namespace=namespace,
        app=app,
        container=given.get("container", "").strip(),
        memory_units=read_memory(memory, MemoryMeasure.UNITS, 0).units if memory else None,
        core=read_core(core) if core else None,
        force=bool(given.get("force")),
        interrupt=bool(given.get("interrupt")),
        live=bool(given.get("live")),
    )


def _settings(given: Mapping[str, str]) -> SharingSettings:
    unit = given.get("unit_mib", "").strip()
    return SharingSettings(
        policy=given.get("policy") or None,
        exclude=tuple(given.get("exclude", "").split()) or None,
        unit_mib=_number(unit) if unit else None,
        isolation=given.get("isolation") or None,
    )


def _number(text: str) -> int:
    words = text.strip()
    if not is_number(words, digits=9):
        raise CloudError(
            phrase("cannot change many boxes: %(text)r is no number", text=text), remedy=phrase("give a whole number")
        )
    return int(words)
