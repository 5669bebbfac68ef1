"""Whom the link trusts: chain and name always, dates unless the clock is known to be wrong."""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.fakebroker import FakeBroker, obliging
from kits.linkrun import LinkRun
from kits.mqttcerts import TestCa

from edgegpu_sync.link.connect import NO_CHECK_TIME, dial, tls_context
from edgegpu_sync.link.errors import LinkError
from edgegpu_sync.link.events import LinkDown, LinkUp
from edgegpu_sync.link.rules import ConnectionEnd

if TYPE_CHECKING:
    from pathlib import Path

BOX = "k3f9x2m7q1w8e5r4"
EXPIRED, NOT_YET = (-30.0, -10.0), (3650.0, 4015.0)


def fails(broker: FakeBroker, *, check_dates: bool) -> str:
    address = replace(broker.address(BOX), check_dates=check_dates)
    with pytest.raises(LinkError) as caught:
        dial(address, address.ways[0])
    assert caught.value.ending is ConnectionEnd.REFUSED
    return str(caught.value)


@pytest.mark.parametrize(
    ("days", "said"), [(EXPIRED, "certificate has expired"), (NOT_YET, "certificate is not yet valid")]
)
def test_dates_count_unless_the_clock_is_wrong(tmp_path: Path, days: tuple[float, float], said: str) -> None:
    with FakeBroker(tmp_path, obliging, days=days) as broker:
        assert said in fails(broker, check_dates=True)
        with LinkRun(replace(broker.address(BOX), check_dates=False)) as run:
            run.next(LinkUp)


def test_without_dates_the_chain_counts_all_the_same(tmp_path: Path) -> None:
    with FakeBroker(tmp_path, obliging, days=EXPIRED) as broker:
        TestCa("authority").write(broker.address(BOX).ca)  # another one of the same name
        assert "CERTIFICATE_VERIFY_FAILED" in fails(broker, check_dates=False)


def test_without_dates_the_name_counts_all_the_same(tmp_path: Path) -> None:
    with FakeBroker(tmp_path, obliging, names=["broker.example"], days=EXPIRED) as broker:
        assert "not valid for '127.0.0.1'" in fails(broker, check_dates=False)


def test_nothing_below_tls_1_2_and_no_other_roots(tmp_path: Path) -> None:
    with FakeBroker(tmp_path, obliging) as broker:
        for check_dates in (True, False):
            context = tls_context(replace(broker.address(BOX), check_dates=check_dates))
            assert context.minimum_version is ssl.TLSVersion.TLSv1_2
            assert context.check_hostname
            assert context.verify_mode is ssl.CERT_REQUIRED
            assert len(context.get_ca_certs()) == 1
            assert bool(context.verify_flags & NO_CHECK_TIME) is not check_dates


def test_a_broker_that_refuses_our_certificate_is_no_link(tmp_path: Path) -> None:
    with FakeBroker(tmp_path, obliging) as broker:
        broker.demand(TestCa("who knows"))
        with LinkRun(broker.address(BOX)) as run:
            assert run.next(LinkDown).why  # TLS 1.3: the handshake is over for us before it is for the broker
            assert run.so_far(LinkUp) == []
