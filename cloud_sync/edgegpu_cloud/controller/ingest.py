"""Ingest of messages: they are verified outside a transaction, and applied to the store's records inside one."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgegpu_cloud.controller.box_session import BoxSession, UnknownBirthError
from edgegpu_cloud.controller.unit_of_work import UnitOfWork
from edgegpu_cloud.phrases import Verbatim
from edgegpu_cloud.store.records import BoxRecord, partition_of
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.errors import MessageRefusedError, RefusalReason
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.link.events import MessageArrived, PublishAcknowledged
from edgegpu_sync.messages.readers import Message, read, result_id
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.messages.uplink import Birth
from edgegpu_sync.signing import open_up
from edgegpu_sync.topics import Topic, TopicKind, parse

_LOG = logging.getLogger(__name__)

UNKNOWN_BOX, UNKNOWN_BIRTH, ERROR, UNDELIVERED = "UnknownBox", "UnknownBirth", "Error", "Undelivered"
"""Names that are counted beside the refusals of the protocol."""

FLOOD_MESSAGES = 6_000
"""More of one box within a minute are a flood: what the guard of a broker lets through stays far below."""


@dataclass(frozen=True, slots=True)
class VerifiedMessage:
    """A message whose signature is that of its box; `public` is the key by which it was verified."""

    topic: Topic
    message: Message
    live: bool
    public: str


class Ingest:
    """The ingest of messages: it verifies them, and counts refusals in memory alone, so a flood changes no store."""

    def __init__(self, store: ControllerStore) -> None:
        self._store = store
        self._told: Counter[tuple[str, str]] = Counter()
        self.counts: Counter[tuple[str, str]] = Counter()
        """By device (empty: no known one) and name of the refusal."""
        self._arrived: Counter[DeviceId] = Counter()

    def open(
        self, arrived: Sequence[MessageArrived], *, mine: Callable[[DeviceId], bool] = lambda _: True
    ) -> list[VerifiedMessage]:
        """Return the messages that an enrolled box has signed, in the order of arrival; those of boxes that are `mine`.

        Where a box is another controller's by now, that one asks the box for all that this one leaves out.
        """
        found = [self._topic(one) for one in arrived]
        topics = [topic if topic is not None and mine(topic.device) else None for topic in found]
        devices = {topic.device for topic in topics if topic is not None}
        if not devices:
            return []
        with self._store.read() as tx:
            publics = tx.boxes.publics(devices)
        opened = (self._open(one, topic, publics) for one, topic in zip(arrived, topics, strict=True))
        return [one for one in opened if one is not None]

    def _topic(self, arrived: MessageArrived) -> Topic | None:
        try:
            return parse(arrived.topic)
        except MessageRefusedError as error:
            self.counts["", error.why] += 1
            return None

    def _open(
        self, arrived: MessageArrived, topic: Topic | None, publics: Mapping[DeviceId, str]
    ) -> VerifiedMessage | None:
        if topic is None:
            return None
        public = publics.get(topic.device)
        if public is None:
            self.counts["", UNKNOWN_BOX] += 1
            return None
        self._arrived[topic.device] += 1
        try:
            body = open_up(topic, arrived.payload, public=public)
            return VerifiedMessage(topic, read(topic.kind, body), not arrived.retained, public)
        except MessageRefusedError as error:
            self.refused(topic.device, error.why)
        except Exception:  # noqa: BLE001  (one message shall not end the controller, again and again)
            _LOG.exception("cannot read what came on %s", topic)
            self.refused(topic.device, ERROR)
        return None

    def refused(self, device: DeviceId, why: str) -> None:
        """Count a refusal."""
        self.counts[device, why] += 1

    def delivered(self, one: PublishAcknowledged) -> None:
        """Count a publish that the broker did not accept, or the link held back."""
        if one.refused:
            self.refused(DeviceId(""), UNDELIVERED)
            _LOG.debug("not delivered: %s", one.refused)

    def floods(self) -> dict[DeviceId, int]:
        """Return the boxes that have sent more than `FLOOD_MESSAGES` since the last call, and how many; refused too."""
        arrived, self._arrived = self._arrived, Counter()
        return {device: number for device, number in arrived.items() if number > FLOOD_MESSAGES}

    def new_refusals_text(self) -> str:
        """Return the refusals since the last call, the most frequent first, for people."""
        new = self.counts - self._told
        self._told = Counter(self.counts)
        words = (f"{number} {why} of {device or 'nobody known'}" for (device, why), number in new.most_common(10))
        return ", ".join(words)

    def apply(self, unit: UnitOfWork, opened: Sequence[VerifiedMessage]) -> list[BoxSession]:
        """Apply each message to its box's records; return the sessions of the boxes that sent them."""
        boxes = unit.load({one.topic.device for one in opened})
        sessions = _sessions(unit, boxes, opened)
        if opened:
            unit.tx.notes.ingested(min(partition_of(one.topic.device) for one in opened), len(opened))
        for one in opened:
            device = one.topic.device
            session = sessions.get(device)
            if session is None or session.box.public != one.public:
                self.refused(device, RefusalReason.UNKNOWN_KEY)
            else:
                self._take(session, one)
        return list(sessions.values())

    def _take(self, session: BoxSession, one: VerifiedMessage) -> None:
        device = one.topic.device
        try:
            session.take(one.topic, one.message, live=one.live)
        except MessageRefusedError as error:
            self.refused(device, error.why)
            if error.why is RefusalReason.OUT_OF_REACH:
                session.set_aside_reason = Verbatim(error)
            _LOG.debug("%s: %s refused: %s", device, one.topic.kind, error)
        except UnknownBirthError:
            self.refused(device, UNKNOWN_BIRTH)
        except Exception:  # noqa: BLE001  (one message shall not end the controller, again and again)
            _LOG.exception("cannot take what came on %s", one.topic)
            self.refused(device, ERROR)


def _sessions(
    unit: UnitOfWork, boxes: Mapping[DeviceId, BoxRecord], opened: Sequence[VerifiedMessage]
) -> dict[DeviceId, BoxSession]:
    kinds = {one.topic.kind for one in opened} | {TopicKind.EVENT}
    latest = unit.tx.boxes.latest(list(boxes), kinds)
    results = (result_id(one.topic, one.message) for one in opened)
    ids = {id_ for id_ in results if id_ is not None}
    commands = unit.tx.commands.get(ids) if ids else {}
    sessions = {device: BoxSession(box=box, now_s=unit.now_s, latest={}, commands={}) for device, box in boxes.items()}
    for (device, kind), one in latest.items():
        sessions[device].latest[kind] = one
        sessions[device].known |= {kind}
    for id_, command in commands.items():
        if command.device in sessions:
            sessions[command.device].commands[id_] = command
    for device, epochs in _older_births(boxes, opened).items():
        enrolment = boxes[device].sequence.enrolment
        sessions[device].remembered = {epoch: unit.tx.boxes.has_had(device, enrolment, epoch) for epoch in epochs}
    return sessions


def _older_births(boxes: Mapping[DeviceId, BoxRecord], opened: Sequence[VerifiedMessage]) -> dict[DeviceId, set[Epoch]]:
    older: dict[DeviceId, set[Epoch]] = {}
    for one in opened:
        box = boxes.get(one.topic.device)
        if box is None or box.sequence.epoch is None or not isinstance(one.message, Birth):
            continue
        if one.message.epoch != box.sequence.epoch and one.message.epoch.count <= box.sequence.epoch.count:
            older.setdefault(box.device, set()).add(one.message.epoch)
    return older
