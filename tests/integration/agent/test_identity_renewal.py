"""Renewal against a real HTTPS server: at two thirds, expired, for a command, cut off in the middle."""

from __future__ import annotations

import datetime as dt
import threading
import time
from typing import TYPE_CHECKING

import pytest
from kits.cert import NOW, YEAR
from kits.identity import Cloud, CloudServer
from kits.identitybox import Box, a_box

from edgegpu_agent.identity.errors import DeniedError, UnreachableError
from edgegpu_agent.identity.keys import public_of
from edgegpu_agent.identity.status import EnrolmentState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def box(tmp_path: Path, cloud: Cloud) -> Iterator[Box]:
    with a_box(tmp_path / "box", cloud) as made:
        yield made


def test_a_certificate_is_renewed_at_two_thirds_of_its_life(box: Box, cloud: Cloud) -> None:
    cloud.life, cloud.start = YEAR, NOW - YEAR * 0.7
    box.start()
    first = box.enrolled()
    old_key = first.sign_key().private_bytes_raw()
    box.until(lambda: len(cloud.asked) > 1)
    cloud.start = NOW
    box.again()
    box.until(lambda: first.certificate().not_after_s > NOW.timestamp() + 300 * 86_400)
    assert first.sign_key().private_bytes_raw() == old_key
    assert box.keeper.identity == first


def test_an_expired_certificate_is_renewed_too(box: Box, cloud: Cloud) -> None:
    cloud.life, cloud.start = dt.timedelta(days=2), NOW - dt.timedelta(days=30)
    box.start()
    identity = box.enrolled()
    cloud.life = YEAR
    box.again()
    box.until(lambda: identity.certificate().not_after_s > NOW.timestamp())
    box.until(lambda: box.renewals)


def test_a_clock_that_is_years_ahead_gets_a_certificate_once_and_goes_on(tmp_path: Path) -> None:
    cloud, ahead = Cloud(), [0.0]
    with CloudServer(cloud):
        box = Box(tmp_path / "box", cloud, clock=lambda: time.time() + ahead[0])
        try:
            box.start()
            first = box.enrolled().certificate()
            box.stop()
            ahead[0] = 20 * 365 * 86_400.0
            box.keeper = box.make()
            box.start()
            identity = box.enrolled()
            box.until(lambda: identity.certificate() != first)
            second = identity.certificate()
            looks = len(cloud.asked)
            box.until(lambda: not box.keeper.standing.text)
            threading.Event().wait(0.1)
            assert (identity.certificate(), len(cloud.asked)) == (second, looks)
        finally:
            box.stop()


def test_a_floor_in_the_far_future_does_not_renew_without_end(tmp_path: Path) -> None:
    """As after a certificate of a controller whose clock stood wrong: whatever comes is worn by that floor."""
    looks = [0]

    def clock() -> float:
        looks[0] += 1
        return time.time()

    cloud = Cloud()
    with CloudServer(cloud):
        box = Box(tmp_path / "box", cloud, clock=clock)
        try:
            box.start()
            box.enrolled()
            asked = len(cloud.asked)
            box.floor.raise_to(4_100_000_000)
            box.until(lambda: len(cloud.asked) > asked)
            before = looks[0]
            box.until(lambda: looks[0] > before + 100)
            assert len(cloud.asked) == asked + 1
        finally:
            box.stop()


def test_a_renewal_that_fails_is_told_and_the_rest_goes_on(box: Box, cloud: Cloud) -> None:
    cloud.start = NOW - YEAR * 0.9
    cloud.life = YEAR
    box.start()
    box.enrolled()
    cloud.status = 503
    box.again()
    box.until(lambda: box.keeper.standing.failures)
    assert box.keeper.standing.stand is EnrolmentState.ENROLLED
    assert "cannot be renewed" in box.keeper.standing.text
    assert box.keeper.identity is not None


def test_a_renewal_for_a_command_is_the_same_one_again(box: Box, cloud: Cloud) -> None:
    box.start()
    identity = box.enrolled()
    before = identity.certificate()
    cloud.cut = 1
    with pytest.raises(UnreachableError):
        box.keeper.renew("01j9zq4v7m2c8x5n")
    assert identity.certificate() == before
    box.again()
    box.enrolled()
    box.keeper.renew("01j9zq4v7m2c8x5n")
    after = identity.certificate()
    assert after.public != before.public
    box.keeper.renew("01j9zq4v7m2c8x5n")
    assert identity.certificate() == after
    renewals = [body for path, body in cloud.asked if path == "/v1/renew"]
    assert len(renewals) == 2
    assert renewals[0] == renewals[1]


def test_what_was_denied_is_asked_with_another_key(box: Box, cloud: Cloud) -> None:
    box.start()
    box.enrolled()
    cloud.status = 409
    for _ in range(2):
        with pytest.raises(DeniedError):
            box.keeper.renew("01j9zq4v7m2c8x5n")
    first, second = (body["csr"] for path, body in cloud.asked if path == "/v1/renew")
    assert first != second


def test_files_that_make_no_sense_are_told(box: Box) -> None:
    box.start()
    box.enrolled()
    (box.folder / "device.json").write_text("{}")
    box.stands(EnrolmentState.BROKEN)
    assert "device.json" in box.keeper.standing.text
    assert box.keeper.identity is None


@pytest.mark.parametrize("moved", [(), ("tls.key",), ("tls.key", "renewed.json")])
def test_a_crash_while_a_renewed_certificate_is_put_in_place(box: Box, cloud: Cloud, moved: tuple[str, ...]) -> None:
    box.start()
    identity = box.enrolled()
    first_key = identity.tls_key.read_bytes()
    box.keeper.renew("01j9zq4v7m2c8x5n")
    box.stop()
    after, new = identity.certificate(), box.folder / "renewal"
    (box.folder / "tls.crt").rename(new / "tls.crt")
    (box.folder / "tls.crt").write_bytes(b"the old one")
    for name in {"tls.key", "renewed.json"}.difference(moved):
        (box.folder / name).rename(new / name)
    if "tls.key" not in moved:
        identity.tls_key.write_bytes(first_key)
    box.again()
    box.enrolled()
    assert identity.certificate() == after
    assert public_of(identity.tls_key.read_bytes()) == after.public
    box.keeper.renew("01j9zq4v7m2c8x5n")
    assert sum(path == "/v1/renew" for path, _ in cloud.asked) == 1
