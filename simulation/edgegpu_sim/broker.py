"""A small MQTT broker for a laptop without mosquitto: amqtt behind TLS. MQTT 3.1.1 and client certificates; no rights.

amqtt leaves a client of MQTT 5 without an answer that it understands; here it is told, and comes back with 3.1.1.
"""

import argparse
import asyncio
import contextlib
import logging
import signal
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgegpu_sim.ports import free_port

MISSING = "amqtt is not installed: it comes with `make venv`, or install mosquitto"

_CONNECT, _MORE, _LENGTH_BYTES = 0x10, 0x80, 4
_V311, _LEVEL_AT, _HEAD_BYTES = 4, 6, 7
"""Positions in CONNECT's variable header: a length of 2 bytes, the name MQTT, the level."""
_OTHER_VERSION = b"\x20\x03\x00\x84\x00"
"""CONNACK of MQTT 5: unsupported protocol version, no properties."""
_CHUNK_BYTES = 65_536


class _Front:
    """The TLS front of the broker: it rejects clients of other versions and forwards the rest to a local plain port."""

    def __init__(self, inner_port: int) -> None:
        self._inner_port = inner_port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it disconnects."""
        with contextlib.suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await _head_of_connect(reader)
        if head[-_HEAD_BYTES:][_LEVEL_AT] != _V311:
            writer.write(_OTHER_VERSION)
            await writer.drain()
            return
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._inner_port)
        to_broker.write(head)
        await asyncio.gather(_pass_on(reader, to_broker), _pass_on(from_broker, writer))


async def _head_of_connect(reader: asyncio.StreamReader) -> bytes:
    """Read the first packet up to its protocol level."""
    head = await reader.readexactly(2)
    if head[0] != _CONNECT:
        raise ConnectionError("the first packet is no CONNECT")
    while head[-1] & _MORE and len(head) <= _LENGTH_BYTES:
        head += await reader.readexactly(1)
    return head + await reader.readexactly(_HEAD_BYTES)


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy bytes until source or target ends; then the other direction ends too."""
    try:
        while data := await source.read(_CHUNK_BYTES):
            target.write(data)
            await target.drain()
    finally:
        target.close()


def _context(chosen: argparse.Namespace, authority: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(chosen.cert, chosen.key)
    return context


async def _serve(chosen: argparse.Namespace) -> None:
    from amqtt.broker import Broker  # type: ignore[import-untyped]  # noqa: PLC0415  (it may not be installed)

    logging.getLogger("amqtt").setLevel(logging.CRITICAL)
    ended, loop, port = asyncio.Event(), asyncio.get_running_loop(), free_port()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    broker = Broker(_config(port))
    await broker.start()
    front = _Front(port)
    for outer, authority in chosen.listen:
        await asyncio.start_server(front.serve, "127.0.0.1", int(outer), ssl=_context(chosen, authority))
    await ended.wait()
    await broker.shutdown()


def _config(port: int) -> dict[str, Any]:
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    return {"listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}}, "plugins": plugins}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the broker until SIGTERM; return 1 without amqtt."""
    parser = argparse.ArgumentParser(prog="python -m edgegpu_sim.broker", description=__doc__)
    parser.add_argument("--listen", nargs=2, action="append", required=True, metavar=("PORT", "CA"))
    parser.add_argument("--cert", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    chosen = parser.parse_args(argv)
    try:
        asyncio.run(_serve(chosen))
    except ImportError:
        sys.stderr.write(f"{MISSING}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
