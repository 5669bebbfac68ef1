"""The limits of apps on boxes by their values: what is wanted, and what the box reports; pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgegpu_cloud.fleet.limits.apps import app_name, is_pod_of
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.limits.outcomes import LimitsOutcome, outcome_of
from edgegpu_cloud.fleet.reports import card_reports
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.spec import AppLimits
from edgegpu_sync.messages.telemetry import CardShare, PodAlloc

_NONE = "none"
_AMOUNTS = r"[0-9]{1,16}\.[0-9]{1,16}"
_KEY = re.compile(rf"({_NONE}|{_AMOUNTS})_({_NONE}|{_AMOUNTS}(?:-{_AMOUNTS})*)_([0-9]{{1,16}})")


@dataclass(frozen=True, slots=True)
class PodAmounts:
    """What a container may use in one pod, and on which cards (UUIDs); a live limit is less than what it holds."""

    uid: str
    pod: str
    amounts: RequestedAmounts
    cards: tuple[str, ...]
    live_of_units: int | None = None
    """What it holds, where it is held to less than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppValue:
    """The limits of a container that some boxes have: `wanted` as requested, `reported` of its pods there.

    None is wanted where nothing was requested. Nothing is reported where it has no pod; several amounts where its pods
    have different ones. `unit_mib` is the size of a unit there, 0 where the box has not reported it.
    """

    wanted: RequestedAmounts | None
    reported: tuple[RequestedAmounts, ...]
    unit_mib: int

    @property
    def differs(self) -> bool:
        """Whether a pod has something else than what is wanted, or than another pod."""
        return len({*self.reported, *([self.wanted] if self.wanted and self.reported else ())}) > 1

    @property
    def amounts(self) -> tuple[RequestedAmounts, ...]:
        """What its pods have; what is wanted where it has none."""
        return self.reported or (() if self.wanted is None else (self.wanted,))

    @property
    def key(self) -> str:
        """The value as part of an address; `read_value` reads it."""
        wanted = _NONE if self.wanted is None else _text(self.wanted)
        return f"{wanted}_{'-'.join(map(_text, self.reported)) or _NONE}_{self.unit_mib}"


def _text(amounts: RequestedAmounts) -> str:
    return f"{amounts.memory_units}.{amounts.core}"


def read_value(key: str) -> AppValue | None:
    """Return the value of a key; None where it is none."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    wanted, reported, unit_mib = found.groups()
    return AppValue(
        wanted=None if wanted == _NONE else _amounts(wanted),
        reported=() if reported == _NONE else tuple(map(_amounts, reported.split("-"))),
        unit_mib=int(unit_mib),
    )


def _amounts(text: str) -> RequestedAmounts:
    units, _, core = text.partition(".")
    return RequestedAmounts(int(units), int(core))


@dataclass(frozen=True, slots=True)
class CountedValue:
    """A value, and how many boxes have it."""

    value: AppValue
    boxes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppValues:
    """One container of an app, with its values, the most frequent first."""

    key: ContainerKey
    values: Sequence[CountedValue]

    @property
    def boxes(self) -> int:
        """How many boxes have the container."""
        return sum(one.boxes for one in self.values)

    @property
    def differs(self) -> bool:
        """Whether boxes have different amounts, requested there or not, or a box something else than what is wanted."""
        amounts = {(one.value.amounts, one.value.unit_mib) for one in self.values}
        return len(amounts) > 1 or any(one.value.differs for one in self.values)


def values_on(
    limits: Iterable[AppLimits], pods: Mapping[str, PodAlloc], *, unit_mib: int
) -> dict[ContainerKey, AppValue]:
    """Return the values of a box's containers, by its requested limits and its report of pods."""
    wanted = _wanted(limits)
    running = _running(pods, wanted)
    return {
        key: _value(wanted.get(key), running.get(key, ()), unit_mib=unit_mib) for key in wanted.keys() | running.keys()
    }


def _wanted(limits: Iterable[AppLimits]) -> dict[ContainerKey, AppLimits]:
    return {ContainerKey(one.namespace, one.app, one.container): one for one in limits}


def _value(wanted: AppLimits | None, running: Iterable[PodAmounts], *, unit_mib: int) -> AppValue:
    reported = sorted({one.amounts for one in running}, key=lambda one: (-one.memory_units, -one.core))
    asked = None if wanted is None else RequestedAmounts(wanted.memory_units, wanted.core)
    return AppValue(wanted=asked, reported=tuple(reported), unit_mib=unit_mib)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOnBox:
    """An app's container on one box: its value, its pods, and what came of the requested limits."""

    device: DeviceId
    value: AppValue
    requested: AppLimits | None
    running: tuple[PodAmounts, ...]
    outcome: LimitsOutcome

    @property
    def amounts(self) -> RequestedAmounts | None:
        """The requested limits, else those that run; None where there is neither."""
        return self.value.wanted or (self.running[0].amounts if self.running else None)


def app_on_box(details: BoxDetails, key: ContainerKey) -> AppOnBox:
    """Return a container on a box."""
    reports, wanted = card_reports(details.latest), _wanted(details.spec.app_limits)
    running = tuple(_running(reports.pods if reports else {}, wanted).get(key, ()))
    requested, unit_mib = wanted.get(key), reports.inventory.unit_mib if reports else 0
    return AppOnBox(
        device=details.box.device,
        value=_value(requested, running, unit_mib=unit_mib),
        requested=requested,
        running=running,
        outcome=outcome_of(details.box, requested),
    )


def _running(pods: Mapping[str, PodAlloc], requested: Iterable[ContainerKey]) -> dict[ContainerKey, list[PodAmounts]]:
    """Return what runs, by container; an app with requested limits is told from its pods by its own name."""
    named = {(key.namespace, key.app) for key in requested}
    found: dict[ContainerKey, list[PodAmounts]] = {}
    for uid, pod in sorted(pods.items()):
        app = next((app for space, app in named if is_pod_of(pod, space, app)), app_name(pod.name))
        for container in dict.fromkeys(piece.container for piece in pod.pieces):
            pieces = [piece for piece in pod.pieces if piece.container == container]
            one = PodAmounts(
                uid=uid,
                pod=pod.name,
                amounts=RequestedAmounts(sum(_used(piece) for piece in pieces), sum(piece.core for piece in pieces)),
                cards=tuple(piece.card for piece in pieces),
                live_of_units=_live_of(pieces),
            )
            found.setdefault(ContainerKey(pod.namespace, app, container), []).append(one)
    return found


def _live_of(pieces: Sequence[CardShare]) -> int | None:
    """Return the units that a container holds where it is held to less; else None."""
    held, used = sum(piece.memory_units for piece in pieces), sum(_used(piece) for piece in pieces)
    return held if used < held else None


def _used(piece: CardShare) -> int:
    """Return the units that a container may use of a card."""
    return piece.memory_units if piece.live_units is None else piece.live_units
