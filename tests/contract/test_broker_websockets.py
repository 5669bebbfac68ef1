"""Why boxes have no MQTT over WebSocket: mosquitto's listener for it lets revoked certificates in.

If this fails with a newer mosquitto, docs/deploy.md and docs/broker.md have to say something else.
"""

from __future__ import annotations

import base64
import os
import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from kits.linkrun import LinkRun
from kits.mqtt import Mosquitto, wait_for

from edgegpu_sim.ports import free_port
from edgegpu_sync.link.connect import tls_context
from edgegpu_sync.link.events import LinkDown, LinkUp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edgegpu_sync.link.events import Address

BOX, REVOKED = "k3f9x2m7q1w8e5r4", "gone567890123456"


class WebsocketBroker(Mosquitto):
    """A mosquitto with a third listener: the lines of the boxes' one, for WebSocket."""

    def add_listener(self) -> int:
        """Add the listener to the configuration; return its port."""
        port = free_port()
        path = self.folder / "mosquitto.conf"
        text = path.read_text()
        boxes = text[text.index("# Boxes:") : text.index("# Controllers:")]
        assert f"crlfile {self.crl}" in boxes
        path.write_text(f"{text}\n{boxes.replace(str(self.port), str(port), 1)}\nprotocol websockets\n")
        return port


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[WebsocketBroker]:
    broker = WebsocketBroker(tmp_path / "mqtt")
    yield broker
    broker.stop()


def upgraded(address: Address, port: int) -> str:
    """Return the first line of the answer to a WebSocket handshake with the box's certificate."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = ["GET / HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Protocol: mqtt"]
    request = "\r\n".join([*lines, "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", "", ""])
    try:
        link = socket.create_connection(("127.0.0.1", port), 30)
        with closing(tls_context(address).wrap_socket(link, server_hostname=address.host)) as secure:
            secure.sendall(request.encode())
            return secure.recv(4096).decode().partition("\r\n")[0]
    except OSError as error:
        return str(error)


def test_a_revoked_box_comes_in_by_websocket_and_not_by_mqtt(broker: WebsocketBroker) -> None:
    port = broker.add_listener()
    box, revoked = broker.box(BOX), broker.box(REVOKED)
    broker.boxes.crl(broker.crl, revoked.cert)
    broker.start()
    wait_for(lambda: upgraded(box, port).endswith("101 Switching Protocols"), what="the listener takes a box")
    assert upgraded(revoked, port).endswith("101 Switching Protocols")
    with LinkRun(revoked) as link:
        assert link.next(LinkDown).why
        assert link.so_far(LinkUp) == []
    with LinkRun(box) as link:
        link.next(LinkUp)
