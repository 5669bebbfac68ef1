"""The kick of a revoked box: a client with its id takes its place at the broker, and the box's session there ends."""

import queue
import random
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509

from edgegpu_base.x509 import key_pem, new_key
from edgegpu_cloud.enrolment.bootstrap import authority_of
from edgegpu_cloud.enrolment.key_files import write_file
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudConfig, CloudLayout
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.link.events import Address, LinkDown, LinkEvent, LinkUp
from edgegpu_sync.link.link import Link

_PATIENCE_S, _PAUSE_S = 10.0, 0.3
_NEVER_HEARD = "edgegpu/v1/{device}/down/keys"


@dataclass(frozen=True, slots=True)
class KickCertificate:
    """A certificate with a box's name, for this process alone; its key is never kept."""

    device: DeviceId
    cert: str
    key: str = field(repr=False)

    @property
    def serial(self) -> str:
        """The certificate's serial, in hexadecimal digits."""
        return f"{x509.load_pem_x509_certificate(self.cert.encode()).serial_number:x}"


def make_kick_certificate(layout: CloudLayout, device: DeviceId, *, now_s: float) -> KickCertificate:
    """Return a certificate with this box's name.

    Raises:
        CloudError: the authority of boxes cannot be read.
    """
    key = new_key()
    cert = authority_of(layout, "boxes").client(key.public_key(), device, now_s=now_s, days=1)
    return KickCertificate(device, cert, key_pem(key))


def kick(layout: CloudLayout, config: CloudConfig, device: DeviceId, *, now_s: float, timeout_s: float = 15.0) -> None:
    """Take a box's place at the broker for a moment, with a certificate that is thrown away at once.

    A broker that has read the list of the revoked since does not let the box in again; one that has not does.

    Raises:
        CloudError: the broker cannot be reached.
    """
    why = _visit(layout, config, make_kick_certificate(layout, device, now_s=now_s), timeout_s=timeout_s, patient=True)
    if why:
        raise CloudError(f"cannot cut the box's connection: {why}", remedy="restart the broker: that cuts all of them")


def await_crl(layout: CloudLayout, config: CloudConfig, revoked: KickCertificate, *, timeout_s: float = 30.0) -> None:
    """Wait until the broker refuses a certificate that is on the list of the revoked: then it has read the list.

    Raises:
        CloudError: it accepts the certificate all the time.
    """
    end_s = time.monotonic() + timeout_s
    while not _visit(layout, config, revoked, timeout_s=_PATIENCE_S, patient=False):
        if time.monotonic() >= end_s:
            text = f"cannot cut the box's connection: the broker has not read {layout.crl} again in {timeout_s:g} s"
            raise CloudError(text, remedy="check that this file is the broker's crlfile, then reload it by hand")
        time.sleep(_PAUSE_S)


def _visit(layout: CloudLayout, config: CloudConfig, who: KickCertificate, *, timeout_s: float, patient: bool) -> str:
    """Connect once, or with `patient` try until the time is over; return why that failed, empty when it did not."""
    with tempfile.TemporaryDirectory(prefix="edgegpu-kick-") as work:
        cert_path, key_path = Path(work, "tls.crt"), Path(work, "tls.key")
        write_file(cert_path, who.cert)
        write_file(key_path, who.key)
        address = Address(
            host=config.broker.host,
            port=config.broker.port,
            client_id=who.device,
            ca=layout.ca_cert("servers"),
            cert=cert_path,
            key=key_path,
        )
        return _connect(address, timeout_s=timeout_s, patient=patient)


def _connect(address: Address, *, timeout_s: float, patient: bool) -> str:
    events: queue.SimpleQueue[LinkEvent] = queue.SimpleQueue()
    link = Link(
        lambda: address,
        subscribe=[_NEVER_HEARD.format(device=address.client_id)],
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
            if isinstance(event, LinkUp):
                return ""
            if isinstance(event, LinkDown):
                why = event.why
                if not patient:
                    break
    finally:
        link.stop()
        thread.join(5)
    return why
