"""GPU sharing on one box: taken on and off, and how its cards are shared, with a preview of each change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Form, Path, Query, Request
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.context import Pages, VisitorFleet
from edgegpu_cloud.console.visitor import Operator
from edgegpu_cloud.errors import CloudError, ConflictError, ForbiddenError
from edgegpu_cloud.fleet.card_views import box_cards
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.operations.effects import effects_of
from edgegpu_cloud.fleet.preview.reported_sharing import reported_sharing_of
from edgegpu_cloud.fleet.preview.sharing import ItemPreview, check_settings, preview_settings
from edgegpu_cloud.fleet.specs import SharingSettings, desired_items, with_settings
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_cloud.numbers import is_number
from edgegpu_cloud.phrases import phrase
from edgegpu_core.placement import Policy

router = APIRouter()

Device = Annotated[str, Path(min_length=1, max_length=253)]
_NAMES = {"policy": "policy", "exclude": "exclusions", "unit_mib": "unit_size", "isolation": "isolation"}


@router.get("/boxes/{device}/sharing")
def sharing_page(  # noqa: PLR0913, PLR0917  (one for each field)
    request: Request,
    device: Device,
    fleet: VisitorFleet,
    pages: Pages,
    policy: Annotated[str, Query(max_length=40)] = "",
    exclude: Annotated[list[str] | None, Query(max_length=64)] = None,
    unit_mib: Annotated[str, Query(max_length=12)] = "",
    isolation: Annotated[str, Query(max_length=20)] = "",
    typed: Annotated[str, Query(max_length=8)] = "",
) -> Response:
    """Show how the box shares its cards, and what a change would do there."""
    details = fleet.details(device)
    values, problem = _values(fleet, details), None
    if typed:
        shown = TypedSharing(policy, exclude or [], unit_mib, isolation)
        values |= _typed_values(details, shown)
        problem = values["problem"]
    part = request.headers.get("hx-target", "")
    return pages.page(
        request, "sharing.html", values, block=part if part == "outcome" else "preview", status=400 if problem else 200
    )


@dataclass(frozen=True, slots=True)
class TypedSharing:
    """What stands in the form, as it was typed."""

    policy: str
    exclude: list[str]
    unit_mib: str
    isolation: str


def _typed_values(details: BoxDetails, typed: TypedSharing, *, problem: CloudError | None = None) -> dict[str, Any]:
    """Return what the page shows of a form that was typed: its preview, or why there is none."""
    previews = None
    try:
        settings = _settings(details, typed)
        previews = _previews(details, settings) if settings is not None else None
    except CloudError as error:
        problem = problem or error
    return {"typed": typed, "previews": previews, "problem": problem}


def _values(fleet: Fleet, details: BoxDetails) -> dict[str, Any]:
    cards = box_cards(details.latest)
    return {
        "box": details.box,
        "reported": reported_sharing_of(details),
        "cards": cards,
        "holders": cards.holders if cards else (),
        "effects": effects_of("sharing.uninstall"),
        "policies": [one.value for one in Policy],
        "requests": [one for one in fleet.requests(details.box.device) if not one.name.startswith("app_limits/")],
        "now": _now(details),
        "typed": None,
        "previews": None,
        "problem": None,
    }


def _now(details: BoxDetails) -> Mapping[str, Any]:
    """Return the values that the form begins with: what is requested, else what the box reports."""
    spec, told = details.spec, reported_sharing_of(details)
    return {
        "policy": spec.policy.policy if spec.policy else (told.policy if told else None) or Policy.FIRST_FIT.value,
        "exclude": list(spec.exclusions.cards if spec.exclusions else (told.exclusions if told else None) or ()),
        "unit_mib": spec.unit_size.mib if spec.unit_size else (told.unit_size if told else None) or 256,
        "isolation": spec.isolation.mode.value if spec.isolation else (told.isolation if told else None) or "limiter",
    }


def _settings(details: BoxDetails, typed: TypedSharing, items: Sequence[str] = ()) -> SharingSettings | None:
    """Return what differs from the present values, of some items or all; None where nothing does.

    Raises:
        CloudError: a value that no box takes.
    """
    now = _now(details)
    unit = _number(typed.unit_mib) if typed.unit_mib.strip() else now["unit_mib"]
    cards = sorted(set(typed.exclude))
    settings = SharingSettings(
        policy=typed.policy if typed.policy and typed.policy != now["policy"] else None,
        exclude=(tuple(cards) or ("none",)) if cards != sorted(now["exclude"]) else None,
        unit_mib=unit if unit != now["unit_mib"] else None,
        isolation=typed.isolation if typed.isolation and typed.isolation != now["isolation"] else None,
    )
    if items:
        settings = replace(settings, **{field: None for field, name in _NAMES.items() if name not in items})
    if settings == SharingSettings():
        return None
    check_settings(details, settings)
    with_settings(details.spec, settings)
    return settings


def _number(text: str) -> int:
    words = text.strip()
    if not is_number(words, digits=12):
        raise CloudError(
            phrase("cannot set the unit to %(text)r: it is no whole number", text=text),
            remedy=phrase("give MiB, as 256"),
        )
    return int(words)


def _previews(details: BoxDetails, settings: SharingSettings) -> dict[str, ItemPreview]:
    items = desired_items(with_settings(details.spec, settings))
    names = [name for field, name in _NAMES.items() if getattr(settings, field) is not None]
    return preview_settings(details, {name: items[name] for name in names})


@router.post("/boxes/{device}/sharing")
def set_sharing(  # noqa: PLR0913  (one for each field)
    *,
    request: Request,
    device: Device,
    _: Operator,
    fleet: VisitorFleet,
    pages: Pages,
    rev: Annotated[int, Form(ge=0)],
    policy: Annotated[str, Form(max_length=40)] = "",
    exclude: Annotated[list[str] | None, Form(max_length=64)] = None,
    unit_mib: Annotated[str, Form(max_length=12)] = "",
    isolation: Annotated[str, Form(max_length=20)] = "",
    items: Annotated[str, Form(max_length=100)] = "",
) -> Response:
    """Request other settings of a box's sharing, as they were previewed; what was typed is kept where that fails."""
    details, typed = fleet.details(device), TypedSharing(policy, exclude or [], unit_mib, isolation)
    try:
        _request_settings(fleet, details, typed, rev, items=items.split())
    except ForbiddenError:
        raise
    except CloudError as error:
        details = fleet.details(device)
        values = _values(fleet, details) | _typed_values(details, typed, problem=error)
        return pages.page(request, "sharing.html", values, status=409 if isinstance(error, ConflictError) else 400)
    return RedirectResponse(f"/boxes/{details.box.device}#requests", 303)


