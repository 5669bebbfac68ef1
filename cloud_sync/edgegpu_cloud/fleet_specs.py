"""Edits of a desired document, as values: what was edited gets the new revision, the rest keeps the one it has."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError

from edgegpu_cloud.errors import CloudError
from edgegpu_sync.down import Desired
from edgegpu_sync.errors import TooLargeError
from edgegpu_sync.spec import AnyItem, AppLimits, Item, Sharing, Spec, asked
from edgegpu_sync.wire import BODY_MAX_BYTES, Json, encode

_ROOM = 64
"""Bytes that are left free: numbers grow longer when the same document is sent under a later enrolment."""

_SINGLE = ("sharing", "isolation", "policy", "exclusions", "unit_size")

AnItem = TypeVar("AnItem", bound=Item)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one container of an app, as a person asks for them; both amounts 0 take them away."""

    namespace: str
    app: str
    container: str
    memory_units: int
    core: int
    force: bool = False
    interrupt: bool = False


def revised(before: Spec, after: Spec, rev: int) -> Spec:
    """Return `after` with `rev` in each item that differs from `before`; only a higher `retry` is no such difference.

    What `after` holds as an item's own revision does not count. The same document comes back as it was.
    """
    old = {_key(item): item for item in _items(before)}
    changes: dict[str, object] = {
        name: _item(old.get((name,)), item, rev) for name in _SINGLE if (item := getattr(after, name)) is not None
    }
    changes["app_limits"] = tuple(_item(old.get(_key(item)), item, rev) for item in after.app_limits)
    return after.model_copy(update=changes)


def _items(spec: Spec) -> Iterable[AnyItem]:
    yield from (item for name in _SINGLE if (item := getattr(spec, name)) is not None)
    yield from spec.app_limits


def _key(item: AnyItem) -> tuple[str, ...]:
    if isinstance(item, AppLimits):
        return (item.cluster, item.namespace, item.app, item.container)
    return (next(name for name in _SINGLE if Spec.model_fields[name].annotation == type(item) | None),)


def _item(before: AnyItem | None, after: AnItem, rev: int) -> AnItem:
    if before is not None and _plain(before) == _plain(after):
        return after.model_copy(update={"rev": before.rev})
    return after.model_copy(update={"rev": rev})


def _plain(item: Item) -> Json:
    return item.model_dump(mode="json", exclude={"rev", "retry"})


def checked(spec: Spec, *, enrolment: int, rev: int) -> Json:
    """Return a document as it is kept and sent.

    Raises:
        CloudError: an item that cannot be, one that stands there twice, or more than 64 KiB.
    """
    value = spec.to_json()
    try:
        Spec.model_validate_json(spec.model_dump_json())  # an edit by model_copy has not been looked at
        encode(Desired(enrolment=enrolment, rev=rev, spec=value), limit_bytes=BODY_MAX_BYTES - _ROOM)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CloudError(f"cannot set this: {where}: {first['msg']}", remedy="put it right and set it again") from error
    except TooLargeError as error:
        remedy = "take limits of apps away that are not needed any more"
        raise CloudError(f"cannot set this: the document is too large ({error})", remedy=remedy) from error
    for one in asked(value, rev):
        if one.item is None:
            raise CloudError(f"cannot set {one.name}: {one.unsupported}", remedy="each item once, with known fields")
    return value


def with_sharing(spec: Spec, *, installed: bool) -> Spec:
    """Return a document in which GPU sharing shall be so; asked for again it is tried again."""
    now = spec.sharing
    if now is not None and now.installed == installed:
        return spec.model_copy(update={"sharing": now.model_copy(update={"retry": now.retry + 1})})
    return spec.model_copy(update={"sharing": Sharing(rev=0, installed=installed)})


def with_limits(spec: Spec, limits: Limits, *, cluster: str) -> Spec:
    """Return a document with these limits in the place of that container's; the same once more is tried again.

    Raises:
        CloudError: a name or an amount that cannot be.
    """
    wanted = _app_limits(limits, cluster)
    same = [item for item in spec.app_limits if _key(item) == _key(wanted)]
    others = tuple(item for item in spec.app_limits if _key(item) != _key(wanted))
    if same:
        again = _plain(same[0]) == _plain(wanted.model_copy(update={"on_drift": same[0].on_drift}))
        kept = {"retry": same[0].retry + 1 if again else same[0].retry, "on_drift": same[0].on_drift}
        wanted = wanted.model_copy(update=kept)
    return spec.model_copy(update={"app_limits": (*others, wanted)})


def _app_limits(limits: Limits, cluster: str) -> AppLimits:
    try:
        return AppLimits(
            rev=0,
            cluster=cluster,
            namespace=limits.namespace,
            app=limits.app,
            container=limits.container,
            memory_units=limits.memory_units,
            core=limits.core,
            force=limits.force,
            interrupt=limits.interrupt,
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CloudError(f"cannot set limits: {where}: {first['msg']}", remedy="see docs/app-limits.md") from error
