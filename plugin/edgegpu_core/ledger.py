"""kubelet's device checkpoint, and the ledger of which container holds which device ids; dead pods are left out."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgegpu_core.deviceid import DeviceKind, count_by_card
from edgegpu_core.inventory import CardCapacity, FreeAmounts
from edgegpu_core.model import CORE_PER_CARD, ResourceModel
from edgegpu_core.placement import Share


class CheckpointError(ValueError):
    """The file is no device checkpoint of kubelet; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """The devices of one resource that kubelet booked for one container, also for an init container."""

    pod_uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]
    answer: str = field(default="", compare=False, repr=False)
    """The device plugin's answer to Allocate, which kubelet replays at each start: the message in base64."""


def parse_checkpoint(text: str | bytes) -> tuple[CheckpointEntry, ...]:
    """Read kubelet's device checkpoint, which keeps the entries of dead pods until kubelet writes it again.

    `DeviceIDs` is a list up to Kubernetes 1.19 and a map from NUMA node to list since then.

    Raises:
        CheckpointError: not JSON, or not of either shape.
    """
    try:
        return tuple(_entry(entry) for entry in json.loads(text)["Data"]["PodDeviceEntries"] or ())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"cannot read kubelet's device checkpoint: {type(error).__name__}: {error}") from error


def _entry(value: Any) -> CheckpointEntry:  # noqa: ANN401  (foreign JSON)
    ids = value["DeviceIDs"]
    lists = list(ids.values()) if isinstance(ids, dict) else [ids]
    if not all(part is None or isinstance(part, list) for part in lists):
        raise TypeError("DeviceIDs is neither a list nor a map of lists")
    found = tuple(text for part in lists for text in part or ())
    names = (value["PodUID"], value["ContainerName"], value["ResourceName"])
    "".join((*names, *found))  # raises TypeError for what is no text, at a fifth of the cost of checking each
    answer = value.get("AllocResp")
    return CheckpointEntry(*names, found, answer if isinstance(answer, str) else "")


class Grant:
    """The device ids of one container, never changed, since several ledgers share one grant."""

    __slots__ = ("_cards", "ids")

    def __init__(self, ids: Mapping[DeviceKind, tuple[str, ...]] | None = None) -> None:
        self.ids: Mapping[DeviceKind, tuple[str, ...]] = ids or {}
        self._cards: tuple[str, ...] | None = None

    def with_ids(self, kind: DeviceKind, ids: tuple[str, ...]) -> "Grant":
        """Return a grant with the ids of one more resource."""
        return Grant({**self.ids, kind: ids})

    def cards(self) -> tuple[str, ...]:
        """Return the cards that the ids lie on, in a fixed order; a sound share has one."""
        if self._cards is None:
            self._cards = tuple(sorted({card for ids in self.ids.values() for card in count_by_card(ids)}))
        return self._cards


class Ledger:
    """The grants of one node, by the pod UIDs that kubelet uses, then by container."""

    __slots__ = ("_grants",)

    def __init__(self) -> None:
        self._grants: dict[str, dict[str, Grant]] = {}

    @classmethod
    def of_entries(
        cls, entries: Iterable[CheckpointEntry], model: ResourceModel, before: "Ledger | None" = None
    ) -> "Ledger":
        """Build the ledger from kubelet's checkpoint, without resources that are not ours.

        Args:
            entries: the entries of the checkpoint.
            model: which resources are ours.
            before: an earlier ledger; equal grants are taken from it, since they know their cards already.
        """
        kinds = {model.memory_resource: DeviceKind.MEMORY, model.core_resource: DeviceKind.CORE}
        found: dict[tuple[str, str], dict[DeviceKind, tuple[str, ...]]] = {}
        for entry in entries:
            kind = kinds.get(entry.resource)
            if kind is not None:
                found.setdefault((entry.pod_uid, entry.container), {})[kind] = entry.device_ids
        ledger = cls()
        for (uid, container), ids in found.items():
            known = None if before is None else before.grants(uid).get(container)
            grant = known if known is not None and known.ids == ids else Grant(ids)
            ledger._grants.setdefault(uid, {})[container] = grant
        return ledger

    def add(self, uid: str, container: str, kind: DeviceKind, ids: tuple[str, ...]) -> None:
        """Book ids for a container."""
        grants = self._grants.get(uid, {})
        self._grants[uid] = {**grants, container: (grants.get(container) or Grant()).with_ids(kind, ids)}

    def only(self, live: Iterable[str]) -> "Ledger":
        """Return a ledger of these pods alone."""
        kept = Ledger()
        wanted = frozenset(live)
        kept._grants = {uid: grants for uid, grants in self._grants.items() if uid in wanted}
        return kept

    def pods(self) -> tuple[str, ...]:
        """Return the UIDs of all pods that hold something."""
        return tuple(self._grants)

    def grants(self, uid: str) -> Mapping[str, Grant]:
        """Return a pod's grants by container; empty when it holds nothing."""
        return self._grants.get(uid, {})

    def grant(self, uid: str, container: str) -> Grant:
        """Return a container's grant; an empty one when it holds nothing."""
        return self.grants(uid).get(container) or Grant()

    def ids(self, *, card: str = "") -> frozenset[str]:
        """Return the ids that pods hold, or with `card` those of the containers that have devices of this card."""
        grants = (grant for by_container in self._grants.values() for grant in by_container.values())
        some = (grant for grant in grants if not card or card in grant.cards())
        return frozenset(text for grant in some for ids in grant.ids.values() for text in ids)

    def held(self, uid: str, slots: tuple[CardCapacity, ...]) -> tuple[Share, ...]:
        """Return what a pod holds of each card; reused ids count once, a whole card counts with all its units."""
        ids: dict[DeviceKind, set[str]] = {DeviceKind.MEMORY: set(), DeviceKind.CORE: set()}
        whole: set[str] = set()
        for grant in self.grants(uid).values():
            for kind, some in grant.ids.items():
                ids[kind].update(some)
            core = count_by_card(grant.ids.get(DeviceKind.CORE, ()))
            whole.update(card for card, count in core.items() if count == CORE_PER_CARD)
        units = {slot.uuid: slot.units for slot in slots}
        memory, core = count_by_card(ids[DeviceKind.MEMORY]), count_by_card(ids[DeviceKind.CORE])
        return tuple(
            Share(card, units.get(card, 0) if card in whole else memory.get(card, 0), core.get(card, 0))
            for card in sorted(memory.keys() | core.keys())
        )

    def owners_of(self, kind: DeviceKind, ids: Iterable[str]) -> list[tuple[str, str]]:
        """Return pod UID and container of all that hold exactly these ids: several of a pod that reuses them."""
        wanted = frozenset(ids)
        return [
            (uid, container)
            for uid, grants in self._grants.items()
            for container, grant in grants.items()
            if len(have := grant.ids.get(kind, ())) == len(wanted) and wanted == frozenset(have)
        ]


def free_after(slots: tuple[CardCapacity, ...], holdings: Iterable[Iterable[Share]]) -> FreeAmounts:
    """Return what is free on each card when these shares are held; shares of unknown cards are ignored."""
    free = FreeAmounts(slots)
    positions = {slot.uuid: position for position, slot in enumerate(slots)}
    for shares in holdings:
        for share in shares:
            position = positions.get(share.card)
            if position is not None:
                free.take(position, share.memory_units, share.core)
    return free
