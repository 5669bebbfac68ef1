"""When something that is wrong becomes an alert, and when it is over; what is told together. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


class AlertKind(StrEnum):
    """What an alert is about."""

    OFFLINE = "offline"
    """A box was not heard for a while."""
    DRIFT = "drift"
    """Somebody on the box writes back what was requested."""
    NOT_APPLIED = "not-applied"
    """A requested setting or limit was refused, or failed."""
    UNHEALTHY = "unhealthy"
    """The box reports that a card, the plugin or another part is bad."""
    CLUSTER = "cluster"
    """A box reports another cluster than before, or several say that they apply one cluster's limits."""
    BOX_CERTIFICATE = "box-certificate"
    """A box's certificate ends soon: the box has not renewed it."""
    OWN_CERTIFICATE = "own-certificate"
    """A certificate of this controller ends soon."""
    ALARM = "alarm"
    """An alarm that nobody has seen: messages that the broker dropped, what a box has raised."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long something must be wrong before it fires, and right before it is over: who flaps does not flood."""

    fires_after_s: float
    clears_after_s: float


_MINUTE_S = 60.0

PATIENCE: Mapping[AlertKind, Patience] = {
    AlertKind.OFFLINE: Patience(15 * _MINUTE_S, 5 * _MINUTE_S),
    AlertKind.DRIFT: Patience(5 * _MINUTE_S, 5 * _MINUTE_S),
    AlertKind.NOT_APPLIED: Patience(2 * _MINUTE_S, 2 * _MINUTE_S),
    AlertKind.UNHEALTHY: Patience(2 * _MINUTE_S, 5 * _MINUTE_S),
    AlertKind.CLUSTER: Patience(2 * _MINUTE_S, 2 * _MINUTE_S),
    AlertKind.BOX_CERTIFICATE: Patience(0.0, 0.0),
    AlertKind.OWN_CERTIFICATE: Patience(0.0, 0.0),
    AlertKind.ALARM: Patience(0.0, 0.0),
}
"""The patience of each kind; that of `OFFLINE` is configured."""

GATHER_S = 120.0
"""When one alert fires or ends, those of its kind that would follow within this time do so with it."""

ALONE = 5
"""More alerts of one kind than these, at one time, are told in one message: a site's link is down, not each box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFinding:
    """Something that is wrong now; `since_s`: since when it is known to be so (seconds since 1970), None: just found.

    `device` is empty where it is no box's. `about` tells findings of one kind and one box apart.
    """

    kind: AlertKind
    device: str = ""
    about: str = ""
    text: str
    since_s: float | None = None

    @property
    def key(self) -> str:
        """What is the same for one alert at each look."""
        return f"{self.kind}/{self.device}/{self.about}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert: pending until `firing_at_s`, firing until `resolved_at_s`; times are seconds since 1970.

    `clear_since_s`: since when nothing is wrong any more; the alert is over when that has lasted. `silenced_until_s`:
    nobody is told before then.
    """

    kind: AlertKind
    device: str
    about: str
    text: str
    since_s: float
    firing_at_s: float | None = None
    clear_since_s: float | None = None
    resolved_at_s: float | None = None
    silenced_until_s: float = 0.0
    silenced_by: str = ""
    number: int = 0

    @property
    def key(self) -> str:
        """What is the same for one alert at each look."""
        return f"{self.kind}/{self.device}/{self.about}"

    @property
    def firing(self) -> bool:
        """Whether it was long enough so, and is not over."""
        return self.firing_at_s is not None and self.resolved_at_s is None

    def is_silenced(self, now_s: float) -> bool:
        """Whether nobody is to be told."""
        return now_s < self.silenced_until_s


class AlertEvent(StrEnum):
    """What somebody is told."""

    FIRING = "firing"
    RESOLVED = "resolved"
    TEST = "test"


NO_REASONS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class AlertStep:
    """The outcome of one look: alerts that are new or have changed, pending ones that went, and what is to be told."""

    changed: Sequence[Alert] = ()
    dropped: Sequence[Alert] = ()
    told: Sequence[tuple[AlertEvent, Sequence[Alert]]] = field(default_factory=tuple)


