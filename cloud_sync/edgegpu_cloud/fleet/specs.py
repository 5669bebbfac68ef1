"""Edits of a desired document, as values: an edited item gets the new revision, the others keep theirs."""

import json
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TypeVar

from pydantic import ValidationError

from edgegpu_cloud.errors import CloudError, NotFoundError
from edgegpu_cloud.phrases import phrase
from edgegpu_sync.errors import TooLargeError
from edgegpu_sync.faults import fault, first_fault
from edgegpu_sync.messages.downlink import Desired
from edgegpu_sync.messages.spec import (
    SINGLE_ITEMS,
    AnyItem,
    AppLimits,
    Item,
    OnDrift,
    Sharing,
    Spec,
    asked,
    item_name,
)
from edgegpu_sync.wire import BODY_MAX_BYTES, Json, encode

_ROOM = 64
"""Bytes that are left free: numbers grow longer when the same document is sent under a later enrolment."""

ANY_CLUSTER = "0" * 8
"""A cluster for limits that are only looked at."""

_SYSTEM = "kube-system"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_CARD = re.compile(r"[0-9]{1,3}(:[0-9]{1,3})?|(GPU|MIG)-[0-9a-zA-Z-]{1,59}")

AnItem = TypeVar("AnItem", bound=Item)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsPatch:
    """New limits of one container of an app, as a person asks for them; None: as it is on each box."""

    namespace: str
    app: str
    container: str
    memory_units: int | None = None
    core: int | None = None
    force: bool = False
    interrupt: bool = False
    live: bool = False
    on_drift: OnDrift | None = None
    """None: as it was before, else `report`."""

    @property
    def is_whole(self) -> bool:
        """Whether both amounts are named: then nothing counts of what boxes have."""
        return self.memory_units is not None and self.core is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLimits(LimitsPatch):
    """The limits of one container of an app with both amounts, as a document has them; both 0 take them away."""

    memory_units: int
    core: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSettings:
    """The requested sharing of a box's cards, in the words of its own command line; None: unchanged."""

    isolation: str | None = None
    policy: str | None = None
    exclude: tuple[str, ...] | None = None
    unit_mib: int | None = None


def read_app(text: str) -> tuple[str, str]:
    """Return namespace and name of an app that a person has typed: `NAMESPACE/APP`, or the app alone in `default`.

    Raises:
        CloudError: it is neither.
    """
    namespace, slash, app = text.strip().rpartition("/")
    if (slash and not namespace) or not app or "/" in namespace:
        raise CloudError(
            phrase("no NAMESPACE/APP: %(text)r", text=text),
            remedy=phrase("name the app as default/asr, or asr alone in default"),
        )
    return namespace or "default", app


def desired_items(spec: Spec) -> dict[str, AnyItem]:
    """Return the items of a document under the names by which they are settled, in the order of settlement."""
    singles = {name: item for name in SINGLE_ITEMS if (item := getattr(spec, name)) is not None}
    return {**singles, **{item_name(item): item for item in spec.app_limits}}


def revised(before: Spec, after: Spec, rev: int) -> Spec:
    """Return `after` with `rev` in each item that differs from `before`; a higher `retry` alone is no difference.

    The items' own revisions in `after` do not count. The same document comes back as it was.
    """
    old = desired_items(before)
    changes: dict[str, object] = {
        name: _item(old.get(name), item, rev) for name in SINGLE_ITEMS if (item := getattr(after, name)) is not None
    }
    changes["app_limits"] = tuple(_item(old.get(item_name(item)), item, rev) for item in after.app_limits)
    return after.model_copy(update=changes)


def _item(before: AnyItem | None, after: AnItem, rev: int) -> AnItem:
    if before is not None and _plain(before) == _plain(after):
        return after.model_copy(update={"rev": before.rev})
    return after.model_copy(update={"rev": rev})


def _plain(item: Item) -> Json:
    return item.model_dump(mode="json", exclude={"rev", "retry"})