def _request_settings(
    fleet: Fleet, details: BoxDetails, typed: TypedSharing, rev: int, *, items: Sequence[str]
) -> None:
    """Request what differs from the present values, of the items that the preview has named; none: of all.

    What it has not named may differ by now, as the box was changed on the spot: it stays as it is there.

    Raises:
        ConflictError: the box's settings are not those of the revision that was previewed.
        CloudError: nothing differs, or no box takes it.
    """
    name = details.box.name
    if details.box.rev != rev:
        text = phrase(
            "cannot set sharing on %(name)s: %(what)s has changed its settings meanwhile",
            name=name,
            what=_last_author(fleet, details),
        )
        raise ConflictError(
            text, remedy=phrase("what you typed is kept: look at the new preview, then request it again")
        )
    settings = _settings(details, typed, items)
    if settings is None:
        raise CloudError(
            phrase("cannot set sharing on %(name)s: nothing is changed", name=name),
            remedy=phrase("change a value first"),
        )
    fleet.set_spec(details.box.device, lambda spec: with_settings(spec, settings), expect_rev=rev)


def _last_author(fleet: Fleet, details: BoxDetails) -> str:
    """Return who has requested something of a box last."""
    last = max(fleet.requests(details.box.device), key=lambda one: one.requested_at_s or 0.0, default=None)
    return last.by if last is not None and last.by else "somebody else"


@router.post("/boxes/{device}/sharing/install")
def install(device: Device, _: Operator, fleet: VisitorFleet) -> Response:
    """Request that GPU sharing is installed."""
    box = fleet.box(device)
    fleet.install(box.device)
    return RedirectResponse(f"/boxes/{box.device}#requests", 303)


@router.post("/boxes/{device}/sharing/uninstall")
def uninstall(
    device: Device, _: Operator, fleet: VisitorFleet, *, confirmed: Annotated[str, Form(max_length=8)] = ""
) -> Response:
    """Request that GPU sharing is taken off, once that was confirmed; the agent stays."""
    box = fleet.box(device)
    if not confirmed:
        return RedirectResponse(f"/boxes/{box.device}/confirm?op=sharing.uninstall", 303)
    fleet.uninstall(box.device)
    return RedirectResponse(f"/boxes/{box.device}#requests", 303)
