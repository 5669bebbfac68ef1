"""Who is taken in: every answer the same twice, a second use told, a machine that is known told from a new one."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from kits.enrol import NOW_S, Box, Office, desk_over, office, subject

from edgegpu_cloud.enrolment import tokens
from edgegpu_cloud.enrolment.bodies import ApprovalPending, EnrolmentGranted
from edgegpu_cloud.enrolment.tokens import RefusalCode, RequestRefusedError
from edgegpu_cloud.store.enrolments import AttemptFilter
from edgegpu_cloud.store.records import BoxState, RequestState
from edgegpu_cloud.store.store import CommitMoment, ControllerStore
from edgegpu_sync.ids import device_id
from edgegpu_sync.keys import KeyRing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY_S = 86_400.0


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Office]:
    made = office(tmp_path / "cloud")
    yield made
    made.store.close()


def refused(box: Box, here: Office, **more: object) -> RequestRefusedError:
    with pytest.raises(RequestRefusedError) as caught:
        box.enrol(here.desk, **more)
    return caught.value


def decide(here: Office, state: RequestState) -> None:
    with here.store.write() as tx:
        (waiting,) = tx.enrolments.requests(AttemptFilter(state=RequestState.WAITING))
        tx.enrolments.put_request(replace(waiting, state=state))


def test_a_token_becomes_an_identity(here: Office) -> None:
    box = Box(here.token(name="asr-hall"))
    granted = box.enrolled(here.desk)
    assert device_id(granted.device) == granted.device
    assert granted.enrolment == 1
    assert subject(granted.certificate) == {"CN": granted.device, "OU": "e1"}
    assert granted.broker_ca == here.layout.ca_cert("servers").read_text()
    assert KeyRing.pinned(granted.root).follow(granted.keys).version == 1, "what the box pins has signed the keys"
    assert granted.server_time == NOW_S
    view = here.fleet.box("asr-hall")
    assert (view.device, view.enrolment, view.host) == (granted.device, 1, "box-1")
    assert box.token not in repr(here.store.__dict__)
    assert here.alarms() == []


@pytest.mark.parametrize("name", ["controller-1", "+/#", "a/+/b", "aaaaaaaaaaaaaaaa", "$SYS"])
def test_a_request_with_evil_names_gets_a_minted_id(here: Office, name: str) -> None:
    granted = Box(here.token(), names=name, host=name).enrolled(here.desk)
    assert subject(granted.certificate) == {"CN": granted.device, "OU": "e1"}
    assert granted.device != name
    assert not set(here.fleet.box(granted.device).name) & set("/+#$")


def test_the_same_request_gets_the_same_answer(here: Office) -> None:
    box = Box(here.token())
    first = box.enrolled(here.desk)
    here.clock.now_s += 5 * DAY_S
    again = box.enrolled(here.desk)
    assert again == first.model_copy(update={"server_time": again.server_time})
    assert len(here.fleet.boxes()) == 1
    assert here.alarms() == []


@pytest.mark.parametrize("what", ["request", "csr", "sign_key", "instance"])
def test_a_second_use_is_refused_and_raises_an_alarm(here: Office, what: str) -> None:
    box = Box(here.token())
    box.enrolled(here.desk)
    thief = Box(box.token)
    other = {what: thief.ask()[what]}
    error = refused(box, here, **other)
    assert error.code == RefusalCode.TOKEN_USED
    assert "edgegpu-cloud enrol" in error.remedy
    assert here.alarms() == ["enrol.TOKEN_USED"]
    assert len(here.fleet.boxes()) == 1
    refused(box, here, **other)
    assert here.fleet.alarms()[0].times == 2


def test_a_token_that_nobody_knows_and_one_that_is_old(here: Office) -> None:
    assert refused(Box("nothing"), here).code == RefusalCode.TOKEN_UNKNOWN
    box = Box(here.token())
    here.clock.now_s += 3_601
    assert refused(box, here).code == RefusalCode.TOKEN_EXPIRED
    assert here.fleet.boxes() == []
    assert here.alarms() == ["enrol.TOKEN_EXPIRED"], "whoever pasted it waits for a box that does not come"
    assert "box-1 at 10.1.2.3" in here.fleet.alarms()[0].text


def test_a_request_that_cannot_be_read_spends_no_token(here: Office) -> None:
    box = Box(here.token())
    assert refused(box, here, csr="nothing").code == RefusalCode.BAD_REQUEST
    box.enrolled(here.desk)


def test_a_bulk_token_takes_as_many_as_it_says(here: Office) -> None:
    token = here.token(uses=3, name="hall")
    for _ in range(3):
        Box(token).enrolled(here.desk)
    assert refused(Box(token), here).code == RefusalCode.TOKEN_EXHAUSTED
    assert here.alarms() == ["enrol.TOKEN_EXHAUSTED"]
    assert [box.name for box in here.fleet.boxes()] == ["hall-1", "hall-2", "hall-3"]


def test_with_approval_a_box_waits_for_a_person(here: Office) -> None:
    box = Box(here.token(approval=True))
    assert isinstance(box.enrol(here.desk), ApprovalPending)
    assert isinstance(box.enrol(here.desk), ApprovalPending), "asked again it waits on"
    assert here.fleet.boxes() == []
    here.clock.now_s += 3 * DAY_S
    decide(here, RequestState.APPROVED)
    granted = box.enrolled(here.desk)
    assert box.enrolled(here.desk).certificate == granted.certificate
    assert refused(Box(box.token), here).code == RefusalCode.TOKEN_USED


def test_a_box_that_a_person_refuses(here: Office) -> None:
    box = Box(here.token(approval=True))
    box.enrol(here.desk)
    decide(here, RequestState.REFUSED)
    assert refused(box, here).code == RefusalCode.REFUSED
    assert here.fleet.boxes() == []


def test_boxes_of_one_host_name_are_told_apart(here: Office) -> None:
    token = here.token(uses=2)
    first, second = (Box(token).enrolled(here.desk) for _ in range(2))
    assert here.fleet.box("box-1").device == first.device
    assert here.fleet.box(second.device).name == f"box-1-{second.device[:6]}"


# enrolled anew


def online(here: Office, device: str, *, seen_at_s: float) -> None:
    with here.store.write() as tx:
        box = tx.boxes.get([device_id(device)])[device_id(device)]
        tx.boxes.put([replace(box, online=True, seen_at_s=seen_at_s)])


def test_a_machine_that_is_imaged_anew_is_the_same_box_with_a_higher_number(here: Office) -> None:
    box = Box(here.token())
    first = box.enrolled(here.desk)
    assert here.crls == []
    anew = Box(here.token(only_for=first.device), instance=box.instance)
    second = anew.enrolled(here.desk)
    assert (second.device, second.enrolment) == (first.device, 2)
    assert subject(second.certificate)["OU"] == "e2"
    assert here.fleet.box(first.device).name == "box-1", "it keeps its name"
    assert here.alarms() == [], "a token for that box is a person's word"
    assert anew.enrolled(here.desk).certificate == second.certificate, "its answer was lost, and it asks again"
    crl = x509.load_pem_x509_crl(here.layout.crl.read_bytes())
    serials = [x509.load_pem_x509_certificate(one.certificate.encode()).serial_number for one in (first, second)]
    assert [crl.get_revoked_certificate_by_serial_number(one) is not None for one in serials] == [True, False]
    assert refused(box, here).code == RefusalCode.REFUSED, "its first answer is no longer valid"
    with pytest.raises(RequestRefusedError, match="signature is not"):
        box.renew(here.desk, first)


@pytest.mark.parametrize("more", [{}, {"uses": 5}, {"approval": True}], ids=["own", "bulk", "approval"])
def test_a_token_that_is_not_for_a_box_makes_no_machine_that_box(here: Office, more: dict[str, Any]) -> None:
    victim = Box(here.token(name="hall-1"))
    granted = victim.enrolled(here.desk)
    theirs = Box(here.token(**more), host="theirs", instance=victim.instance)
    error = refused(theirs, here)
    assert error.code == RefusalCode.REFUSED
    assert "has the machine id of the box hall-1, which is enrolled already" in error.text
    assert "`edgegpu-cloud enrol --for hall-1`" in error.remedy
    (alarm,) = here.fleet.alarms()
    assert (alarm.kind, alarm.device) == ("enrol.REFUSED", granted.device), "it stands at the box that was meant"
    token = tokens.digest(theirs.token)[:12]
    assert alarm.text.startswith(f"theirs at 10.1.2.3, with the token {token} of operator anna: this machine has")
    (box,) = here.fleet.boxes()
    assert (box.name, box.enrolment) == ("hall-1", 1)
    assert victim.renew(here.desk, granted).certificate == granted.certificate, "the box notices nothing"
    assert here.crls == []
    with here.store.read() as tx:
        assert tx.enrolments.requests(AttemptFilter(state=RequestState.WAITING)) == [], "nobody is asked to approve it"
        token_left = tx.enrolments.token(tokens.digest(theirs.token))
    assert token_left is not None
    assert token_left.used == 0
    own = secrets.token_hex(32)
    assert isinstance(
        theirs.enrol(here.desk, instance=own), ApprovalPending if "approval" in more else EnrolmentGranted
    )
    assert {one.device for one in here.fleet.boxes() if one.host == "theirs"}.isdisjoint({granted.device})


def test_what_was_approved_is_refused_when_the_machine_is_a_box_by_then(here: Office) -> None:
    early, instance = Box(here.token(approval=True)), secrets.token_hex(32)
    assert isinstance(early.enrol(here.desk, instance=instance), ApprovalPending)
    device = Box(here.token(), instance=instance).enrolled(here.desk).device
    decide(here, RequestState.APPROVED)
    assert refused(early, here, instance=instance).code == RefusalCode.REFUSED
    assert [(one.device, one.enrolment) for one in here.fleet.boxes()] == [(device, 1)]


def test_a_copy_of_a_box_that_is_there_does_not_take_its_place(here: Office) -> None:
    box = Box(here.token())
    first = box.enrolled(here.desk)
    online(here, first.device, seen_at_s=NOW_S)
    copy = Box(here.token(), instance=box.instance)
    error = refused(copy, here)
    assert error.code == RefusalCode.REFUSED
    assert "which is online" in error.text
    assert "systemd-machine-id-setup" in error.remedy
    assert here.alarms() == ["enrol.REFUSED"]
    here.clock.now_s += 1_000
    assert refused(copy, here).code == RefusalCode.REFUSED, "nor when the box is gone for long"
    here.fleet.forget(first.device)
    assert copy.enrolled(here.desk).device != first.device, "a box that is forgotten is none"


def test_a_token_for_one_box_takes_its_place_whatever_machine_it_is(here: Office) -> None:
    first = Box(here.token()).enrolled(here.desk)
    online(here, first.device, seen_at_s=NOW_S)
    swapped = Box(here.token(only_for=first.device))
    second = swapped.enrolled(here.desk)
    assert (second.device, second.enrolment) == (first.device, 2)
    assert here.fleet.box(first.device).labels == {}
    gone = Box(here.token(only_for="aaaaaaaaaaaaaaaa"))
    assert refused(gone, here).code == RefusalCode.REFUSED


def test_a_machine_that_is_a_box_does_not_become_another_by_a_token_for_that_one(here: Office) -> None:
    other = Box(here.token(name="hall-2"))
    stays = other.enrolled(here.desk)
    first = Box(here.token(name="hall-1")).enrolled(here.desk)
    online(here, first.device, seen_at_s=NOW_S)
    wrong = Box(here.token(only_for=first.device), instance=other.instance)
    error = refused(wrong, here)
    assert (error.code, error.device) == (RefusalCode.REFUSED, first.device)
    assert error.text == "this machine has the machine id of the box hall-2, and this token is for the box hall-1"
    for words in ("edgegpu-cloud enrol --for hall-2", "edgegpu-cloud boxes forget hall-2", "systemd-machine-id-setup"):
        assert words in error.remedy
    refused(wrong, here)
    (alarm,) = here.fleet.alarms()
    assert (alarm.kind, alarm.device, alarm.times) == ("enrol.REFUSED", first.device, 2)
    assert [(one.name, one.enrolment) for one in here.fleet.boxes()] == [("hall-1", 1), ("hall-2", 1)]
    with here.store.read() as tx:
        assert tx.boxes.with_instance(other.instance) == [stays.device]
    here.fleet.forget(stays.device)
    again = wrong.enrolled(here.desk)
    assert (again.device, again.enrolment) == (first.device, 2), "the token was not used up"


def test_a_revoked_machine_comes_back_with_a_token_of_its_own_alone(here: Office) -> None:
    box = Box(here.token())
    first = box.enrolled(here.desk)
    here.fleet.revoke(first.device)
    bulk = here.token(uses=5)
    again = Box(bulk, instance=box.instance)
    assert refused(again, here).code == RefusalCode.REFUSED
    with pytest.raises(RequestRefusedError, match="revoked"):
        box.renew(here.desk, first)
    assert refused(box, here).code == RefusalCode.REFUSED
    back = Box(here.token(only_for=first.device), instance=box.instance).enrolled(here.desk)
    assert (back.device, back.enrolment) == (first.device, 2)
    assert here.fleet.box(first.device).state is BoxState.ENROLLED


# what dies in between, and what comes at once


class DeathError(Exception):
    """The process was killed."""


@pytest.mark.parametrize("when", list(CommitMoment))
def test_killed_around_the_commit_the_box_is_taken_in_once(tmp_path: Path, when: CommitMoment) -> None:
    here = office(tmp_path / "cloud")
    box = Box(here.token())

    def die(moment: CommitMoment) -> None:
        if moment is when:
            raise DeathError

    store = ControllerStore.open_file(here.layout.database, watcher=die)
    with pytest.raises(DeathError):
        box.enrol(desk_over(here, store))
    store.close()
    granted = box.enrolled(here.desk)
    assert [(one.device, one.enrolment) for one in here.fleet.boxes()] == [(granted.device, 1)]
    assert refused(Box(box.token), here).code == RefusalCode.TOKEN_USED
    here.store.close()


def test_of_many_at_once_with_one_token_one_is_taken_in(here: Office) -> None:
    token, together = here.token(), threading.Barrier(8)

    def attempt(_: int) -> str:
        box = Box(token)
        together.wait(30)
        try:
            return box.enrolled(here.desk).device
        except RequestRefusedError as error:
            return error.code

    with ThreadPoolExecutor(8) as pool:
        ends = sorted(pool.map(attempt, range(8)))
    assert ends.count("TOKEN_USED") == 7
    assert len(here.fleet.boxes()) == 1


def test_one_box_that_asks_from_all_sides_is_one_box(here: Office) -> None:
    box, together = Box(here.token()), threading.Barrier(6)

    def attempt(_: int) -> str:
        together.wait(30)
        return box.enrolled(here.desk).certificate

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(attempt, range(6)))) == 1
    assert here.alarms() == []
