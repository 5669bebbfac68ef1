"""The embedded broker of demos, amqtt, for tests: MQTT 3.1.1 alone, TLS, no rights; on a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Self

from amqtt.broker import Broker  # type: ignore[import-untyped]
from kits.mqttcerts import SERVER_NAMES, TestCa

from edgegpu_sim.ports import free_port
from edgegpu_sync.link.events import Address

if TYPE_CHECKING:
    from pathlib import Path


class Amqtt:
    """Use it with `with`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self.port = folder, free_port()
        self.controller_port = self.port
        self._clients, servers = TestCa("clients"), TestCa("servers")
        self._ca, self._shown = (
            servers.write(folder / "servers.crt"),
            servers.issue(folder, "broker", names=SERVER_NAMES),
        )
        self._clients_ca = self._clients.write(folder / "clients.crt")
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=asyncio.run, args=[self._serve()], name="amqtt")
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30), "amqtt does not start"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    async def _serve(self) -> None:
        logging.getLogger("amqtt").setLevel(logging.CRITICAL)
        listener = {
            "type": "tcp",
            "bind": f"127.0.0.1:{self.port}",
            "ssl": True,
            "cafile": str(self._clients_ca),
            "certfile": str(self._shown.cert),
            "keyfile": str(self._shown.key),
        }
        plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
        broker = Broker({"listeners": {"default": listener}, "plugins": plugins})
        await broker.start()
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        await self._stop.wait()
        await broker.shutdown()

    def box(self, name: str, *, port: int | None = None) -> Address:
        """Return how a box reaches it; `port`: of a proxy before it."""
        shown = self._clients.issue(self._folder, name)
        return Address(
            host="127.0.0.1", port=port or self.port, client_id=name, ca=self._ca, cert=shown.cert, key=shown.key
        )

    def controller(self, name: str = "controller-1") -> Address:
        """Return how a controller reaches it."""
        return self.box(name)