def checked(spec: Spec, *, enrolment: int, rev: int) -> Json:
    """Return a document as it is stored and sent.

    Raises:
        CloudError: an item is not valid, an item is there twice, or the document has more than 64 KiB.
    """
    value = spec.to_json()
    try:
        Spec.model_validate_json(spec.model_dump_json())  # model_copy does not validate an edit
        encode(Desired(enrolment=enrolment, rev=rev, spec=value), limit_bytes=BODY_MAX_BYTES - _ROOM)
    except ValidationError as error:
        raise CloudError(
            phrase("cannot set this: %(fault)s", fault=first_fault(error)),
            remedy=phrase("correct it and set it again"),
        ) from error
    except TooLargeError as error:
        remedy = phrase("take limits of apps away that are not needed any more")
        raise CloudError(
            phrase("cannot set this: the document is too large (%(error)s)", error=error), remedy=remedy
        ) from error
    for one in asked(value, rev):
        if one.item is None:
            raise CloudError(
                phrase("cannot set %(name)s: %(fault)s", name=one.name, fault=one.unsupported),
                remedy=phrase("each item once, with known fields"),
            )
    return value


def with_sharing(spec: Spec, *, installed: bool) -> Spec:
    """Return a document with GPU sharing installed or not; the same request again is tried again."""
    now = spec.sharing
    if now is not None and now.installed == installed:
        return spec.model_copy(update={"sharing": now.model_copy(update={"retry": now.retry + 1})})
    return spec.model_copy(update={"sharing": Sharing(rev=0, installed=installed)})


def with_limits(spec: Spec, limits: ContainerLimits, *, cluster: str) -> Spec:
    """Return a document with new limits for a container; the same limits again are tried again.

    Raises:
        CloudError: a name or an amount is not valid.
    """
    wanted = _app_limits(limits).model_copy(update={"cluster": cluster})
    key = (cluster, item_name(wanted))
    same = [item for item in spec.app_limits if (item.cluster, item_name(item)) == key]
    others = tuple(item for item in spec.app_limits if item not in same)
    if same:
        on_drift = limits.on_drift or same[0].on_drift
        wanted = _retried(same[0], wanted.model_copy(update={"on_drift": on_drift}))
    return spec.model_copy(update={"app_limits": (*others, wanted)})


def without_limits(spec: Spec, namespace: str, app: str, container: str | None) -> Spec:
    """Return a document without the limits of an app, or of one of its containers; the limits on the box stay.

    Raises:
        NotFoundError: there are none.
    """
    gone = [
        one
        for one in spec.app_limits
        if (one.namespace, one.app) == (namespace, app) and container in {None, one.container}
    ]
    if not gone:
        whole = "/".join(word for word in (namespace, app, container) if word)
        raise NotFoundError(
            phrase("cannot forget limits of %(whole)s: none were requested", whole=whole),
            remedy=phrase("`edgegpu-cloud limits show BOX` lists them"),
        )
    return spec.model_copy(update={"app_limits": tuple(one for one in spec.app_limits if one not in gone)})


def without_refused(spec: Spec, limits: LimitsPatch, refused: Collection[str]) -> Spec:
    """Return a document without the refused requests for other containers of this app."""
    kept = (
        one
        for one in spec.app_limits
        if one.container == limits.container
        or (one.namespace, one.app) != (limits.namespace, limits.app)
        or item_name(one) not in refused
    )
    return spec.model_copy(update={"app_limits": tuple(kept)})


def without_items(spec: Spec, names: Collection[str]) -> Spec:
    """Return a document without these items; the settings on the box stay.

    Raises:
        NotFoundError: one of them is not requested.
    """
    unknown = [name for name in names if name not in SINGLE_ITEMS or getattr(spec, name) is None]
    if unknown or not names:
        text = phrase(
            "cannot take back %(unknown)s: it was not requested", unknown=", ".join(unknown) or phrase("nothing")
        )
        there = [name for name in SINGLE_ITEMS if getattr(spec, name) is not None]
        raise NotFoundError(text, remedy=phrase("requested are: %(there)s", there=", ".join(there) or phrase("none")))
    return spec.model_copy(update=dict.fromkeys(names))


