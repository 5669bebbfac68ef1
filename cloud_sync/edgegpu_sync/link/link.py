"""The link of a box or a controller to its broker: it holds one connection, reconnects, and puts out events.

The thread of `run` does all the work of the connection; `publish` and `ack` queue theirs for it. Events go to `put` in
order: `LinkUp`, then what arrives and is acknowledged, then `LinkDown`.
"""

import contextlib
import random
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn, assert_never

from edgegpu_sync.link.connect import DialThread
from edgegpu_sync.link.errors import LinkError
from edgegpu_sync.link.events import Address, LinkDown, LinkEvent, LinkUp, MessageArrived, PublishAcknowledged
from edgegpu_sync.link.inflight import (
    AckRequest,
    ConnectionState,
    Inflight,
    PendingWork,
    PublishRequest,
    SubscribeRequest,
    UnsubscribeRequest,
    Waker,
)
from edgegpu_sync.link.pahoclient import (
    ConnAck,
    ConnectionClosed,
    ConnectOptions,
    Fact,
    MqttConnection,
    PubAck,
    PublishReceived,
    SubAck,
)
from edgegpu_sync.link.routes import BrokerRoute, RouteTable
from edgegpu_sync.link.rules import (
    ConnectionEnd,
    KeepAlive,
    SpokenVersion,
    heartbeat_topic,
    remembered,
)

CONNECT_TIMEOUT_S = 20.0
"""How long CONNACK and SUBACK may take: the handshakes of thousands may come first."""

DIAL_S = 60.0
"""How long making a connection may take, the lookup of the name included."""

STOP_TIMEOUT_S = 1.0
"""How long `stop` waits for publishes in flight."""

UNACKED_MAX_BYTES = 8 * 1_048_576
"""With so many bytes unacknowledged no more is read. A broker that respects `receive_max` never comes near."""

MOST_FILTERS = 500
"""Filters in one SUBSCRIBE or UNSUBSCRIBE: mosquitto ends the connection on one with 2 000."""

FOUR_WEEKS_S = 28 * 86_400


class _StopError(Exception):
    """`stop` was called."""


