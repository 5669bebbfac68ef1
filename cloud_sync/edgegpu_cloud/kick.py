"""Cuts a revoked box's connection: whoever connects with its id takes its place, and its session at the broker ends."""

import queue
import random
import tempfile
import threading
import time
from pathlib import Path

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.founding import authority_of
from edgegpu_cloud.keyfiles import key_pem, new_key, write_file
from edgegpu_cloud.layout import CloudConfig, CloudLayout
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.link import Link
from edgegpu_sync.linkevents import Address, Down, LinkEvent, Up

_NEVER_HEARD = "edgegpu/v1/{device}/down/keys"


def kick(layout: CloudLayout, config: CloudConfig, device: DeviceId, *, now_s: float, timeout_s: float = 15.0) -> None:
    """Take a box's place at the broker for a moment, with a certificate that is thrown away at once.

    A broker that has read the list of the revoked since does not let the box in again; one that has not does.

    Raises:
        CloudError: the broker cannot be reached.
    """
    key = new_key()
    authority = authority_of(layout, "boxes")
    with tempfile.TemporaryDirectory(prefix="edgegpu-kick-") as work:
        cert_path, key_path = Path(work, "tls.crt"), Path(work, "tls.key")
        write_file(cert_path, authority.client(key.public_key(), device, now_s=now_s, days=1))
        write_file(key_path, key_pem(key))
        address = Address(
            host=config.broker.host,
            port=config.broker.port,
            client_id=device,
            ca=layout.ca_cert("servers"),
            cert=cert_path,
            key=key_path,
        )
        _visit(address, device, timeout_s)


def _visit(address: Address, device: DeviceId, timeout_s: float) -> None:
    events: queue.SimpleQueue[LinkEvent] = queue.SimpleQueue()
    link = Link(
        lambda: address,
        subscribe=[_NEVER_HEARD.format(device=device)],
        will=lambda: None,
        put=events.put,
        rng=random.Random(),  # noqa: S311  (jitter)
        clock=time.monotonic,
        session_s=0,
    )
    thread = threading.Thread(target=link.run, name="kick", daemon=True)
    thread.start()
    why, end_s = "no answer", time.monotonic() + timeout_s
    try:
        while (left_s := end_s - time.monotonic()) > 0:
            try:
                event = events.get(timeout=left_s)
            except queue.Empty:
                break
            if isinstance(event, Up):
                return
            if isinstance(event, Down):
                why = event.why
    finally:
        link.stop()
        thread.join(5)
    raise CloudError(f"cannot cut the box's connection: {why}", remedy="restart the broker: that cuts all of them")
