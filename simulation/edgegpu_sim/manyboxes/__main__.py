"""The process that holds the connections of all boxes: `python -m edgegpu_sim.manyboxes`, one selector for all.

Each box has a real TLS connection with a certificate of its own, as in the field; a client library for each would take
threads and memory for ten thousand. The process prints its state as a line of JSON, five times a second.
"""

import argparse
import heapq
import json
import os
import random
import resource
import selectors
import socket
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_sim.manyboxes import packets
from edgegpu_sim.manyboxes.profiles import PROFILES, Profile
from edgegpu_sim.manyboxes.simbox import Said, SimBox
from edgegpu_sync.ids import device_id
from edgegpu_sync.link.link import FOUR_WEEKS_S
from edgegpu_sync.link.rules import ConnectionEnd, ReconnectBackoff, heartbeat_topic
from edgegpu_sync.topics import TopicKind, box_filter

KEEPALIVE_S, BEAT_S, REPORT_S, SPREAD_S, MEASURE_S = 30, 24.0, 600.0, 5.0, 60.0
AT_ONCE = 200
"""Handshakes under way at one time: the boxes of the field are as many machines, this is one."""

SLOW, SLOW_S = "the broker is too slow", 20.0
TELL_S = 0.2
READ = 65_536


@dataclass(slots=True)
class Box:
    """A box's connection, as far as it is."""

    sim: SimBox
    cert: Path
    sock: socket.socket | None = None
    """Plain until TCP is connected, then in TLS."""
    shaken: bool = False
    up: bool = False
    come: bytearray = field(default_factory=bytearray)
    to_send: bytearray = field(default_factory=bytearray)
    mid: int = 0
    heard_s: float = 0.0
    up_s: float = 0.0
    failures: ReconnectBackoff = field(default_factory=ReconnectBackoff)
    connection: int = 0
    born: bool = False
    writing: bool = False
    gone: bool = False
    """Whether it has left for good, as a machine that was switched off."""


@dataclass(slots=True)
class Totals:
    """What all boxes have done so far."""

    born: int = 0
    sent: int = 0
    received: int = 0
    lost: int = 0
    failed: int = 0
    why: str = ""


