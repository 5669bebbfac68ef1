"""Enrolment against a real HTTPS server: crashes, refusals, wrong clocks, copied disks."""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from kits.cert import NOW, Authority
from kits.identity import DEVICE, Cloud, CloudServer
from kits.identitybox import Box, a_box
from kits.install import proxy

from edgegpu_agent.identity.errors import IdentityError
from edgegpu_agent.identity.identity_files import load_identity
from edgegpu_agent.identity.status import EnrolmentState
from edgegpu_sync.wire import from_base64

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


def test_a_token_becomes_an_identity_and_is_gone(box: Box, cloud: Cloud) -> None:
    box.start()
    identity = box.enrolled()
    assert identity.id == DEVICE
    assert identity.device.enrolment == 1
    assert identity.device.broker.port == 8883
    assert not box.token.exists()
    assert not (box.folder / "new").exists()
    assert box.folder.stat().st_mode & 0o777 == 0o700
    for path in box.folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path
    assert b"good" not in b"".join(path.read_bytes() for path in box.folder.iterdir())
    public = Ed25519PublicKey.from_public_bytes(from_base64(cloud.signers[DEVICE]))
    public.verify(identity.sign_key().sign(b"x"), b"x")
    box.until((box.root / "run/edgegpu/identity.json").exists)
    assert '"stand": "enrolled"' in (box.root / "run/edgegpu/identity.json").read_text()
    asked = cloud.asked[0][1]
    assert asked["host"] == "box-1"
    assert asked["versions"] == {"agent": "0.2.0"}


def test_where_a_proxy_is_named_everything_goes_by_it(box: Box, cloud: Cloud) -> None:
    with proxy(user="ann:s/cret") as (address, asked):
        box.proxy = address.replace("//", "//ann:wrong@")
        box.start()
        box.until(lambda: "407" in box.keeper.standing.text)
        box.stop()
        box.proxy = address.replace("//", "//ann:s%2Fcret@")
        tried = len(asked)
        box.keeper = box.make()
        box.start()
        box.enrolled()
        assert asked[tried:] == [cloud.url.removeprefix("https://")] * 2, "the authority, then the token"
        box.keeper.renew("test")
        assert len(asked) == tried + 3


def test_an_answer_that_is_lost_does_not_burn_the_token(box: Box, cloud: Cloud) -> None:
    cloud.cut = 1
    box.start()
    box.stands(EnrolmentState.ENROLLING)
    box.again()
    box.enrolled()
    first, second = (body for _, body in cloud.asked)
    assert first == second
    assert cloud.enrolments == 1


def test_a_crash_between_answer_and_files_in_place_is_finished(box: Box, cloud: Cloud) -> None:
    box.start()
    box.enrolled()
    box.stop()
    new = box.folder / "new"
    new.mkdir()
    for name in ("tls.crt", "broker-ca.crt", "device.json"):  # the moves that a crash has left undone
        (box.folder / name).rename(new / name)
    box.again()
    assert box.enrolled().certificate().name == DEVICE
    assert not new.exists()
    assert cloud.enrolments == 1


def test_approval_is_waited_for_with_the_same_request(box: Box, cloud: Cloud) -> None:
    cloud.approval = True
    box.start()
    box.stands(EnrolmentState.WAITING)
    box.until(lambda: len(cloud.asked) > 1)
    cloud.approval = False
    box.enrolled()
    assert len({body["request"] for _, body in cloud.asked}) == 1


def test_a_refusal_is_told_with_its_remedy_and_not_asked_again(box: Box, cloud: Cloud) -> None:
    box.token.write_text("bad")
    box.start()
    box.stands(EnrolmentState.REFUSED)
    assert box.keeper.standing.code == "TOKEN_UNKNOWN"
    assert box.keeper.standing.remedy == "take the line anew"
    before = len(cloud.asked)
    box.token.write_text("good")
    box.enrolled()
    assert len(cloud.asked) == before + 1


