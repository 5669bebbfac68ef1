"""The controller: one thread that owns the messages from boxes and to them."""

import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import assert_never

from edgegpu_cloud.controller import broker_drops
from edgegpu_cloud.controller.broker_drops import FloodBrake
from edgegpu_cloud.controller.failures import FailureTable
from edgegpu_cloud.controller.ingest import Ingest
from edgegpu_cloud.controller.keys import SigningKey
from edgegpu_cloud.controller.leases import LeaseChange, PartitionLeases, boottime, numbers_of
from edgegpu_cloud.controller.outgoing import OutgoingMessage
from edgegpu_cloud.controller.subscriptions import LinkSender, Subscriptions, parts
from edgegpu_cloud.controller.unit_of_work import RECENT_S, BirthTimes, UnitOfWork
from edgegpu_cloud.layout import RetentionConfig
from edgegpu_cloud.phrases import Verbatim, phrase
from edgegpu_cloud.store.controllers.leadership import LeasesLostError
from edgegpu_cloud.store.controllers.next_turn import tried_next_turn
from edgegpu_cloud.store.migrations import OtherTablesError
from edgegpu_cloud.store.records import LEADER, partition_of
from edgegpu_cloud.store.store import ContendedError, ControllerStore, RecordError, StoreError
from edgegpu_sync.errors import SyncError
from edgegpu_sync.ids import CommandId, DeviceId
from edgegpu_sync.link.events import (
    FiltersGranted,
    LinkDown,
    LinkEvent,
    LinkUp,
    MessageArrived,
    PublishAcknowledged,
)
from edgegpu_sync.messages.downlink import KeySetLink
from edgegpu_sync.signing import Signer

_LOG = logging.getLogger(__name__)

CHECK_INTERVAL_S = 0.25
"""How often the controller checks what people have asked for, and what is due."""

MOST_AT_ONCE = 500
"""Messages, or boxes, in one transaction."""

JUMP_S = 2.0
"""A clock that was set by so much makes the known times of births worthless."""

_Work = Callable[[UnitOfWork, Sequence[DeviceId]], bool]
_TRIES = 5
_COUNTS_EVERY_S, _TIDY_EVERY_S = 60.0, 3_600.0
_TIDY_EVENTS = 10_000
"""So many events cause a tidying at once: a box that floods does not fill the disk."""


