"""A TCP proxy that cuts, delays, stalls and refuses: what a bad network does, when a test asks for it."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Coroutine

Way = Literal["up", "down"]
"""up: from who connected to the server behind."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Pair:
    """A connection, and the one that was made for it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter

    def abort(self) -> None:
        for end in (self.client, self.server):
            sock = end.get_extra_info("socket")
            with suppress(OSError):  # a reset, not an orderly end
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.transport.abort()


@dataclass(slots=True)
class Counted:
    """What has passed."""

    connections: int = 0
    up_bytes: int = 0
    down_bytes: int = 0
    faults: dict[str, int] = field(default_factory=dict)


class FaultProxy:
    """Passes TCP from `port` on `host` to the server behind; its methods are for any thread."""

    def __init__(
        self, server_port: int, *, port: int = 0, host: str = "127.0.0.1", server_host: str = "127.0.0.1"
    ) -> None:
        self.counted = Counted()
        self._host = host
        self._behind = (server_host, server_port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._listening: asyncio.Task[None] | None = None
        self._delay_s: dict[Way, float] = {"up": 0.0, "down": 0.0}
        self._left: dict[Way, int | None] = {"up": None, "down": None}
        self._flowing: dict[Way, asyncio.Event] = {}
        # Never one that the kernel chooses: while connections are refused it would give the port to others.
        self.port = port or free_port()

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    # --- faults

    def cut(self) -> int:
        """Reset every connection; return how many there were."""
        return self._do(self._cut())

    def cut_after(self, way: Way, count: int) -> None:
        """Reset every connection as soon as `count` more bytes have passed that way: in the middle of something."""
        self._fault("cut_after")
        self._left[way] = count

    def refuse(self) -> None:
        """Reset what there is, and take no connection until `accept`."""
        self._fault("refuse")
        self._do(self._shut())
        self.cut()

    def accept(self) -> None:
        """Take connections again, on the same port."""
        self._do(self._open())

    def stall(self, *ways: Way) -> None:
        """Let connections stand, and nothing pass, until `flow`; without a way: either."""
        self._fault("stall")
        self._do(self._set_flow(ways or ("up", "down"), flowing=False))

    def flow(self) -> None:
        """Let everything pass again, what was held back first."""
        self._do(self._set_flow(("up", "down"), flowing=True))

    def delay(self, seconds: float, *ways: Way) -> None:
        """Hold each piece back for so long from now on; without a way: either; 0: not any more."""
        self._fault("delay")
        for way in ways or ("up", "down"):
            self._delay_s[way] = seconds

    # --- the loop's own

    def _fault(self, kind: str) -> None:
        self.counted.faults[kind] = self.counted.faults.get(kind, 0) + 1

    def _do(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _open(self) -> None:
        for way in ("up", "down"):
            self._flowing.setdefault(way, asyncio.Event()).set()
        if self._listener is None:
            self._listener = socket.create_server((self._host, self.port), backlog=100)
            self._listener.settimeout(0)
            self.port = self._listener.getsockname()[1]
            self._listening = self._spawn(self._listen(self._listener))

    async def _shut(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None and self._listening is not None:
            listener.shutdown(socket.SHUT_RDWR)
            await self._listening
            listener.close()

    async def _close(self) -> None:
        await self._shut()
        await asyncio.sleep(0)  # who was just taken begins
        await self._cut()
        ours = list(self._tasks)
        for task in ours:
            task.cancel()
        await asyncio.gather(*ours, return_exceptions=True)

    async def _cut(self) -> int:
        pairs, self._pairs = self._pairs, set()
        if pairs:
            self._fault("cut")
        for pair in pairs:
            pair.abort()
        return len(pairs)

    async def _set_flow(self, ways: tuple[Way, ...], *, flowing: bool) -> None:
        for way in ways:
            self._flowing[way].set() if flowing else self._flowing[way].clear()

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _listen(self, listener: socket.socket) -> None:
        """Take connections until it is shut.

        Not by asyncio.Server: what it takes while it is closed leaks, and its tasks log a traceback when they are
        cancelled (Python 3.11).
        """
        while True:
            try:
                sock, _ = await self._loop.sock_accept(listener)
            except OSError:
                if self._listener is listener:
                    raise
                return
            self._spawn(self._serve(sock))

    async def _serve(self, sock: socket.socket) -> None:
        self.counted.connections += 1
        reader, writer = await asyncio.open_connection(sock=sock)
        try:
            behind_reader, behind_writer = await asyncio.open_connection(*self._behind)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        pair = _Pair(writer, behind_writer)
        self._pairs.add(pair)
        try:
            await asyncio.gather(
                self._pass("up", reader, behind_writer, pair), self._pass("down", behind_reader, writer, pair)
            )
        finally:
            self._pairs.discard(pair)

    async def _pass(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: _Pair) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if delay_s := self._delay_s[way]:
                    await asyncio.sleep(delay_s)
                await self._flowing[way].wait()
                if pair not in self._pairs:
                    return
                data, cut = self._cut_short(way, data)
                writer.write(data)
                await writer.drain()
                if cut:
                    await self._cut()
                    return
        writer.close()

    def _cut_short(self, way: Way, data: bytes) -> tuple[bytes, bool]:
        """Return what may still pass, and whether that is the end."""
        if way == "up":
            self.counted.up_bytes += len(data)
        else:
            self.counted.down_bytes += len(data)
        left = self._left[way]
        if left is None:
            return data, False
        self._left[way] = None if left <= len(data) else left - len(data)
        return data[:left], left <= len(data)