def step(
    open_: Iterable[Alert],
    findings: Iterable[AlertFinding],
    *,
    now_s: float,
    patience: Mapping[AlertKind, Patience] = PATIENCE,
    reasons: Mapping[str, str] = NO_REASONS,
) -> AlertStep:
    """Return what becomes of the alerts that are not over, by what is wrong now.

    The same look again, with the outcome of the first, tells nothing more. `reasons`: by an alert's key what it says
    once nothing is wrong any more.
    """
    now = {one.key: one for one in findings}
    before = {one.key: one for one in open_}
    keys = [*before, *(key for key in now if key not in before)]
    dropped = [one for key, one in before.items() if key not in now and one.firing_at_s is None]
    moved = [_moved(before.get(key), now.get(key), now_s, reasons.get(key, "")) for key in keys]
    after = _gathered([one for one in moved if one is not None], now_s, patience)
    changed = [one for one in after if one != before.get(one.key)]
    fired = [one for one in changed if one.firing and not _fires(before.get(one.key))]
    resolved = [one for one in changed if one.resolved_at_s is not None]
    told = [*_grouped(AlertEvent.FIRING, fired, now_s), *_grouped(AlertEvent.RESOLVED, resolved, now_s)]
    return AlertStep(changed, dropped, told)


def _fires(one: Alert | None) -> bool:
    return one is not None and one.firing


def _moved(held: Alert | None, finding: AlertFinding | None, now_s: float, reason: str) -> Alert | None:
    """Return an alert with what is known of it now; None where there is nothing and none that has fired."""
    if finding is None:
        if held is None or held.firing_at_s is None:
            return None
        clear_since_s = now_s if held.clear_since_s is None else held.clear_since_s
        return replace(held, clear_since_s=clear_since_s, text=reason or held.text)
    if held is None:
        since_s = now_s if finding.since_s is None else min(finding.since_s, now_s)
        held = Alert(kind=finding.kind, device=finding.device, about=finding.about, text="", since_s=since_s)
    return replace(held, text=finding.text, clear_since_s=None)


def _gathered(alerts: Sequence[Alert], now_s: float, patience: Mapping[AlertKind, Patience]) -> list[Alert]:
    """Let alerts fire and end whose time has come, and with them those of their kind that are nearly there."""
    ripe = {(one.kind, one.firing) for one in alerts if _left_s(one, now_s, patience[one.kind]) <= 0}
    return [_turned(one, now_s) if _is_due(one, now_s, patience[one.kind], ripe) else one for one in alerts]


def _is_due(one: Alert, now_s: float, patience: Patience, ripe: Collection[tuple[AlertKind, bool]]) -> bool:
    whole_s = patience.clears_after_s if one.firing else patience.fires_after_s
    early_s = min(GATHER_S, whole_s / 4)
    return (one.kind, one.firing) in ripe and _left_s(one, now_s, patience) <= early_s


def _left_s(one: Alert, now_s: float, patience: Patience) -> float:
    """Return in how many seconds an alert fires or ends, as things are; it is due at 0."""
    if not one.firing:
        return patience.fires_after_s - (now_s - one.since_s)
    if one.clear_since_s is None:
        return float("inf")
    return patience.clears_after_s - (now_s - one.clear_since_s)


def _turned(one: Alert, now_s: float) -> Alert:
    return replace(one, resolved_at_s=now_s) if one.firing else replace(one, firing_at_s=now_s)


def _grouped(event: AlertEvent, alerts: Iterable[Alert], now_s: float) -> list[tuple[AlertEvent, Sequence[Alert]]]:
    by_kind: defaultdict[AlertKind, list[Alert]] = defaultdict(list)
    for one in alerts:
        if not one.is_silenced(now_s):
            by_kind[one.kind].append(one)
    told: list[tuple[AlertEvent, Sequence[Alert]]] = []
    for some in by_kind.values():
        told += [(event, some)] if len(some) > ALONE else [(event, [one]) for one in some]
    return told
