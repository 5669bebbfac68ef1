"""The items of a desired document, each read and settled by itself."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, JsonValue, ValidationError

from edgegpu_core.sentences import sentence
from edgegpu_sync.faults import first_fault, not_known
from edgegpu_sync.wire import (
    ITEM_NAME_MAX,
    Core,
    Count,
    CriticalPiece,
    Json,
    Name,
    Token,
    Units,
    WireModel,
    clipped,
    digest,
)

MAX_APP_LIMITS = 100
"""Apps in one document: more would not fit into 64 KiB of answers."""

MAX_CRITICAL = 32
"""Names in one `critical`."""


class IsolationMode(StrEnum):
    """What a container is held to."""

    NONE = "none"
    LIMITER = "limiter"
    MPS = "mps"


LIMITER = "isolation.limiter"
"""The capability of a box that takes isolation `limiter`."""

MPS = "isolation.mps"
"""The capability of a box that takes isolation `mps`."""


class OnDrift(StrEnum):
    """What is done when somebody else writes an app's limits back."""

    REPORT = "report"
    ENFORCE = "enforce"


class Item(CriticalPiece):
    """What every item carries: the revision in which it was last edited, and a number that asks to try it again."""

    rev: Count
    retry: Count = 0


class Sharing(Item):
    """Whether GPU sharing is installed on the box."""

    installed: bool


class Isolation(Item):
    """What containers are held to."""

    mode: IsolationMode


class PolicyItem(Item):
    """In which order cards are tried."""

    policy: Literal["first-fit", "best-fit", "spread"]


class Exclusions(Item):
    """Cards that are not offered: numbers (0), MIG devices (0:1) or UUIDs."""

    cards: Annotated[tuple[Token, ...], Field(max_length=64)]


class UnitSize(Item):
    """The MiB of one unit of memory."""

    mib: Annotated[int, Field(ge=1, le=1_048_576)]


class AppLimits(Item):
    """The limits of one container of an app; both amounts 0 take them away.

    `live`: where the limiter holds all of its pods and they hold enough, only what holds them changes.
    """

    cluster: Annotated[str, Field(pattern=r"^[0-9a-f-]{8,64}$")]
    namespace: Name
    app: Name
    container: Name
    memory_units: Units
    core: Core
    force: bool = False
    interrupt: bool = False
    live: bool = False
    on_drift: OnDrift = OnDrift.REPORT


AnyItem = Sharing | Isolation | PolicyItem | Exclusions | UnitSize | AppLimits
OfSharing = Isolation | PolicyItem | Exclusions | UnitSize
"""The settings of GPU sharing on a box, which end when sharing is taken off."""


class Spec(WireModel):
    """The whole of it, as a controller writes it; what is left out is left as it is on the box."""

    sharing: Sharing | None = None
    isolation: Isolation | None = None
    policy: PolicyItem | None = None
    exclusions: Exclusions | None = None
    unit_size: UnitSize | None = None
    app_limits: Annotated[tuple[AppLimits, ...], Field(max_length=MAX_APP_LIMITS)] = ()
    critical: Annotated[tuple[Token, ...], Field(max_length=MAX_CRITICAL)] = ()

    def to_json(self) -> Json:
        """Return the spec as it stands in a desired document.

        Defaults are left out: a controller with more fields must not change items that nobody has edited.
        """
        return self.model_dump(mode="json", exclude_defaults=True)


@dataclass(frozen=True, slots=True)
class TryKey:
    """The key of a try: an item is tried once for each key, so a refused one is not applied because room appeared."""

    rev: int
    digest: str
    retry: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedItem:
    """An item as a box reads it; `item` is None where this version cannot do it, and `unsupported` says why."""

    name: str
    key: TryKey
    item: AnyItem | None
    unsupported: str = ""


SINGLE_ITEMS: dict[str, type[AnyItem]] = {
    "sharing": Sharing,
    "isolation": Isolation,
    "policy": PolicyItem,
    "exclusions": Exclusions,
    "unit_size": UnitSize,
}
"""The items of which a document has one each, in the order in which they are tried."""


def asked(spec: Json, rev: int) -> tuple[AskedItem, ...]:
    """Read a spec item by item, in the order in which they are tried; an item that is unknown harms no other.

    Args:
        spec: as it came; fields and items that are unknown are ignored unless `critical` names them.
        rev: the document's, for items that do not say when they were edited.
    """
    found = list(_read(spec, rev))
    names = [one.name for one in found]
    twice = "it stands there twice"
    return tuple(replace(one, item=None, unsupported=twice) if names.count(one.name) > 1 else one for one in found)


def _read(spec: Json, rev: int) -> Iterator[AskedItem]:
    for name, model in SINGLE_ITEMS.items():
        if spec.get(name) is not None:
            yield _item(name, model, spec[name], rev=rev)
    apps, critical = _as_list(spec.get("app_limits")), _as_list(spec.get("critical"))
    for place, value in enumerate(apps[:MAX_APP_LIMITS]):
        yield _item(f"app_limits/#{place}", AppLimits, value, rev=rev)
    if rest := apps[MAX_APP_LIMITS:]:
        why = f"a document has at most {MAX_APP_LIMITS} apps, here are {len(rest)} more"
        yield _unsupported(f"app_limits/#{MAX_APP_LIMITS}", rest, rev=rev, why=why)
    if len(critical) > MAX_CRITICAL:
        yield _unsupported("critical", critical, rev=rev, why=f"it names more than {MAX_CRITICAL}")
    for needed in critical[:MAX_CRITICAL]:
        if not isinstance(needed, str) or needed not in Spec.model_fields:
            text = clipped(str(needed), 64)
            yield _unsupported(text, spec.get(text), rev=rev, why=sentence("this agent does not know it"))


def _as_list(value: JsonValue) -> list[JsonValue]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def item_name(limits: AppLimits) -> str:
    """Return the name under which an app's limits are settled."""
    return f"app_limits/{limits.namespace}/{limits.app}/{limits.container}"


def _item(name: str, model: type[AnyItem], value: JsonValue, *, rev: int) -> AskedItem:
    try:
        item = model.model_validate_json(json.dumps(value))
    except ValidationError as error:
        return _unsupported(name, value, rev=rev, why=first_fault(error))
    if isinstance(item, AppLimits):
        if len(item_name(item)) > ITEM_NAME_MAX:
            return _unsupported(name, value, rev=rev, why=sentence("its names are too long together"))
        name = item_name(item)
    if missing := item.not_understood():
        return _unsupported(name, value, rev=rev, why=not_known(missing))
    return AskedItem(name=name, key=TryKey(item.rev, digest(value), item.retry), item=item)


def _unsupported(name: str, value: JsonValue, *, rev: int, why: str) -> AskedItem:
    text = clipped(why, 200)
    whole = why if why == text else text
    return AskedItem(name=name, key=TryKey(rev, digest(value), 0), item=None, unsupported=whole)
