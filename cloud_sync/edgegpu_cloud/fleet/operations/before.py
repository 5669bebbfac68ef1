"""What boxes have before an operation changes them, as arguments that bring it back."""

from collections.abc import Mapping

from edgegpu_cloud.fleet.operations.batches import BoxBatch
from edgegpu_cloud.fleet.present.amounts import PresentLimits
from edgegpu_cloud.fleet.reports import read_latest
from edgegpu_cloud.fleet.specs import LimitsPatch, SharingSettings
from edgegpu_cloud.store.records import BoxRecord, Json, Latest
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.spec import AppLimits, OnDrift, Spec
from edgegpu_sync.messages.telemetry import Inventory
from edgegpu_sync.topics import TopicKind


def keep_before(batch: BoxBatch, box: BoxRecord, before: Json | None) -> None:
    """Keep what a box has; None: it is not known."""
    if before is not None:
        batch.before[box.device] = before


def read_inventory(told: Mapping[tuple[DeviceId, TopicKind], Latest], device: DeviceId) -> Inventory | None:
    """Return the last report of a box's cards."""
    one = told.get((device, TopicKind.INVENTORY))
    found: Inventory | None = None if one is None else read_latest({TopicKind.INVENTORY: one}, TopicKind.INVENTORY)
    return found


def limits_before(item: AppLimits | None, present: PresentLimits, limits: LimitsPatch) -> Json | None:
    """Return what brings back the limits that a container has.

    Args:
        item: what is requested of it now; None: nothing.
        present: what it has.
        limits: the change; what may stop the app for it may do so on the way back.
    """
    if present.memory_units is None or present.core is None:
        return None
    amounts: Json = {"memory_units": present.memory_units, "core": present.core}
    if item is None:
        return {**amounts, "force": False, "live": False, "on_drift": OnDrift.REPORT.value}
    flags: Json = {"force": item.force, "live": item.live, "on_drift": item.on_drift.value}
    return {**amounts, **flags, "interrupt": item.interrupt or limits.interrupt}


def settings_before(spec: Spec, told: Inventory | None, settings: SharingSettings) -> Json | None:
    """Return what brings back the settings of a box that a change sets: what is requested, else what it reports."""
    there = told if told is not None and told.sharing else None
    excluded = [card.label for card in there.cards if card.excluded] if there else None
    cards = list(spec.exclusions.cards) if spec.exclusions else excluded
    values: Json = {
        "isolation": spec.isolation.mode.value if spec.isolation else there.mode if there else None,
        "policy": spec.policy.policy if spec.policy else there.policy if there else None,
        "exclude": None if cards is None else cards or ["none"],
        "unit_mib": spec.unit_size.mib if spec.unit_size else there.unit_mib if there else None,
    }
    asked = {name: value for name, value in values.items() if getattr(settings, name) is not None}
    return asked if None not in asked.values() else None


def sharing_before(spec: Spec, told: Inventory | None) -> Json | None:
    """Return whether a box has GPU sharing: as it reports it, else as it is requested."""
    if told is not None:
        return {"installed": told.sharing}
    return {"installed": spec.sharing.installed} if spec.sharing is not None else None