def check_app(namespace: str, app: str, container: str) -> None:
    """Refuse at once an app that no box accepts.

    Raises:
        CloudError: kube-system, or a name that Kubernetes does not have.
    """
    if namespace == _SYSTEM:
        text = phrase("cannot set limits of %(app)s: apps in %(system)s are never changed", app=app, system=_SYSTEM)
        raise CloudError(text, remedy=phrase("name an app of another namespace"))
    for what, name in (
        (phrase("no name of a namespace"), namespace),
        (phrase("no name of an app"), app),
        (phrase("no name of a container"), container),
    ):
        if not _NAME.fullmatch(name):
            text = phrase("cannot set limits: %(name)r is %(what)s", name=name, what=what)
            raise CloudError(
                text, remedy=phrase("give small letters, digits, - and . alone, 253 at most, as in `kubectl get`")
            )


@lru_cache(maxsize=16)
def _app_limits(limits: ContainerLimits) -> AppLimits:
    """Return the item for these limits, without its cluster; a request for many boxes is checked once."""
    check_app(limits.namespace, limits.app, limits.container)
    on_drift = limits.on_drift or OnDrift.REPORT
    try:
        return AppLimits(rev=0, cluster=ANY_CLUSTER, **asdict(replace(limits, on_drift=on_drift)))
    except ValidationError as error:
        raise CloudError(
            phrase("cannot set limits: %(fault)s", fault=first_fault(error)),
            remedy=phrase("see docs/app-limits.md"),
        ) from error


def with_settings(spec: Spec, settings: SharingSettings) -> Spec:
    """Return a document with other settings of sharing; the same setting again is tried again.

    Raises:
        CloudError: nothing is asked for, or a value is not valid.
    """
    asked_for: dict[str, tuple[str, object]] = {
        "isolation": ("mode", settings.isolation),
        "policy": ("policy", settings.policy),
        "exclusions": ("cards", None if settings.exclude is None else _cards(settings.exclude)),
        "unit_size": ("mib", settings.unit_mib),
    }
    changes = {
        name: _setting(spec, name, {field: value}) for name, (field, value) in asked_for.items() if value is not None
    }
    if not changes:
        raise CloudError(
            phrase("cannot set sharing: no setting is given"),
            remedy=phrase("give --policy, --exclude, --unit-mib or --isolation"),
        )
    return spec.model_copy(update=changes)


def _cards(words: tuple[str, ...]) -> list[str]:
    """Read cards as the box's own command line does: `none` alone is no card at all; a card given twice counts once."""
    if words == ("none",):
        return []
    wrong = [word for word in words if not _CARD.fullmatch(word)]
    if wrong or not words:
        text = phrase(
            "cannot exclude %(names)s: no number, MIG device or UUID of a card",
            names=", ".join(map(repr, wrong)) or phrase("nothing"),
        )
        raise CloudError(text, remedy=phrase("give 0, 0:1 or GPU-..., several times, or `none` alone to share all"))
    return list(dict.fromkeys(words))


def _setting(spec: Spec, name: str, value: dict[str, object]) -> Item:
    model, now = SINGLE_ITEMS[name], getattr(spec, name)
    try:
        wanted = model.model_validate_json(json.dumps({"rev": 0, **value}))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise CloudError(
            phrase("cannot set %(name)s: %(fault)s", name=name, fault=fault(first)),
            remedy=phrase("see `edgegpu-cloud sharing set --help`"),
        ) from error
    return wanted if now is None else _retried(now, wanted)


def _retried(now: AnItem, wanted: AnItem) -> AnItem:
    """Return the wanted item; where it equals the present one it has a higher `retry`."""
    again = _plain(now) == _plain(wanted)
    return wanted.model_copy(update={"retry": now.retry + 1 if again else now.retry})
