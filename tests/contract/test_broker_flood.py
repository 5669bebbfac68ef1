"""A box that floods, from its first packet to its block: a real controller, a real mosquitto with the guard."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from kits.cloudday import DaySite
from kits.mqtt import compile_guard, wait_for
from kits.rawmqtt import RawMqtt, publish_packet

from edgegpu_base.x509 import key_pem, new_key
from edgegpu_cloud.enrolment.ca import load_authority
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.layout import load, store_url
from edgegpu_cloud.store.records import BoxState, EnrolledBox
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.ids import device_id
from edgegpu_sync.link.events import Address

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEVICE = device_id("a1b2c3d4e5f6g7h8")
OWN = f"edgegpu/v1/{DEVICE}/down/#"

pytestmark = pytest.mark.timeout(600)


@contextmanager
def guarded_site(work: Path) -> Iterator[DaySite]:
    """Run a controller, and its broker with the guard."""
    site = DaySite(work)
    site.init()
    guard, config = compile_guard(work), site.layout.config
    config.write_text(config.read_text().replace("guard: ''", f"guard: {guard}"))
    site.cli("broker")
    site.start()
    try:
        yield site
    finally:
        site.end()


def enrolled(site: DaySite, store: ControllerStore) -> Address:
    """Enrol a box, and return how its root reaches the broker."""
    now_s, key = time.time(), new_key()
    box = EnrolledBox(device=DEVICE, enrolment=1, public="x", instance="ab" * 32, name="hall-1")
    with store.write() as tx:
        add_box(tx, box, Author("anna", now_s))
    authority = load_authority(site.layout.ca_cert("boxes").read_text(), site.layout.ca_key("boxes").read_text())
    cert, key_file = site.work / "box.crt", site.work / "box.key"
    cert.write_text(authority.client(key.public_key(), DEVICE, now_s=now_s, days=1))
    key_file.write_text(key_pem(key))
    port = load(site.layout.config).broker.port
    return Address(host="127.0.0.1", port=port, client_id=DEVICE, ca=site.ca, cert=cert, key=key_file)


def flood(address: Address) -> None:
    """Send far more than a box may, until that is done or the broker ends the connection."""
    chunk = publish_packet(f"edgegpu/v1/{DEVICE}/up/health", b"x") * 100
    with suppress(OSError, AssertionError), RawMqtt(address) as rooted:
        for _ in range(20):
            rooted.send(chunk)
            rooted.ping()


def test_a_box_that_floods_is_blocked_cut_off_and_back_when_it_is_unblocked(tmp_path: Path) -> None:
    with guarded_site(tmp_path) as site:
        store = ControllerStore.open(store_url(site.layout, load(site.layout.config).database))
        fleet, kept = Fleet(store, clock=time.time, by="anna"), site.layout.broker / "data/blocked"
        address = enrolled(site, store)

        def is_blocked_now() -> bool:
            flood(address)
            return fleet.box(DEVICE).state is BoxState.BLOCKED

        wait_for(is_blocked_now, what="the controller has blocked the box", timeout_s=240)
        wait_for(lambda: kept.read_text() == f"{DEVICE}\n", what="the guard has the list")
        with RawMqtt(address) as rooted:
            assert rooted.subscribe([OWN]) == [128]
        assert "broker.BLOCKED" in {alarm.kind for alarm in fleet.alarms()}
        site.cli("boxes", "unblock", DEVICE)
        wait_for(lambda: not kept.read_text(), what="the guard has the empty list")
        store.close()
        # The rate that the flood has used up comes back by 20 a second.
        wait_for(lambda: is_served(address), what="the box is served again")


def is_served(address: Address) -> bool:
    """Whether the broker takes the box's own filter."""
    with RawMqtt(address) as box:
        return box.subscribe([OWN]) == [1]
