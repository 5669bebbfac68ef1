"""Evidence and the use of cards in one transaction."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from edgegpu_cloud.store.convert import record_of, values_of
from edgegpu_cloud.store.schema import table
from edgegpu_cloud.store.telemetry.records import CardMoment, CardUse, StoredEvidence
from edgegpu_cloud.store.telemetry.schema import CardUseRow, EvidenceRow
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.evidence import ContainerEvidence, SeenCards

_EVIDENCE, _USE = table(EvidenceRow), table(CardUseRow)

KEPT_EVIDENCE = 1_000
"""Containers of one box whose evidence is kept: those that were checked last."""

MOST_CARDS = 64
"""Cards of one box in one quarter: a box may name as many as it likes."""


class TelemetryTable:
    """The evidence and the use of cards of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # evidence

    def put_evidence(self, device: DeviceId, found: Iterable[ContainerEvidence], *, now_s: float) -> None:
        """Store what containers of a box saw, in place of what they saw before."""
        c = _EVIDENCE.c
        latest = {(one.uid, one.container): one for one in found}
        for uid, container in latest:
            same = (c.device == device) & (c.uid == uid) & (c.container == container)
            self._connection.execute(delete(_EVIDENCE).where(same))
        rows = [
            one.model_dump(mode="json", include=_EVIDENCE_FIELDS) | {"device": device, "at_s": now_s}
            for one in latest.values()
        ]
        if rows:
            self._connection.execute(insert(_EVIDENCE), rows)
            self._forget_oldest(device)

    def _forget_oldest(self, device: DeviceId) -> None:
        c = _EVIDENCE.c
        newest = select(c.at_s).where(c.device == device).order_by(c.at_s.desc()).offset(KEPT_EVIDENCE).limit(1)
        oldest_s = self._connection.execute(newest).scalar_one_or_none()
        if oldest_s is not None:
            self._connection.execute(delete(_EVIDENCE).where(c.device == device, c.at_s <= oldest_s))

    def evidence(self, device: DeviceId) -> list[StoredEvidence]:
        """Return what containers of a box saw, by namespace, pod and container."""
        c = _EVIDENCE.c
        query = select(_EVIDENCE).where(c.device == device).order_by(c.namespace, c.pod, c.container, c.uid)
        return [
            record_of(
                StoredEvidence,
                row,
                verdict=SeenCards(row["verdict"]),
                held=tuple(row["held"]),
                seen=tuple(row["seen"]),
            )
            for row in self._connection.execute(query).mappings().all()
        ]

    # the use of cards

    def add_use(self, moments: Mapping[DeviceId, Sequence[CardMoment]]) -> None:
        """Count samples of cards; the caller has seen to it that each comes once, and holds the boxes' rows."""
        fresh = {device: _by_quarter(some) for device, some in moments.items()}
        quarters = {quarter_s for some in fresh.values() for quarter_s, _ in some}
        if not quarters:
            return
        held = self._held(list(fresh), quarters)
        added, changed = [], []
        for device, some in fresh.items():
            cards = Counter(quarter_s for quarter_s, _ in held[device])
            for key, use in some.items():
                before = held[device].get(key)
                if before is not None:
                    changed.append({"at_device": device, **_row(before.plus(use), at="at_")})
                elif cards[use.quarter_s] < MOST_CARDS:
                    cards[use.quarter_s] += 1
                    added.append({"device": device, **_row(use)})
        if added:
            self._connection.execute(insert(_USE), added)
        if changed:
            c = _USE.c
            at = (
                (c.device == bindparam("at_device"))
                & (c.quarter_s == bindparam("at_quarter_s"))
                & (c.card == bindparam("at_card"))
            )
            self._connection.execute(update(_USE).where(at), changed)

    def _held(
        self, devices: Collection[DeviceId], quarters: Collection[int]
    ) -> dict[DeviceId, dict[tuple[int, str], CardUse]]:
        c = _USE.c
        query = select(_USE).where(c.device.in_(devices), c.quarter_s.in_(sorted(quarters)))
        held: dict[DeviceId, dict[tuple[int, str], CardUse]] = defaultdict(dict)
        for row in self._connection.execute(query).mappings().all():
            use = record_of(CardUse, row)
            held[DeviceId(row["device"])][use.quarter_s, use.card] = use
        return held

    def use(self, device: DeviceId, *, since_s: float) -> list[CardUse]:
        """Return the use of a box's cards in the quarters that began from `since_s` on, in their order."""
        c = _USE.c
        query = select(_USE).where(c.device == device, c.quarter_s >= since_s).order_by(c.quarter_s, c.card)
        return [record_of(CardUse, row) for row in self._connection.execute(query).mappings().all()]

    # all of it

    def forget_box(self, device: DeviceId) -> None:
        """Drop all of a box."""
        for rows in (_EVIDENCE, _USE):
            self._connection.execute(delete(rows).where(rows.c.device == device))


_EVIDENCE_FIELDS = {"uid", "namespace", "pod", "container", "verdict", "held", "seen", "lines", "text"}


def _by_quarter(moments: Iterable[CardMoment]) -> dict[tuple[int, str], CardUse]:
    found: dict[tuple[int, str], CardUse] = {}
    for one in moments:
        use = CardUse.of(one)
        key = (use.quarter_s, use.card)
        found[key] = found[key].plus(use) if key in found else use
    return found


def _row(use: CardUse, *, at: str = "") -> dict[str, object]:
    """Return the values of a row; those of its key are named with `at` before them."""
    return {f"{at}{name}" if name in {"quarter_s", "card"} else name: value for name, value in values_of(use).items()}