def test_the_token_of_the_enrolment_found_again_asks_for_nothing(box: Box, cloud: Cloud) -> None:
    box.start()
    box.enrolled()
    box.token.write_text("good")
    box.until(lambda: not box.token.exists())
    assert len(cloud.asked) == 1


def test_another_token_enrols_anew_and_a_refused_one_leaves_the_identity(box: Box, cloud: Cloud) -> None:
    cloud.tokens["second"] = ""
    box.start()
    before = box.enrolled()
    box.token.write_text("bad")
    box.until(lambda: box.keeper.standing.warning)
    assert box.keeper.identity == before
    assert "TOKEN_UNKNOWN" not in box.keeper.standing.stand.value
    box.token.write_text("second")
    box.until(lambda: box.keeper.identity is not None and box.keeper.identity.device.enrolment == 2)
    box.until(lambda: not box.keeper.standing.warning)
    after = load_identity(box.folder)
    assert after is not None
    assert after.sign_key().private_bytes_raw() != b""


def test_what_another_agent_has_said_of_this_box_is_written_over(box: Box) -> None:
    told = box.root / "run/edgegpu/identity.json"
    box.start()
    box.until(lambda: told.exists() and "enrolled" in told.read_text())
    own = told.read_bytes()
    told.write_text('{"stand": "enrolled", "warning": "database is locked"}')
    box.until(lambda: told.read_bytes() == own)


def test_what_keeps_it_off_the_link_is_told_as_long_as_it_does(box: Box) -> None:
    told = box.root / "run/edgegpu/identity.json"
    box.keeper.trouble("not on the link: the disk is full")
    box.start()
    box.enrolled()
    box.until(lambda: told.exists() and "the disk is full" in told.read_text())
    assert box.keeper.standing.warning == "not on the link: the disk is full"
    box.keeper.trouble("")
    assert box.keeper.standing.warning == ""
    box.until(lambda: "the disk is full" not in told.read_text())


def test_no_token_says_what_to_do(box: Box) -> None:
    box.token.unlink()
    box.start()
    box.stands(EnrolmentState.NO_TOKEN)
    assert "edgegpu agent enrol" in box.keeper.standing.remedy


def test_another_ca_is_not_trusted(box: Box, cloud: Cloud) -> None:
    box.pin = Authority("other").sha256
    box.again()
    box.stands(EnrolmentState.ENROLLING)
    said = hashlib.sha256(cloud.servers.pem.encode()).hexdigest()  # as `edgegpu-cloud enrol` and sha256sum have it
    assert f"its ca.crt has sha256 {said} and not {box.pin}" in box.keeper.standing.text
    assert cloud.asked == []


def test_a_copied_disk_stays_off_and_enrols_with_a_token(box: Box, cloud: Cloud) -> None:
    cloud.tokens["second"] = ""
    box.start()
    box.enrolled()
    (box.root / "etc/machine-id").write_text("0" * 32)
    box.stands(EnrolmentState.CLONED)
    assert box.keeper.identity is None
    with pytest.raises(IdentityError, match="not enrolled"):
        box.keeper.renew("01j9zq4v7m2c8x5n")
    box.token.write_text("second")
    assert box.enrolled().device.enrolment == 2


def test_a_clock_of_1970_enrols_and_one_that_is_right_minds_dates(tmp_path: Path) -> None:
    cloud = Cloud()
    with CloudServer(cloud, start=NOW - dt.timedelta(days=3), life=dt.timedelta(days=1)):
        early, right = Box(tmp_path / "early", cloud, clock=lambda: 5.0), Box(tmp_path / "right", cloud)
        try:
            right.start()
            right.stands(EnrolmentState.ENROLLING)
            assert "expired" in right.keeper.standing.text
            assert "clock" in right.keeper.standing.remedy
            early.start()
            early.enrolled()
        finally:
            right.stop()
            early.stop()
