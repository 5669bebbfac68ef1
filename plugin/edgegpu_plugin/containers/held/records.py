"""What kubelet's records say of a container: how it is held, its units, whether it can have a live limit."""

from collections.abc import Iterable, Mapping, Sequence

from edgegpu_core.choices.answers import answer_bytes, given_by
from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.deviceid import DeviceKind, count_by_card, parse
from edgegpu_core.ledger import CheckpointEntry
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_core.nodeview import NodeView
from edgegpu_core.podview import PodView
from edgegpu_core.request import ContainerRequest, ContainerRole
from edgegpu_plugin.config.schema import IsolationSection
from edgegpu_plugin.containers.container_folder import FolderState
from edgegpu_plugin.containers.held.container_state import ContainerIsolation
from edgegpu_plugin.containers.held.reasons import BEFORE, CHOSEN, NOT_PRELOADED
from edgegpu_plugin.containers.limiter_files import PIPE_FOLDER, PRELOAD_LIST, PRELOADED
from edgegpu_plugin.containers.usage_file import uuid_digits
from edgegpu_plugin.errors import LiveLimitError, PluginError, UnknownContainerError


def is_limited(entry: CheckpointEntry) -> bool:
    """Return whether kubelet's answer for these devices names the limiter."""
    return given_by(entry.answer).isolation != PluginIsolation.NONE


def check_marks(entries: Iterable[CheckpointEntry]) -> bool:
    """Return whether kubelet's answers for a container name the limiter. Raises PluginError where they differ."""
    marked = {is_limited(entry) for entry in entries}
    if len(marked) > 1:
        raise PluginError("its devices were given under two settings of isolation: delete the pod")
    return True in marked


def check_names(cards: Iterable[str]) -> None:
    """Check that the limiter can name these cards in its files. Raises PluginError."""
    if nameless := [card for card in cards if not uuid_digits(card)]:
        raise PluginError(f"the limiter cannot name card {nameless[0]}: set isolation.mode to none, delete the pod")


def is_preloaded(entry: CheckpointEntry) -> bool:
    """Return whether kubelet's answer for these devices has the limiter preloaded, and not mounted over the driver."""
    return PRELOADED.encode() in answer_bytes(entry.answer)


def has_list(entry: CheckpointEntry) -> bool:
    """Return whether kubelet's answer for these devices brings a list of preloaded libraries, for a start to fill."""
    return PRELOAD_LIST.encode() in answer_bytes(entry.answer)


def is_mps_client(entry: CheckpointEntry) -> bool:
    """Return whether kubelet's answer for these devices brings the pipe folder of MPS."""
    return PIPE_FOLDER.encode() in answer_bytes(entry.answer)


def opened_by(entries: Iterable[CheckpointEntry]) -> frozenset[str]:
    """Return what of the driver a container was given beside compute, by kubelet's answers for it."""
    return frozenset(one for entry in entries for one in given_by(entry.answer).capabilities)


def has_folder(ids: Iterable[str]) -> bool:
    """Return whether the answer for these ids of one resource brings a container's folder."""
    ids = tuple(ids)
    return bool(ids) and (parse(ids[0]).kind is DeviceKind.MEMORY or len(ids) >= CORE_PER_CARD)


def check_live(
    now: ContainerIsolation, view: NodeView, entries: list[CheckpointEntry], memory_units: Mapping[str, int]
) -> None:
    """Check that a container can have a live limit. Raises UnknownContainerError, LiveLimitError."""
    if not entries:
        raise UnknownContainerError("no container of this pod and name holds devices: `edgegpu pods` lists all")
    if now.state != "enforced":
        why = now.reason or "isolation.mode is none, or was when its pod was admitted"
        raise LiveLimitError(f"nothing holds this container to its memory ({now.state}): {why}")
    uid, name = entries[0].pod_uid, entries[0].container
    if any(one.name == name and one.role is ContainerRole.INIT for one in _containers(view, uid)):
        raise LiveLimitError("an init container hands its devices on, and keeps the limit that it was given")
    held = units_by_card(view, uid, name)
    for card, count in memory_units.items():
        if card not in held:
            raise LiveLimitError(f"the container has no card {card}; it has {', '.join(held)}")
        if not 1 <= count <= held[card]:
            raise LiveLimitError(
                f"{count} units cannot be its limit: the container holds {held[card]} on card {card}, and a live limit "
                "is at least 1 and no more than that; more needs a new pod"
            )


def _containers(view: NodeView, uid: str) -> tuple[ContainerRequest, ...]:
    pod = view.pods.get(uid)
    return () if pod is None else pod.containers


def units_by_card(view: NodeView, uid: str, container: str) -> dict[str, int]:
    """Return the memory units that a container holds, by card; a whole card counts with all its units."""
    grant = view.ledger.grant(uid, container)
    units = count_by_card(grant.ids.get(DeviceKind.MEMORY, ()))
    core = count_by_card(grant.ids.get(DeviceKind.CORE, ()))
    slots = {slot.uuid: slot.units for slot in view.slots}
    whole = {card: slots.get(card, 0) for card, count in core.items() if count == CORE_PER_CARD}
    return {card: max(units.get(card, 0), whole.get(card, 0)) for card in sorted(units | core)}


def unheld(pod: PodView | None, settings: IsolationSection, *, by_runtime: bool) -> ContainerIsolation:
    """Return the state of a container that nothing holds: `off` where the node or, as it may, its pod says so."""
    chosen = "" if pod is None else pod.choice.isolation
    if chosen == PluginIsolation.NONE and chosen in settings.chosen_by_pods:
        return ContainerIsolation("off", CHOSEN)
    if not settings.mode.has_limiter:
        return ContainerIsolation("off")
    return ContainerIsolation("degraded", NOT_PRELOADED if by_runtime else BEFORE)


def enforced(states: Sequence[FolderState], units: Mapping[str, int], unit_bytes: int) -> ContainerIsolation:
    """Return the state of a container that is held, by what its folders say and the units that it holds by card."""
    limits = states[0].limits
    return ContainerIsolation(
        "enforced",
        limits={card: one.memory_bytes for card, one in limits.items()},
        core={card: one.core_percent for card, one in limits.items() if one.core_percent},
        counted={card: max(state.used(card) for state in states) for card in limits},  # of two it uses one
        held={card: count * unit_bytes for card, count in units.items()},
        unit_bytes=unit_bytes,
        refusals={card: max(state.refused(card) for state in states) for card in limits},
        limiter=next((state.counts.limiter for state in states if state.counts.limiter), ""),
        tables=tuple(sorted({table for state in states for table in state.counts.tables})),
    )