class Controller:
    """The controller's loop, which owns the link's side of the store; `stop` is for any thread.

    All other methods are for one thread. What is sent and lost comes again: commands by their times, documents when
    their box is behind, receipts with the result that was not receipted. So nothing that waits to be sent outlives a
    connection.
    """

    def __init__(  # noqa: PLR0913  (what it is made of)
        self,
        store: ControllerStore,
        sender: LinkSender,
        *,
        signer: Callable[[], Signer],
        inbox: queue.SimpleQueue[LinkEvent | None],
        leases: PartitionLeases | None = None,
        retention: RetentionConfig = RetentionConfig(),  # noqa: B008  (frozen)
        brake: FloodBrake | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = boottime,
    ) -> None:
        """Build the controller.

        Args:
            store: shared with the processes in which people change things.
            sender: the link, which fills `inbox`.
            signer: reads the controller's key, again for each new key set; boxes obey the key when it is in that set.
            inbox: the queue of the link's events.
            leases: of the partitions of boxes that this controller works for; None: of all, and nobody else runs.
            retention: how long the store keeps what has ended.
            brake: blocks boxes that flood.
            clock: seconds since 1970.
            steady: seconds of a clock that nobody sets.
        """
        self._retention = retention
        self._store, self._sender, self._keys = store, sender, SigningKey(signer)
        self._clock, self._steady = clock, steady
        self.inbox = inbox
        self.leases = leases or PartitionLeases(store, "controller-1", clock=clock, steady=steady)
        self._subscriptions = Subscriptions(sender, shared=self.leases.shared)
        self.outgoing: deque[tuple[OutgoingMessage, Signer]] = deque()
        """The queued messages and their signers: the message that announces a key goes before those signed with it."""
        self._births, self._failures = BirthTimes(), FailureTable()
        self.ingest, self._notices = Ingest(store), broker_drops.BrokerNotices(brake or FloodBrake(store, clock=clock))
        self._seen_changes = self._seen_touched = 0
        self._arrived = list[MessageArrived]()  # not stored yet, and so not acknowledged
        self._unasked, self._unkeyed = set[DeviceId](), list[DeviceId]()
        """The boxes to be asked how they stand, and to get the newest key set, at the next turn."""
        self._up = self._stopped = False
        self._down_since_s = steady()
        self._events = 0
        self._offset_s = clock() - steady()
        self._next_check_s = self._store_at_s = self._counts_at_s = self._tidy_at_s = steady()
        self._work_due = True

    def stop(self) -> None:
        """End `run`."""
        self.inbox.put(None)

    def run(self) -> None:
        """Work until `stop`, then give up the partitions, which others take at once.

        Raises:
            CloudError: another process under this controller's name is alive.
            LeasesLostError: this controller was to be alone, and is not.
            StoreError: the database refuses; what was not acknowledged comes again to the next one.
        """
        self.begin()
        while not self._stopped:
            self.step(self._wait_s())
        self.leases.end()

    def begin(self) -> None:
        """Prepare the first step; commands wait, because the known times of births belonged to another process."""
        self.leases.begin()
        with self._store.read() as tx:
            self._seen_changes = self._seen_touched = tx.notes.number("changes")
            chain = tx.notes.chain()
        self._keys.begin(chain)

    def _wait_s(self) -> float:
        return 0.0 if self._work_due else max(0.0, self._next_check_s - self._steady())

    def step(self, wait_s: float = 0.0) -> None:
        """Handle what has come within `wait_s`, do what is due, send what can be sent."""
        events = self._drain(wait_s)
        arrived: list[MessageArrived] = []
        for event in events:
            match event:
                case MessageArrived(topic=topic) if topic.startswith(broker_drops.OF_BROKER):
                    self._of_broker(event)
                case MessageArrived():
                    arrived.append(event)
                case LinkUp():
                    self._taken(arrived)
                    self._connected()
                case LinkDown():
                    self._taken(arrived)
                    self._disconnected(event)
                case PublishAcknowledged():
                    self.ingest.delivered(event)
                case FiltersGranted():
                    self._ask(self._subscriptions.granted(event.token))
                case _:
                    assert_never(event)
        self._taken(arrived)
        if self._work_due or self._steady() >= self._next_check_s:
            self._check_due()
        self._send()

    def _drain(self, wait_s: float) -> list[LinkEvent]:
        events: list[LinkEvent] = []
        try:
            event = self.inbox.get(timeout=wait_s) if wait_s > 0 else self.inbox.get_nowait()
            while event is not None:
                events.append(event)
                if len(events) == MOST_AT_ONCE:
                    return events
                event = self.inbox.get_nowait()
            self._stopped = True
        except queue.Empty:
            pass
        return events

    @contextmanager
    def _unit_of_work(self, devices: Sequence[DeviceId]) -> Iterator[UnitOfWork]:
        """Run a transaction for boxes; the messages that it sends are queued when it is on the disk."""
        with self.leases.write(numbers_of(devices)) as tx:
            unit = UnitOfWork(tx, self._clock(), self._births, self._keys.chain)
            yield unit
            unit.save()
        self._events += unit.events
        self._births.note(unit.boxes.values(), unit.asked, unit.now_s)
        self.outgoing.extend((message, self._keys.signer) for message in unit.outgoing)

    def _each(self, what: str, devices: Sequence[DeviceId], work: _Work) -> Sequence[DeviceId]:
        """Work on boxes in one transaction; where one of them fails, work on the others without it.

        Return the boxes for which nothing was done, because another transaction was in the way: they want another turn.

        Args:
            what: completes "cannot …" in the log.
            devices: the boxes; those that are passed over at the time, or another controller's, are left out.
            work: returns whether more is due.

        Raises:
            StoreError: the database refuses, whatever is done.
        """
        free = [device for device in self._failures.free(devices, self._steady()) if self.leases.holds(device)]
        if not free:
            return ()
        done, late = False, True
        try:
            with tried_next_turn(what):
                done, late = self._done(free, work), False
        except LeasesLostError as error:
            self._lost(error)
            return self._each(what, free, work)
        if late:
            return free
        if not done and len(free) > 1:
            half = len(free) // 2
            return [*self._each(what, free[:half], work), *self._each(what, free[half:], work)]
        return ()

    def _done(self, devices: Sequence[DeviceId], work: _Work) -> bool:
        """Work on boxes and return whether that succeeded. A box that fails alone is passed over."""
        try:
            more = self._worked(devices, work)
        except (LeasesLostError, OtherTablesError):
            raise
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, RecordError):
                raise
            if len(devices) == 1:
                self._pass_over(devices[0], error)
            return False
        self._work_due |= more
        return True

    def _worked(self, devices: Sequence[DeviceId], work: _Work) -> bool:
        """Work on boxes, again where another transaction was in the way; return whether more is due."""
        for left in reversed(range(_TRIES)):
            try:
                with self._unit_of_work(devices) as unit:
                    return work(unit, devices)
            except ContendedError as error:
                if not left:
                    raise
                _LOG.info("%s: tried again", error.text)
        raise AssertionError

    def _pass_over(self, device: DeviceId, error: Exception) -> None:
        wait_s = self._failures.failed(device, self._steady())
        _LOG.error("cannot work on %s: it is passed over for %.0f s", device, wait_s, exc_info=error)
        text = phrase(
            "the controller cannot work on this box and passes it over, %(seconds)s s each time: %(error)s; "
            "this is a fault of edgegpu: report it with serve's log",
            seconds=round(wait_s),
            error=Verbatim(f"{type(error).__name__}: {error}"[:400]),
        )
        told = tried_next_turn("raise the alarm of a box that is passed over")
        with told, self.leases.write(numbers_of([device])) as tx:
            tx.commands.park([device])
            tx.boxes.stop_asking(device)
            tx.notes.alarm("box.ERROR", device=device, text=text, now_s=self._clock())

    # events of the link

    def _taken(self, arrived: list[MessageArrived]) -> None:
        """Store what has arrived, then acknowledge it; `arrived` is empty afterwards.

        Where another transaction is in the way it waits for a next turn, and what comes meanwhile waits behind it.
        """
        self._arrived += arrived
        arrived.clear()
        if not self._arrived or self._steady() < self._store_at_s:
            return
        opened = self.ingest.open(self._arrived, mine=self.leases.holds)

        def settle(unit: UnitOfWork, devices: Sequence[DeviceId]) -> bool:
            of = set(devices)
            return unit.settle(self.ingest.apply(unit, [one for one in opened if one.topic.device in of]))

        devices = list(dict.fromkeys(one.topic.device for one in opened))
        if self._each("store what boxes have said", devices, settle):
            self._store_at_s = self._steady() + CHECK_INTERVAL_S
            return
        for one in self._arrived:
            self._sender.ack(one)
        self._arrived.clear()

    def _of_broker(self, event: MessageArrived) -> None:
        self._sender.ack(event)
        alarm = self._notices.alarm(event, at_s=self._steady()) if self.leases.leads else None
        if alarm is not None:  # another controller hears the same
            seen = self._notices.take_back()
            with tried_next_turn("raise an alarm of the broker"), self._surrender_lost():
                with self.leases.write([LEADER]) as tx:
                    tx.notes.alarm(alarm.kind, device=alarm.device, text=alarm.text, now_s=self._clock())
                self._notices.drops.last = seen  # else the next count raises it

    def _connected(self) -> None:
        _LOG.info("connected: asking every box how it stands")
        self._up = self._work_due = True
        self._notices.brake.forget_told()
        self.outgoing.clear()
        self._unasked.clear()
        self._subscriptions.clear()
        with self._store.read() as tx:
            devices = tx.boxes.enrolled(self.leases.held)
        self._ask(self._subscriptions.add(devices))

    def _ask(self, devices: Sequence[DeviceId]) -> None:
        """Ask boxes how they stand; repeat the receipts of results that came lately."""
        for part in parts(devices):
            with self._store.read() as tx:
                recent = tx.commands.ended_since(self._clock() - RECENT_S, part)

            def begin(
                unit: UnitOfWork,
                some: Sequence[DeviceId],
                recent: Mapping[DeviceId, Sequence[CommandId]] = recent,
            ) -> bool:
                unit.begin(some, recent, spread=len(devices) > 1, missed=self.leases.shared)
                return False

            self._unasked.update(self._each("ask boxes how they stand", part, begin))

    def _disconnected(self, event: LinkDown) -> None:
        _LOG.warning("not connected: %s; tried again (is the broker running, at broker.controller_port?)", event.why)
        if self._up:
            self._down_since_s = self._steady()
        self._up = False
        self.outgoing.clear()
        self._subscriptions.clear()

    def _send(self) -> None:
        """Send what the link takes; the rest waits until the link has delivered something."""
        while self.outgoing:
            message, signer = self.outgoing[0]
            topic = message.topic
            if not self.leases.acts_for(partition_of(topic.device)):
                self.outgoing.popleft()  # its box is another controller's, which sends it anew
                continue
            try:
                if self._sender.publish(str(topic), message.seal(signer), retain=topic.kind.retained) is None:
                    return
            except SyncError:
                _LOG.exception("cannot send %s: it is left out", topic)
            self.outgoing.popleft()

    # partitions

    def _check_leases(self) -> None:
        """Renew the leases; where the broker was away for long from this controller, let others have the boxes."""
        if not self.leases.look_due():
            return
        away_s = 0.0 if self._up else self._steady() - self._down_since_s
        change = LeaseChange()
        with tried_next_turn("look at the leases"):
            change = self.leases.end() if away_s >= self.leases.times.lost_s else self.leases.look()
        if change.gone:
            self._drop(change.gone)
        if change.gained:
            self._adopt(change.gained)

    def _adopt(self, numbers: Collection[int]) -> None:
        """Begin with the boxes of partitions that were taken."""
        if self._up:
            with self._store.read() as tx:
                devices = tx.boxes.enrolled(numbers)
            self._births.forget(devices)
            self._ask(self._subscriptions.add(devices))
        self._work_due = True

    @contextmanager
    def _surrender_lost(self) -> Iterator[None]:
        try:
            yield
        except LeasesLostError as error:
            self._lost(error)

    def _lost(self, error: LeasesLostError) -> None:
        """Let go of partitions that another controller holds.

        Raises:
            LeasesLostError: this controller was to be alone, and is not.
        """
        if not self.leases.shared:
            raise error
        _LOG.warning("another controller has taken %d partitions: nothing is written for them", len(error.numbers))
        self.leases.give_up(error.numbers)
        self._drop(error.numbers)

    def _drop(self, numbers: Collection[int]) -> None:
        """Forget the boxes of partitions that are not held any more, and what was to be sent to them."""
        gone = [device for device in self._subscriptions if partition_of(device) in numbers]
        self._subscriptions.remove(gone)
        self._births.forget([device for device in self._births.at_s if partition_of(device) in numbers])
        self.outgoing = deque(one for one in self.outgoing if partition_of(one[0].topic.device) not in numbers)

    # requests of people, and time

    def _check_due(self) -> None:
        self._next_check_s = self._steady() + CHECK_INTERVAL_S
        self._work_due = False
        self._check_leases()
        self._check_clock()
        self._log_counts()
        self._tidy()
        if not self._up:
            return
        self._notices.brake.tell(self._sender, leads=self.leases.leads)
        self._ask([self._unasked.pop() for _ in range(len(self._unasked))])
        self._changes()
        over = self._failures.over(self._steady())
        self._failures.again(self._each("resume boxes that were passed over", over, UnitOfWork.resume))
        now_s = self._clock()
        with self._store.read() as tx:
            due = tx.commands.due_boxes(now_s, limit=MOST_AT_ONCE, held=self.leases.held)
            behind = tx.boxes.due_to_be_asked(now_s, limit=MOST_AT_ONCE, held=self.leases.held)
        if waiting := set(due).difference(self._failures.free(due, self._steady())):
            with (
                tried_next_turn("park the commands of boxes that are passed over"),
                self._surrender_lost(),
                self.leases.write(numbers_of(waiting)) as tx,
            ):
                tx.commands.park(waiting)  # otherwise they would be due again and again
        late = self._each("send commands that are due", due, UnitOfWork.dispatch)
        late = [*late, *self._each("ask boxes that are behind", behind, UnitOfWork.ask_behind)]
        self._work_due |= MOST_AT_ONCE in {len(due), len(behind)} and not late

    def _changes(self) -> None:
        with self._store.read() as tx:
            changes = tx.notes.number("changes")
            if changes == self._seen_changes:
                return
            held = self.leases.held
            touched = tx.boxes.touched_since(self._seen_touched, limit=MOST_AT_ONCE, held=held)
            chain = tx.notes.chain()
            devices = tx.boxes.enrolled(held) if chain != self._keys.chain else []
            new = tx.boxes.publics(self._subscriptions.missing(device for _, device in touched))
        if chain != self._keys.chain or self._unkeyed:
            self._replace_keys(chain, devices or self._unkeyed)
        if self._unkeyed:
            return
        if new:
            self._ask(self._subscriptions.add(new))
        if self._each("do what people have asked for", [one for _, one in touched], UnitOfWork.apply_changes):
            return
        if len(touched) == MOST_AT_ONCE:
            self._seen_touched, self._work_due = touched[-1][0] - 1, True
        else:
            self._seen_changes = self._seen_touched = changes

    def _replace_keys(self, chain: tuple[KeySetLink, ...], devices: Sequence[DeviceId]) -> None:
        """Send every box the new key set, then sign with the key that is in effect with it."""
        self._keys.chain = chain
        late = [self._each("send the new key set", part, UnitOfWork.send_keys) for part in parts(devices)]
        self._unkeyed = [device for part in late for device in part]
        if not self._unkeyed:
            self._keys.refresh()

    def _check_clock(self) -> None:
        offset_s = self._clock() - self._steady()
        if abs(offset_s - self._offset_s) > JUMP_S:
            _LOG.warning(
                "the clock was set by %.0f s: asking every box how old its birth is", offset_s - self._offset_s
            )
            self._births.at_s.clear()
            if self._up:
                with self._store.read() as tx:
                    devices = tx.boxes.enrolled(self.leases.held)
                self._ask(devices)
        self._offset_s = offset_s

    def _log_counts(self) -> None:
        if self._steady() >= self._counts_at_s + _COUNTS_EVERY_S:
            self._counts_at_s = self._steady()
            if told := self.ingest.new_refusals_text():
                _LOG.warning("refused in the last minute: %s", told)
            if floods := self.ingest.floods():
                self._each("raise the alarm of a flood", [*floods], lambda unit, some: unit.flood_alarms(floods, some))
                self._notices.brake.on_arrived(floods, self._steady())

    def _tidy(self) -> None:
        held = self.leases.held
        if held and (self._steady() >= self._tidy_at_s or self._events >= _TIDY_EVENTS):
            self._events = 0
            self._tidy_at_s = self._steady()
            with tried_next_turn("purge what is kept no longer"):
                if not self._tidied(held):  # else in its next step: what boxes say comes between
                    self._tidy_at_s += _TIDY_EVERY_S

    def _tidied(self, held: Collection[int]) -> bool:
        """Purge a batch; return whether there is more."""
        more = False
        with self._surrender_lost(), self.leases.write(held) as tx:
            more = tx.tidy(self._retention, now_s=self._clock(), held=held)
            self.leases.tidy(tx)
        return more
