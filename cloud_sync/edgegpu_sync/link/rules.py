"""The rules of the link, pure: how long to wait, which version to speak, what to leave alone, when it is dead."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, assert_never

Protocol = Literal[4, 5]
V311: Final = 4
V5: Final = 5
"""Versions as MQTT numbers them."""

DAY_S = 86_400.0
EARLY_CLOSES = 2
"""So many connections in a row without a CONNACK mean that the broker does not speak MQTT 5."""

STRIKES = 2
HELD_S = 15.0
SUSPECT_S = 10.0
"""A connection that ends within this time of a message's sending or arrival may have ended because of it."""

STEADY_S = 3.0
"""A connection that held for so long was a good one: the wait after it begins anew."""


class ConnectionEnd(StrEnum):
    """Why a connection, or the try to make one, came to its end, as far as the next wait depends on it."""

    ABSENT = "absent"
    """Nobody is there, or the way is cut. Trying costs nobody anything."""
    BUSY = "busy"
    """The broker is there and too slow, or says that it has too much to do: thousands may be coming back at once."""
    REFUSED = "refused"
    """It, or we, will not: a certificate, a right. A person or a renewal changes that."""
    UNSUPPORTED = "unsupported"
    """The broker does not speak this version."""
    CLOSED_EARLY = "closed early"
    """TLS stood, and the connection was closed before CONNACK, without a word."""
    SILENT = "silent"
    """TLS stood, and CONNECT was not answered: too slow, or, as amqtt with MQTT 5, waiting for what does not come."""
    LOST = "lost"
    """The connection was up, and ended without our doing."""
    OVERSIZE = "oversize"
    """The broker sent more than a message may have. It would again: the session, in which it waits, is begun anew."""


_CAP_S = {
    ConnectionEnd.ABSENT: 4.0,
    ConnectionEnd.LOST: 4.0,
    ConnectionEnd.CLOSED_EARLY: 4.0,
    ConnectionEnd.UNSUPPORTED: 4.0,
    ConnectionEnd.BUSY: 30.0,
    ConnectionEnd.SILENT: 30.0,
    ConnectionEnd.REFUSED: 300.0,
    ConnectionEnd.OVERSIZE: 300.0,
}


@dataclass(frozen=True, slots=True)
class ReconnectBackoff:
    """How often in a row it has failed."""

    failures: int = 0

    def after(self, *, up_s: float) -> "ReconnectBackoff":
        """Return it after a try that was up for `up_s` seconds, 0 for never: a good connection begins anew."""
        return ReconnectBackoff(1 if up_s >= STEADY_S else self.failures + 1)

    def wait_s(self, ending: ConnectionEnd, roll: float) -> float:
        """Return the seconds until the next try; `roll` is random in [0, 1), so that a fleet does not come at once.

        A broker that was away has everybody back within 4 s, since the wait for one that is absent grows no further.
        For one that is there and too slow the wait grows to 30 s, for a refusal to 300 s; `Link.wake` cuts it short.
        """
        longest = min(_CAP_S[ending], 0.5 * 2.0 ** min(self.failures, 20))
        return longest * (0.1 + 0.9 * roll)


@dataclass(frozen=True, slots=True)
class SpokenVersion:
    """What to remember over restarts: that this broker took 3.1.1 alone, and when by the clock of the wall."""

    since: float


@dataclass(frozen=True, slots=True)
class MqttVersionChoice:
    """Which version the next try speaks: 5, or 3.1.1 for a day after 5 was not understood."""

    protocol: Protocol = V5
    closes: int = 0
    since: float = 0.0
    """When 3.1.1 was chosen, by the wall; a clock that jumped costs one try too many, never more."""

    def to_try(self, now: float) -> "MqttVersionChoice":
        """Return it before a try: once a day 5 is tried again, and one close is then enough to go back."""
        if self.protocol == V311 and not 0 <= now - self.since < DAY_S:
            return MqttVersionChoice(V5, closes=EARLY_CLOSES - 1)
        return self

    def failed(self, ending: ConnectionEnd, now: float) -> "MqttVersionChoice":
        """Return it after a try that did not come to CONNACK, or was refused there."""
        match ending:
            case ConnectionEnd.UNSUPPORTED:
                return self._other(now)
            case ConnectionEnd.CLOSED_EARLY | ConnectionEnd.SILENT if self.closes + 1 >= EARLY_CLOSES:
                return self._other(now)
            case ConnectionEnd.CLOSED_EARLY | ConnectionEnd.SILENT:
                return replace(self, closes=self.closes + 1)
            case (
                ConnectionEnd.ABSENT
                | ConnectionEnd.BUSY
                | ConnectionEnd.REFUSED
                | ConnectionEnd.LOST
                | ConnectionEnd.OVERSIZE
            ):
                return self
            case _:
                assert_never(ending)

    def accepted(self) -> "MqttVersionChoice":
        """Return it after the broker has taken it."""
        return replace(self, closes=0)

    @property
    def spoken(self) -> SpokenVersion | None:
        """What to remember once the broker has taken it; None for 5."""
        return SpokenVersion(self.since) if self.protocol == V311 else None

    def _other(self, now: float) -> "MqttVersionChoice":
        # Where 3.1.1 is not taken either it was not the version: 5 again, then in turns.
        return MqttVersionChoice(V311, since=now) if self.protocol == V5 else MqttVersionChoice(V5)


