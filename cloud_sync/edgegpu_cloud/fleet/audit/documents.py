"""Desired documents in the audit: which items a revision changed, and the document before it; pure."""

from collections.abc import Iterable, Mapping

from edgegpu_cloud.fleet.audit.entries import AuditedChange, difference
from edgegpu_cloud.fleet.specs import desired_items
from edgegpu_cloud.store.records import Json
from edgegpu_sync.messages.spec import AnyItem, Spec

_APPS, _CRITICAL = "app_limits", "critical"


def changed_items(before: Spec, after: Spec) -> AuditedChange:
    """Return the items of a document that a revision changed, by name, as they are stored."""
    old, new = desired_items(before), desired_items(after)
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    critical = difference(_critical(before), _critical(after))
    return AuditedChange(_stored(old, changed) | critical.before, _stored(new, changed) | critical.after)


def _stored(items: Mapping[str, AnyItem], names: Iterable[str]) -> Json:
    """Return those of these items that are there, as `Spec.to_json` writes them."""
    return {name: items[name].model_dump(mode="json", exclude_defaults=True) for name in names if name in items}


def _critical(spec: Spec) -> Json:
    return {_CRITICAL: list(spec.critical)} if spec.critical else {}


def document_before(document: Json, change: AuditedChange) -> Json:
    """Return the document that was there before a revision: the items that it changed are as they were."""
    left = {name: item for name, item in stored_items(document).items() if name not in change.after}
    items = left | change.before
    singles = {name: item for name, item in items.items() if not _is_of_app(name)}
    apps = [item for name, item in items.items() if _is_of_app(name)]
    return singles | ({_APPS: apps} if apps else {})


def stored_items(document: Json) -> Json:
    """Return the items of a stored document by name; limits of apps that cannot be read are left out."""
    singles = {name: item for name, item in document.items() if name != _APPS}
    apps = document.get(_APPS) or []
    return singles | {_name(one): one for one in apps if isinstance(one, dict) and one.keys() >= _KEY}


_KEY = {"namespace", "app", "container"}


def _name(limits: Mapping[str, object]) -> str:
    return f"{_APPS}/{limits['namespace']}/{limits['app']}/{limits['container']}"


def _is_of_app(name: str) -> bool:
    return name.startswith(f"{_APPS}/")


def shown_values(values: Json | None) -> Json:
    """Return changed values as people see them: of an item of a document what they set of it."""
    return {name: _shown_item(value) for name, value in (values or {}).items()}


_OF_PROTOCOL = {"rev", "retry", "cluster"}


def _shown_item(value: object) -> object:
    """Return an item without the protocol's numbers and without what stands in its name; any other value as it is."""
    if not isinstance(value, dict) or "rev" not in value:
        return value
    hidden = _OF_PROTOCOL | (_KEY if value.keys() >= _KEY else set())
    return {name: one for name, one in value.items() if name not in hidden}
