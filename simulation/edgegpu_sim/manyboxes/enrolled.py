"""Many boxes are written into a controller's store as if each had enrolled, with a certificate for each."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from edgegpu_base.x509 import new_key
from edgegpu_cloud.enrolment.bootstrap import authority_of
from edgegpu_cloud.enrolment.ca import CertificateRequest
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.layout import CloudLayout
from edgegpu_cloud.store.records import EnrolledBox
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sim.manyboxes.profiles import Profile
from edgegpu_sim.manyboxes.simbox import instance_of, public_of
from edgegpu_sync.ids import DeviceId, device_id

AT_ONCE = 500


def devices_of(number: int) -> list[DeviceId]:
    """Return the device ids of so many boxes."""
    return [device_id(f"{at:016d}") for at in range(1, number + 1)]


def enrol_all(
    store: ControllerStore,
    layout: CloudLayout,
    devices: Sequence[DeviceId],
    folder: Path,
    *,
    profile: Callable[[int], Profile],
    by: str,
) -> None:
    """Write the boxes as if each had enrolled, and what each connects with; they share one TLS key.

    Args:
        store: the controller's.
        layout: the controller's folder, which has the authority of boxes.
        devices: the boxes.
        folder: gets `box.key`, and `DEVICE.crt` for each.
        profile: returns what a box is, by its number.
        by: who has enrolled them, for the audit.
    """
    folder.mkdir()
    key, authority, now_s = new_key(), authority_of(layout, "boxes"), time.time()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "box.key").write_bytes(pem)
    request = CertificateRequest(key.public_key(), "0" * 64)
    for at in range(0, len(devices), AT_ONCE):
        with store.write() as tx:
            for device in devices[at : at + AT_ONCE]:
                issued = authority.box(request, device=device, enrolment=1, now_s=now_s, days=30)
                (folder / f"{device}.crt").write_text(issued.pem)
                of = profile(int(device))
                box = EnrolledBox(
                    device=device,
                    enrolment=1,
                    public=public_of(device),
                    instance=instance_of(device),
                    name=of.name,
                    labels=dict(of.labels),
                    host=f"{of.name}.example.com",
                )
                add_box(tx, box, Author(by, now_s))