def remembered(spoken: SpokenVersion | None) -> MqttVersionChoice:
    """Return what a link begins with."""
    return MqttVersionChoice() if spoken is None else MqttVersionChoice(V311, since=spoken.since)


@dataclass(frozen=True, slots=True)
class Message:
    """What is suspected: no single payload, which each signature changes, but topic and size, by powers of 2."""

    way: Literal["in", "out"]
    topic: str
    size: int

    @classmethod
    def of(cls, way: Literal["in", "out"], topic: str, payload: bytes) -> "Message":
        """Name a message."""
        return cls(way, topic, len(payload).bit_length())


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message that is left alone until `until`, by the link's clock; after it one more is tried."""

    message: Message
    strikes: int
    until: float


@dataclass(frozen=True, slots=True)
class Quarantine:
    """What was followed by the connection's end, and how often in a row.

    A broker closes the connection on what it will not have, and a client that sends it again is closed out for ever.
    Of those under way the oldest is suspected, since a broker takes them in order; two strikes and it is left alone,
    for 15 s, then twice as long each time, up to a day: so that chance, which strikes twice as well, loses nothing.
    """

    strikes: Mapping[Message, HeldMessage] = field(default_factory=lambda: MappingProxyType({}))

    def ended(self, oldest: Iterable[tuple[Message, float]], now: float) -> "Quarantine":
        """Return it after the connection was lost: `oldest` are those that had waited longest, and since when."""
        strikes = dict(self.strikes)
        for message, since in oldest:
            if now - since <= SUSPECT_S:
                count = strikes[message].strikes + 1 if message in strikes else 1
                pause = HELD_S * 2.0 ** min(count - STRIKES, 20) if count >= STRIKES else 0.0
                strikes[message] = HeldMessage(message, count, now + min(pause, DAY_S))
        return Quarantine(MappingProxyType(dict(list(strikes.items())[-256:])))

    def passed(self, message: Message) -> "Quarantine":
        """Return it after the message was acknowledged: it was not the one."""
        if message not in self.strikes:
            return self
        return Quarantine(MappingProxyType({name: one for name, one in self.strikes.items() if name != message}))

    def holds(self, message: Message, now: float) -> bool:
        """Whether it is to be left alone now."""
        held = self.strikes.get(message)
        return held is not None and held.strikes >= STRIKES and now < held.until

    @property
    def held(self) -> tuple[HeldMessage, ...]:
        """Those with two strikes and more, for people."""
        return tuple(one for one in self.strikes.values() if one.strikes >= STRIKES)


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Whether a connection lives: who is silent is asked, and who does not answer is gone."""

    keepalive_s: float
    heard: float
    """When the last packet came, by the link's clock."""
    proved: float
    """When the broker last acknowledged something of ours: both ways stand, and it has heard us."""
    asked: float | None = None
    """Since when the oldest thing that we sent has waited for its acknowledgement."""

    def hears(self, now: float, *, proof: bool) -> "KeepAlive":
        """Return it after a packet came; `proof`: it acknowledges something of ours."""
        return replace(self, heard=now, proved=now if proof else self.proved)

    def waits(self, since: float | None) -> "KeepAlive":
        """Return it with what waits for an acknowledgement now."""
        return replace(self, asked=since)

    def due(self, now: float) -> bool:
        """Whether to send a heartbeat: no proof for 0.8 of the keep-alive, and none is owed anyhow."""
        return self.asked is None and now >= self._quiet

    def dead(self, now: float) -> bool:
        """Whether to give it up: an answer is owed, and nothing was heard for a whole keep-alive since."""
        return self.asked is not None and now >= max(self.asked, self.heard) + self.keepalive_s

    def next_s(self, now: float) -> float:
        """Return in how many seconds to look again."""
        at = self._quiet if self.asked is None else max(self.asked, self.heard) + self.keepalive_s
        return max(0.0, at - now)

    @property
    def _quiet(self) -> float:
        return self.proved + 0.8 * self.keepalive_s


def beat_topic(client_id: str) -> str:
    """Return where a link publishes its heartbeat: its own, and nobody subscribes to it."""
    return f"edgegpu/v1/{client_id}/beat"
