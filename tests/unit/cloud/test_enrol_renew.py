"""Renewal: the same request gets the same certificate; a signature is asked for, and no valid certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from kits.enrol import Box, Clock, Office, office, subject

from edgegpu_cloud.enrolment.bodies import RenewAsk
from edgegpu_cloud.enrolment.tokens import RefusalCode, RequestRefusedError
from edgegpu_sync.wire import to_base64

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY_S = 86_400.0


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Office]:
    made = office(tmp_path / "cloud")
    yield made
    made.store.close()


def test_a_renewal_is_the_same_twice_and_another_for_another_request(here: Office) -> None:
    box = Box(here.token())
    granted = box.enrolled(here.desk)
    assert box.renew(here.desk, granted).certificate == granted.certificate, "the request of the enrolment"
    new = box.renew(here.desk, granted, csr=(csr := box.new_csr()))
    assert new.certificate != granted.certificate
    here.clock.now_s += 30 * DAY_S
    assert box.renew(here.desk, granted, csr=csr, nonce="n2").certificate == new.certificate
    assert subject(new.certificate) == {"CN": granted.device, "OU": "e1"}


def test_a_worn_or_expired_certificate_is_renewed_by_the_signature_alone(here: Office) -> None:
    box = Box(here.token())
    granted = box.enrolled(here.desk)
    here.clock.now_s += 400 * DAY_S
    new = box.renew(here.desk, granted)
    certificate = x509.load_pem_x509_certificate(new.certificate.encode())
    assert certificate.not_valid_after_utc.timestamp() == here.clock.now_s + 365 * DAY_S
    assert box.renew(here.desk, granted).certificate == new.certificate


def test_a_renewal_with_a_wrong_signature(here: Office) -> None:
    box = Box(here.token())
    granted = box.enrolled(here.desk)
    body, signature = box.renewal(granted)
    thief = Box().renewal(granted)[1]
    for wrong in (thief, "", "x" * 86, to_base64(box.sign.sign(body))):
        with pytest.raises(RequestRefusedError, match="signature is not"):
            here.desk.renew(RenewAsk.model_validate_json(body), signed=body, signature=wrong, address="-")
    changed = body.replace(b'"nonce": "n1"', b'"nonce": "n2"')
    with pytest.raises(RequestRefusedError, match="signature is not"):
        here.desk.renew(RenewAsk.model_validate_json(changed), signed=changed, signature=signature, address="-")
    with pytest.raises(RequestRefusedError, match="not known"):
        box.renew(here.desk, granted, device="bbbbbbbbbbbbbbbb")
    with pytest.raises(RequestRefusedError, match="enrolment 2"):
        box.renew(here.desk, granted, enrolment=2)
    assert here.alarms() == []


def test_a_renewal_from_a_copy_of_the_disk_raises_an_alarm(here: Office) -> None:
    box = Box(here.token())
    granted = box.enrolled(here.desk)
    with pytest.raises(RequestRefusedError, match="another machine"):
        box.renew(here.desk, granted, instance="0" * 64)
    assert here.alarms() == ["renew.REFUSED"]


def test_a_box_gets_no_more_than_a_handful_of_certificates_a_day(here: Office) -> None:
    box = Box(here.token())
    granted = box.enrolled(here.desk)
    for _ in range(19):
        box.renew(here.desk, granted, csr=box.new_csr())
    with pytest.raises(RequestRefusedError) as caught:
        box.renew(here.desk, granted, csr=box.new_csr())
    assert caught.value.code == RefusalCode.TOO_MANY
    here.clock.now_s += 2 * DAY_S
    box.renew(here.desk, granted, csr=box.new_csr())


def test_certificates_that_people_ask_for_are_not_counted(here: Office) -> None:
    box = Box(here.token())
    granted = box.enrolled(here.desk)
    for _ in range(3):
        here.fleet.command(granted.device, "identity.rotate", {}, wait_s=600)
    here.fleet.command(granted.device, "doctor.run", {}, wait_s=600)
    for _ in range(19 + 3):
        box.renew(here.desk, granted, csr=box.new_csr())
    with pytest.raises(RequestRefusedError, match="23 certificates"):
        box.renew(here.desk, granted, csr=box.new_csr())


def test_server_time_only_rises(tmp_path: Path) -> None:
    clock = Clock()
    here = office(tmp_path / "cloud", clock=clock)
    box = Box(here.token())
    granted = box.enrolled(here.desk)
    clock.now_s -= 10 * DAY_S
    again = box.enrolled(here.desk)
    assert again.server_time == granted.server_time
    here.store.close()