class Link:
    """The link to a broker. `run` needs a thread of its own; all other methods are for any thread, and none blocks."""

    def __init__(  # noqa: PLR0913 - what a link is to its owner
        self,
        address: Callable[[], Address],
        *,
        subscribe: Sequence[str],
        will: Callable[[], tuple[str, bytes] | None],
        put: Callable[[LinkEvent], None],
        rng: random.Random,
        clock: Callable[[], float],
        keepalive_s: int = 30,
        max_inflight: int = 16,
        receive_max: int = 16,
        session_s: int = FOUR_WEEKS_S,
        wall: Callable[[], float] = time.time,
        recall: Callable[[], SpokenVersion | None] = lambda: None,
        remember: Callable[[SpokenVersion | None], None] = lambda _: None,
    ) -> None:
        """Build the link.

        Args:
            address: read on the link's thread at each try, as `will` is.
            subscribe: topic filters, QoS 1, granted before `LinkUp`; none: `subscribe` adds them afterwards.
            will: topic and payload that the broker publishes, retained, when we go without DISCONNECT.
            put: receives the events on the link's thread, and must not block. What it raises ends `run`.
            rng: for the jitter of the waits.
            clock: seconds that only rise.
            keepalive_s: after 0.8 of it without an acknowledgement a heartbeat is sent; after 1.0 more the connection
                is given up.
            max_inflight: publishes in flight at once; fewer where the broker says so.
            receive_max: messages that may come before one is acknowledged; an MQTT 5 broker respects it.
            session_s: how long the broker keeps messages for us while we are away; 0: not at all.
            wall: seconds since 1970, for `recall` and `remember`.
            recall: returns what `remember` received last, in this run or an earlier one.
            remember: called when it becomes known which MQTT version the broker accepts.
        """
        self._address, self._will, self._put, self._filters = address, will, put, list(subscribe)
        self._rng, self._clock, self._wall, self._remember = rng, clock, wall, remember
        self._keepalive_s, self._receive_max, self._session_s = keepalive_s, receive_max, session_s
        self._inflight = Inflight(clock, max_inflight=max_inflight)
        self._version, self._known = remembered(recall()), recall()
        self._stopping, self._retry_now = threading.Event(), threading.Event()
        self._alive_at, self._clean_session = clock(), False
        self._routes = RouteTable()
        self._last_reason: str | None = None
        self._up_at = 0.0
        self._waker = Waker()

    # --- for any thread

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, connection: int | None = None) -> int | None:
        """Publish with QoS 1; return the token for `PublishAcknowledged`, or None where it cannot be sent now.

        None: the link is not up; or as many publishes are in flight as may be (try again after a
        `PublishAcknowledged`); or `connection` is given and is not the number of the connection that is up, so that
        nothing overtakes the birth. After `LinkDown` what was not acknowledged is forgotten. A message in quarantine is
        not sent: a `PublishAcknowledged` says so.

        Raises:
            TooLargeError: over 64 KiB. The broker would close the connection.
        """
        token = self._inflight.publish(topic, payload, retain=retain, connection=connection)
        self._waker.poke()
        return token

    def subscribe(self, filters: Sequence[str]) -> int | None:
        """Subscribe to filters, QoS 1, until the connection ends; return the token for `FiltersGranted`.

        None: the link is not up. Where the broker refuses a filter the connection is given up, as at its beginning.

        Raises:
            ValueError: more than `MOST_FILTERS`.
        """
        if len(filters) > MOST_FILTERS:
            raise ValueError(f"cannot subscribe to {len(filters)} filters at once: at most {MOST_FILTERS}")
        token = self._inflight.subscribe(filters)
        self._waker.poke()
        return token

    def unsubscribe(self, filters: Sequence[str]) -> None:
        """Give up filters; what is on its way still arrives. Where the link is not up nothing happens.

        Raises:
            ValueError: more than `MOST_FILTERS`.
        """
        if len(filters) > MOST_FILTERS:
            raise ValueError(f"cannot unsubscribe {len(filters)} filters at once: at most {MOST_FILTERS}")
        self._inflight.unsubscribe(filters)
        self._waker.poke()

    def ack(self, arrived: MessageArrived) -> None:
        """Acknowledge a message. Where its connection has ended nothing happens: the message comes again."""
        if self._inflight.ack(arrived):
            self._waker.poke()

    def stop(self) -> None:
        """End `run`: accepted publishes are sent, their PUBACKs awaited for at most 1 s, then DISCONNECT is sent."""
        self._stopping.set()
        self._waker.poke()

    def wake(self) -> None:
        """End the wait for the next try, because the network is there or a certificate was renewed."""
        self._retry_now.set()
        self._waker.poke()

    @property
    def alive_s(self) -> float:
        """Seconds since the last proof that the loop runs: a packet from the broker, or a step of a try while down.

        A connection without a proof is given up after 1.8 keep-alives: a value above 3 of them means a loop that hangs.
        """
        return self._clock() - self._alive_at

    # --- the link's thread

    def run(self) -> None:
        """Hold the link until `stop`; call it once.

        Raises:
            Exception: whatever `address`, `will`, `put`, `remember` raise; the link is down then.
        """
        try:
            with contextlib.suppress(_StopError), self._waker:
                while not self._stopping.is_set():
                    self._once()
                    self._pause(self._routes.wait_s(self._clock()))
        finally:
            self._inflight.end(suspect=False)
        self._down("stopped")

    def _once(self) -> None:
        """Make a connection by the route that is due, and serve it to its end."""
        self._version, self._up_at = self._version.to_try(self._wall()), 0.0
        address = self._address()
        route = self._routes.choose(address.ways)
        try:
            self._connect(address, route)
        except LinkError as error:
            now = self._clock()
            up_s = now - self._up_at if self._up_at else 0.0
            if not up_s:
                self._version = self._version.failed(error.ending, self._wall())
            self._clean_session = error.ending is ConnectionEnd.OVERSIZE
            self._inflight.end(suspect=up_s > 0 and error.ending is ConnectionEnd.LOST, blamed=error.blamed)
            self._routes.ended(route, error.ending, str(error), up_s=up_s, now=now, roll=self._rng.random())
            self._down(self._routes.why)

    def _connect(self, address: Address, route: BrokerRoute) -> NoReturn:
        options = ConnectOptions(
            client_id=address.client_id,
            protocol=self._version.protocol,
            keepalive_s=self._keepalive_s,
            will=self._will(),
            session_s=self._session_s,
            receive_max=self._receive_max,
            clean_session=self._clean_session,
        )
        with (
            contextlib.closing(self._dial(address, route)) as sock,
            contextlib.closing(MqttConnection(sock, options)) as wire,
        ):
            self._serve(wire, heartbeat_topic(address.client_id), route)

    def _dial(self, address: Address, route: BrokerRoute) -> ssl.SSLSocket:
        dialling, end = DialThread(address, route, self._waker.poke), self._clock() + DIAL_S
        try:
            while (sock := dialling.result()) is None:
                self._alive_at = self._clock()
                if self._stopping.is_set():
                    raise _StopError
                if self._clock() > end:
                    raise LinkError(ConnectionEnd.ABSENT, f"no connection to {route} after {DIAL_S:g} s")
                self._waker.wait(1.0)
            return sock
        finally:
            dialling.leave()

    def _serve(self, wire: MqttConnection, heartbeat: str, route: BrokerRoute) -> NoReturn:
        now = self._clock()
        connection = ConnectionState(
            self._inflight.begin(), route, KeepAlive(self._keepalive_s, now, now), until=now + CONNECT_TIMEOUT_S
        )
        while True:
            for todo in self._inflight.take_pending():
                self._do(todo, wire)
            read = self._inflight.unacked_bytes < UNACKED_MAX_BYTES
            for fact in wire.step(wake=self._waker.fileno(), timeout_s=connection.next_s(self._clock()), read=read):
                self._note(fact, wire, connection)
            self._waker.drain()
            self._check_deadlines(wire, connection, heartbeat)

    def _do(self, todo: PendingWork, wire: MqttConnection) -> None:
        match todo:
            case PublishRequest():
                self._inflight.sent(todo.token, wire.publish(todo.topic, todo.payload, retain=todo.retain))
            case AckRequest():
                wire.ack(todo.mid)
            case PublishAcknowledged():
                self._put(todo)
            case SubscribeRequest():
                self._inflight.subscribing(todo.token, wire.subscribe(todo.filters))
            case UnsubscribeRequest():
                wire.unsubscribe(todo.filters)
            case _:
                assert_never(todo)

    def _note(self, fact: Fact, wire: MqttConnection, connection: ConnectionState) -> None:
        if not isinstance(fact, ConnectionClosed):
            self._alive_at = self._clock()
            connection.pulse = connection.pulse.packet_received(self._alive_at, proof=isinstance(fact, PubAck | SubAck))
        match fact:
            case ConnAck():
                connection.opened, connection.window = True, fact.window
                connection.session_present = fact.session_present
                connection.pulse = replace(connection.pulse, keepalive_s=fact.keepalive_s)
                self._accepted()
                self._begin_subscriptions(wire, connection)
            case SubAck():
                self._granted(fact, connection)
            case PublishReceived():
                arrived = MessageArrived(fact.topic, fact.payload, fact.retained, fact.mid, connection.number)
                self._inflight.received(arrived)
                (self._put if connection.up else connection.early.append)(arrived)
            case PubAck():
                if delivered := self._inflight.acked(fact.mid, fact.refused):
                    self._put(delivered)
            case ConnectionClosed():
                raise LinkError(fact.ending, fact.why, blamed=fact.blamed)
            case _:
                assert_never(fact)

    def _begin_subscriptions(self, wire: MqttConnection, connection: ConnectionState) -> None:
        if self._filters:
            wire.subscribe(self._filters)
        else:
            self._up(connection)

    def _granted(self, fact: SubAck, connection: ConnectionState) -> None:
        if fact.refused or not connection.opened:
            which = f" to {self._filters}" if self._filters and not connection.up else ""
            raise LinkError(ConnectionEnd.REFUSED, f"the broker grants no subscription{which}: {fact.refused}")
        if not connection.up:
            self._up(connection)
        elif granted := self._inflight.granted(fact.mid):
            self._put(granted)

    def _check_deadlines(self, wire: MqttConnection, connection: ConnectionState, heartbeat: str) -> None:
        """Do what is due on the connection; raise where that ends it."""
        now = self._clock()
        connection.pulse = connection.pulse.awaiting_ack(self._inflight.waits_since)
        if self._stopping.is_set():
            self._inflight.shut()
            if not connection.leaving:
                connection.leaving, connection.until = True, now + STOP_TIMEOUT_S
            if not connection.up or self._inflight.idle or now >= connection.until:
                wire.disconnect()
                raise _StopError
        elif not connection.up and now >= connection.until:
            ending = ConnectionEnd.BUSY if connection.opened else ConnectionEnd.SILENT
            raise LinkError(
                ending, f"no answer to {'SUBSCRIBE' if connection.opened else 'CONNECT'} in {CONNECT_TIMEOUT_S:g} s"
            )
        elif connection.up and connection.pulse.timed_out(now):
            raise LinkError(ConnectionEnd.LOST, f"the broker has not answered for {connection.pulse.keepalive_s:g} s")
        elif connection.up and connection.pulse.heartbeat_due(now):
            self._inflight.queue_heartbeat(heartbeat)

    def _accepted(self) -> None:
        self._version = self._version.accepted()
        if self._version.spoken != self._known:
            self._known = self._version.spoken
            self._remember(self._known)

    def _up(self, connection: ConnectionState) -> None:
        connection.up, self._last_reason, self._up_at = True, None, self._clock()
        self._retry_now.clear()
        self._inflight.open(connection.window)
        failed = self._routes.connected(connection.route)
        self._put(
            LinkUp(connection.session_present, self._version.protocol, connection.number, connection.route, failed)
        )
        for arrived in connection.early:
            self._put(arrived)
        connection.early.clear()

    def _down(self, why: str) -> None:
        if why != self._last_reason:
            self._last_reason = why
            self._put(LinkDown(why))

    def _pause(self, wait_s: float) -> None:
        end = self._clock() + wait_s
        while (left := end - self._clock()) > 0 and not self._stopping.is_set() and not self._retry_now.is_set():
            self._alive_at = self._clock()
            self._waker.wait(min(left, 5.0))
        if self._retry_now.is_set():
            self._routes.wake()
        self._retry_now.clear()