class ManyBoxes:
    """All boxes, and what each is to do next."""

    def __init__(
        self, host: str, port: int, *, ca: Path, folder: Path, devices: list[str], profile: Callable[[int], Profile]
    ) -> None:
        self._host, self._port = host, port
        self._key = folder / "box.key"
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.load_verify_locations(ca)
        self._boxes = [Box(SimBox(device_id(one), profile(int(one))), folder / f"{one}.crt") for one in devices]
        self._selector = selectors.EpollSelector()
        self._rng = random.Random(7)  # noqa: S311  (the same spread of reports each time)
        self._due: list[tuple[float, int, str, int]] = []
        self._waiting = list(range(len(self._boxes)))[::-1]
        self._shaking: set[int] = set()
        self.totals = Totals()

    # time

    def _at(self, wait_s: float, at: int, what: str) -> None:
        heapq.heappush(self._due, (time.monotonic() + wait_s, at, what, self._boxes[at].connection))

    def _do_due(self) -> None:
        now_s = time.monotonic()
        while self._due and self._due[0][0] <= now_s:
            _, at, what, connection = heapq.heappop(self._due)
            box = self._boxes[at]
            if what == "connect":
                self._waiting.append(at)
            elif what == "slow":
                if connection == box.connection and not box.up:
                    self._lost(at, box, SLOW)
            elif connection == box.connection and box.up:
                try:
                    self._act(at, box, what, now_s)
                except OSError as error:
                    self._lost(at, box, str(error))

    def _act(self, at: int, box: Box, what: str, now_s: float) -> None:
        if what == "report":
            self._say(at, box, [box.sim.reported()])
            self._at(REPORT_S * self._rng.uniform(0.9, 1.1), at, "report")
        elif what == "answer":
            self._say(at, box, [box.sim.reported()])
        elif what == "measure":
            self._say(at, box, [box.sim.metrics(time.time(), MEASURE_S)])
            self._at(MEASURE_S, at, "measure")
        elif what == "leave":
            box.gone = True
            self._lost(at, box, "it leaves")
        elif now_s - box.heard_s >= BEAT_S:
            self._say(at, box, [(heartbeat_topic(box.sim.device), b"", False)])
            self._at(BEAT_S, at, "beat")
        else:
            self._at(BEAT_S - (now_s - box.heard_s), at, "beat")

    # connections

    def _connect_some(self) -> None:
        while self._waiting and len(self._shaking) < AT_ONCE:
            self._connect(self._waiting.pop())

    def _connect(self, at: int) -> None:
        box = self._boxes[at]
        plain = socket.socket()
        plain.setblocking(False)  # noqa: FBT003  (the standard library's own)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.connect_ex((self._host, self._port))
        box.connection += 1
        box.sock, box.shaken, box.up = plain, False, False
        self._shaking.add(at)
        self._at(SLOW_S, at, "slow")
        self._selector.register(plain, selectors.EVENT_WRITE, at)

    def _begin_tls(self, at: int, box: Box, plain: socket.socket) -> None:
        if error := plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error))
        self._selector.unregister(plain)
        self._context.load_cert_chain(box.cert, self._key)  # the connection keeps what stands there now
        box.sock = self._context.wrap_socket(plain, server_hostname=self._host, do_handshake_on_connect=False)
        self._selector.register(box.sock, selectors.EVENT_WRITE, at)

    def _lost(self, at: int, box: Box, why: str) -> None:
        was_up = box.up
        self.totals.lost += was_up
        self.totals.failed += not was_up
        self.totals.born -= box.born
        self.totals.why = why or self.totals.why
        ending = ConnectionEnd.LOST if was_up else ConnectionEnd.BUSY if why == SLOW else ConnectionEnd.ABSENT
        if box.sock is not None:
            if box.sock in self._selector.get_map():
                self._selector.unregister(box.sock)
            box.sock.close()
        self._shaking.discard(at)
        box.sock, box.up, box.born, box.writing = None, False, False, False
        box.come.clear()
        box.to_send.clear()
        box.connection += 1
        if box.gone:
            return
        box.failures = box.failures.after(up_s=box.heard_s - box.up_s if was_up else 0.0)
        self._at(box.failures.wait_s(ending, self._rng.random()), at, "connect")

    def _shake(self, at: int, box: Box) -> None:
        if not isinstance(box.sock, ssl.SSLSocket):
            return
        try:
            box.sock.do_handshake()
        except ssl.SSLWantReadError:
            self._selector.modify(box.sock, selectors.EVENT_READ, at)
            return
        except ssl.SSLWantWriteError:
            self._selector.modify(box.sock, selectors.EVENT_WRITE, at)
            return
        box.shaken = True
        self._selector.modify(box.sock, selectors.EVENT_READ, at)
        will = box.sim.will()
        box.to_send += packets.connect(box.sim.device, will=will, keepalive_s=KEEPALIVE_S, session_s=FOUR_WEEKS_S)
        self._flush(at, box)

    # bytes

    def _flush(self, at: int, box: Box) -> None:
        if box.sock is None:
            return
        while box.to_send:
            try:
                done = box.sock.send(bytes(box.to_send[:READ]))
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                break
            del box.to_send[:done]
        if box.writing is not bool(box.to_send):
            box.writing = bool(box.to_send)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if box.writing else 0)
            self._selector.modify(box.sock, events, at)

    def _read(self, at: int, box: Box) -> None:
        if box.sock is None:
            return
        while True:
            try:
                data = box.sock.recv(READ)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not data:
                raise ConnectionError("closed by the broker")
            box.come += data
        box.heard_s = time.monotonic()
        while (packet := packets.take(box.come)) is not None:
            self._packet(at, box, packet)
        self._flush(at, box)

    def _packet(self, at: int, box: Box, packet: packets.Packet) -> None:
        match packet.kind:
            case packets.CONNACK:
                if packet.body[1]:
                    raise ConnectionError(f"the broker refuses: {packet.body[1]}")
                box.up, box.up_s = True, time.monotonic()
                self._shaking.discard(at)
                box.to_send += packets.subscribe(1, box_filter(box.sim.device))
            case packets.SUBACK:
                self._born(at, box)
            case packets.PUBLISH:
                self._heard(at, box, packets.arrived(packet))
            case packets.DISCONNECT:
                raise ConnectionError("the broker disconnects")

    def _born(self, at: int, box: Box) -> None:
        self._say(at, box, [box.sim.birth(), box.sim.reported(), *box.sim.measurements()])
        self.totals.born += 1
        box.born = True
        self._at(self._rng.uniform(0, REPORT_S), at, "report")
        self._at(BEAT_S, at, "beat")
        if box.sim.profile.measures:
            self._at(self._rng.uniform(0, SPREAD_S), at, "measure")
        if box.sim.profile.leaves:
            self._at(2 * SPREAD_S, at, "leave")

    def _heard(self, at: int, box: Box, one: packets.Arrived) -> None:
        self.totals.received += 1
        if one.mid:
            box.to_send += packets.puback(one.mid)
        if one.topic.endswith(TopicKind.DESIRED):
            self._say(at, box, box.sim.desired(one.payload))
        elif one.topic.endswith(TopicKind.RECEIPT):
            said_, spread = box.sim.receipt(one.payload)
            if said_ and spread:
                self._at(self._rng.uniform(0, SPREAD_S), at, "answer")
            elif said_:
                self._say(at, box, said_)

    def _say(self, at: int, box: Box, said: list[Said]) -> None:
        for topic, payload, retain in said:
            box.mid = box.mid % 60_000 + 2
            box.to_send += packets.publish(box.mid, topic, payload, retain=retain)
            self.totals.sent += 1
        self._flush(at, box)

    # the loop

    def run(self) -> None:
        """Work until the process is ended."""
        tell_s = 0.0
        while True:
            self._connect_some()
            for key, events in self._selector.select(0.02):
                self._work(key.data, events)
            self._do_due()
            if time.monotonic() >= tell_s:
                tell_s = time.monotonic() + TELL_S
                self._tell()

    def _work(self, at: int, events: int) -> None:
        box = self._boxes[at]
        try:
            if box.sock is None:
                return
            if not isinstance(box.sock, ssl.SSLSocket):
                self._begin_tls(at, box, box.sock)
            if not box.shaken:
                self._shake(at, box)
                return
            if events & selectors.EVENT_WRITE:
                self._flush(at, box)
            if events & selectors.EVENT_READ:
                self._read(at, box)
        except OSError as error:
            self._lost(at, box, str(error))

    def _tell(self) -> None:
        totals = self.totals
        told = {name: getattr(totals, name) for name in totals.__slots__}
        print(json.dumps(told), flush=True)  # noqa: T201  (what the process is asked for)


def main() -> None:
    """Read the command line, and hold the connections."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ca", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="box.key, and DEVICE.crt for each")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="equal", help="what the boxes are")
    chosen = parser.parse_args()
    devices = sorted(path.stem for path in chosen.folder.glob("*.crt"))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most < len(devices) + 100:
        sys.exit(f"{len(devices)} boxes need as many descriptors: the limit is {most} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    ManyBoxes(
        chosen.host, chosen.port, ca=chosen.ca, folder=chosen.folder, devices=devices, profile=PROFILES[chosen.profile]
    ).run()


if __name__ == "__main__":
    main()
