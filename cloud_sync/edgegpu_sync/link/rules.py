"""The pure rules of the link: how long to wait, which version to speak, what to quarantine, when to give up."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, assert_never

from edgegpu_base.records import replace

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
"""A connection that was up for so long was a good one: the wait after it begins anew."""


class ConnectionEnd(StrEnum):
    """The reasons for which a connection, or the try to make one, ended, as far as the next wait depends on it."""

    ABSENT = "absent"
    """The broker is not there, or the network is cut. A try costs nobody anything."""
    BUSY = "busy"
    """The broker is there and too slow, or says that it is overloaded: thousands may be reconnecting at once."""
    REFUSED = "refused"
    """The broker or we refuse: a certificate, a missing right. A person or a renewal changes that."""
    UNSUPPORTED = "unsupported"
    """The broker does not speak this version."""
    CLOSED_EARLY = "closed early"
    """TLS was established, and the connection was closed before CONNACK without a reason."""
    SILENT = "silent"
    """TLS was established, and CONNECT was not answered.

    The broker is too slow, or it waits for what does not come, as amqtt does with MQTT 5.
    """
    LOST = "lost"
    """The connection was up, and ended without our doing."""
    OVERSIZE = "oversize"
    """The broker sent more than a message may have.

    It would send the message again, so the session in which the message waits is begun anew.
    """


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
    """The wait between tries, by the number of failures in a row."""

    failures: int = 0

    def after(self, *, up_s: float) -> "ReconnectBackoff":
        """Return the backoff after a try that was up for `up_s` seconds, 0 for never: a good connection begins anew."""
        return ReconnectBackoff(1 if up_s >= STEADY_S else self.failures + 1)

    def wait_s(self, ending: ConnectionEnd, roll: float, *, longest_s: float = 0.0) -> float:
        """Return the seconds until the next try; `roll` is random in [0, 1), so that a fleet does not come at once.

        `longest_s`: the wait may grow to this, where that is longer than for this ending.

        After a broker's outage everybody is back within 4 s, since the wait for an absent broker grows no further. For
        a broker that is there and too slow the wait grows to 30 s, for a refusal to 300 s; `Link.wake` cuts it short.
        """
        longest = min(max(_CAP_S[ending], longest_s), 0.5 * 2.0 ** min(self.failures, 20))
        return longest * (0.1 + 0.9 * roll)


@dataclass(frozen=True, slots=True)
class SpokenVersion:
    """The memory over restarts that this broker accepted 3.1.1 alone, and when by the wall clock."""

    since: float


@dataclass(frozen=True, slots=True)
class MqttVersionChoice:
    """The version that the next try speaks: 5, or 3.1.1 for a day after 5 was not understood."""

    protocol: Protocol = V5
    closes: int = 0
    since: float = 0.0
    """When 3.1.1 was chosen, by the wall clock; a clock that jumped costs one try too many, never more."""

    def to_try(self, now: float) -> "MqttVersionChoice":
        """Return the choice before a try: once a day 5 is tried again, and one close is then enough to go back."""
        if self.protocol == V311 and not 0 <= now - self.since < DAY_S:
            return MqttVersionChoice(V5, closes=EARLY_CLOSES - 1)
        return self

    def failed(self, ending: ConnectionEnd, now: float) -> "MqttVersionChoice":
        """Return the choice after a try that did not reach CONNACK, or was refused there."""
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
        """Return the choice after the broker has accepted the version."""
        return replace(self, closes=0)

    @property
    def spoken(self) -> SpokenVersion | None:
        """What to remember once the broker has accepted the version; None for 5."""
        return SpokenVersion(self.since) if self.protocol == V311 else None

    def _other(self, now: float) -> "MqttVersionChoice":
        # Where 3.1.1 is not accepted either, the version was not the cause: 5 again, then alternately.
        return MqttVersionChoice(V311, since=now) if self.protocol == V5 else MqttVersionChoice(V5)


def remembered(spoken: SpokenVersion | None) -> MqttVersionChoice:
    """Return the version choice that a link begins with."""
    return MqttVersionChoice() if spoken is None else MqttVersionChoice(V311, since=spoken.since)


@dataclass(frozen=True, slots=True)
class Message:
    """A message as the quarantine knows it: direction, topic, and size by powers of 2.

    The payload itself does not count, because each signature changes it.
    """

    way: Literal["in", "out"]
    topic: str
    size: int

    @classmethod
    def of(cls, way: Literal["in", "out"], topic: str, payload: bytes) -> "Message":
        """Return the quarantine's description of a message."""
        return cls(way, topic, len(payload).bit_length())


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A suspected message; in quarantine it is held until `until`, by the link's clock, then tried once more."""

    message: Message
    strikes: int
    until: float


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The messages that were followed by the connection's end, and how often in a row.

    A broker closes the connection on a message that it does not accept, and a client that sends it again is locked out
    for ever. The oldest message in flight is the suspect, since a broker takes them in order. After two strikes it is
    in quarantine for 15 s, then twice as long each time, up to a day: a message that was struck by chance is not lost.
    """

    strikes: Mapping[Message, HeldMessage] = field(default_factory=lambda: MappingProxyType({}))

    def ended(self, oldest: Iterable[tuple[Message, float]], now: float) -> "Quarantine":
        """Return the quarantine after a lost connection; `oldest`: the messages that waited longest, and since when."""
        strikes = dict(self.strikes)
        for message, since in oldest:
            if now - since <= SUSPECT_S:
                count = strikes[message].strikes + 1 if message in strikes else 1
                pause = HELD_S * 2.0 ** min(count - STRIKES, 20) if count >= STRIKES else 0.0
                strikes[message] = HeldMessage(message, count, now + min(pause, DAY_S))
        return Quarantine(MappingProxyType(dict(list(strikes.items())[-256:])))

    def passed(self, message: Message) -> "Quarantine":
        """Return the quarantine after the message was acknowledged, which clears it."""
        if message not in self.strikes:
            return self
        return Quarantine(MappingProxyType({name: one for name, one in self.strikes.items() if name != message}))

    def holds(self, message: Message, now: float) -> bool:
        """Whether the message is in quarantine now."""
        held = self.strikes.get(message)
        return held is not None and held.strikes >= STRIKES and now < held.until


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """The liveness of a connection: a heartbeat probes a silent broker, and one that does not answer is given up."""

    keepalive_s: float
    heard: float
    """When the last packet came, by the link's clock."""
    acked_at: float
    """When the broker last acknowledged something of ours, which proves both directions."""
    awaiting_since: float | None = None
    """Since when the oldest packet of ours has waited for its acknowledgement."""

    def packet_received(self, now: float, *, proof: bool) -> "KeepAlive":
        """Return the state after a packet came; `proof`: it acknowledges something of ours."""
        return KeepAlive(self.keepalive_s, now, now if proof else self.acked_at, self.awaiting_since)

    def awaiting_ack(self, since: float | None) -> "KeepAlive":
        """Return the state with the time since which a packet of ours has waited for its acknowledgement."""
        return self if since == self.awaiting_since else replace(self, awaiting_since=since)

    def heartbeat_due(self, now: float) -> bool:
        """Whether to send a heartbeat: no proof for 0.8 of the keep-alive, and no acknowledgement is due anyway."""
        return self.awaiting_since is None and now >= self._quiet

    def timed_out(self, now: float) -> bool:
        """Whether to give the connection up: an answer is due, and nothing was heard for a whole keep-alive since."""
        return self.awaiting_since is not None and now >= max(self.awaiting_since, self.heard) + self.keepalive_s

    def next_s(self, now: float) -> float:
        """Return the seconds until the next check."""
        at = self._quiet if self.awaiting_since is None else max(self.awaiting_since, self.heard) + self.keepalive_s
        return max(0.0, at - now)

    @property
    def _quiet(self) -> float:
        return self.acked_at + 0.8 * self.keepalive_s


def heartbeat_topic(client_id: str) -> str:
    """Return the topic of a link's heartbeat, to which nobody subscribes."""
    return f"edgegpu/v1/{client_id}/beat"
