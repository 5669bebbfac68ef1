"""The end of an installation with a token: the agent enrols at the controller's HTTPS, and what is said of it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from kits.agentside import Tasks
from kits.agentyaml import written
from kits.https import Served

from edgegpu_agent.cli.setup.membership import Membership, membership
from edgegpu_agent.identity.status import EnrolmentState, IdentityStatus
from edgegpu_cloud.enrolment.key_files import file_sha256
from edgegpu_installer.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_S = 60.0


class Box:
    """A root as an installation leaves it, and an agent that runs over it."""

    def __init__(self, root: Path, served: Served) -> None:
        self.layout, self.served = Layout(root), served
        for folder in ("etc/edgegpu", "var/lib/edgegpu/tx"):
            (root / folder).mkdir(parents=True)
        (root / "proc").symlink_to("/proc")
        (root / "etc/machine-id").write_text("3d1219c7c4c5404aaa1f6d2a48adfda4\n")
        sha256 = file_sha256(served.here.layout.ca_cert("servers").read_text())
        self.layout.agent_yaml.write_text(written(served.url, sha256))
        self.agent: Tasks | None = None

    def installed(self, token: str, *, wait_s: float = WAIT_S) -> Membership:
        """Hand in a token as the installer's plan does, start the agent, and wait for the end."""
        self.stop()
        if token:
            self.layout.cloud_token.write_text(token)
        self.agent = Tasks(self.layout.root)
        stands = membership(self.layout, token, wait_s=wait_s, say=lambda _: None)
        assert stands is not None
        return stands

    def stop(self) -> None:
        if self.agent is not None:
            self.agent.stop()


@pytest.fixture
def box(short_tmp: Path, served: Served) -> Iterator[Box]:
    made = Box(short_tmp, served)
    yield made
    made.stop()


def test_a_good_token_ends_enrolled_under_the_name_that_people_gave(box: Box, served: Served) -> None:
    token = served.here.token(name="hall-1")
    stands = box.installed(token)
    assert (stands.failed, stands.name) == (False, "hall-1")
    assert stands.line == f"enrolled as hall-1 at {served.url}"
    assert stands.document()["stand"] == "enrolled"
    assert not box.layout.cloud_token.exists()
    assert box.installed(token).line == f"enrolled as hall-1 at {served.url}", "the same line again"
    assert box.installed("").line == f"enrolled as hall-1 at {served.url}", "and an installation without a token"


def test_a_token_that_is_too_old_fails_says_what_to_do_and_is_an_alarm(box: Box, served: Served) -> None:
    token = served.here.token(name="hall-1")
    served.here.clock.now_s += 3_601
    stands = box.installed(token)
    assert stands.failed
    said = stands.failure
    assert said.text == f"cannot enrol at {served.url}: refused (TOKEN_EXPIRED): this token is too old"
    assert "`edgegpu-cloud enrol`" in said.remedy
    assert f"sudo edgegpu agent enrol --url {served.url} --ca-sha256" in said.remedy
    assert stands.document()["code"] == "TOKEN_EXPIRED"
    assert served.here.alarms() == ["enrol.TOKEN_EXPIRED"]
    good = box.installed(served.here.token(name="hall-1"))
    assert good.line == f"enrolled as hall-1 at {served.url}", "the old refusal is not taken for the new token's"


def test_a_used_token_on_a_box_that_is_in_already_fails_and_the_box_stays_in(box: Box, served: Served) -> None:
    assert box.installed(served.here.token(name="hall-1")).name == "hall-1"
    used = served.here.token()
    served.here.clock.now_s += 3_601
    stands = box.installed(used)
    assert stands.failed
    assert "this token is too old" in stands.failure.text
    assert box.installed("").name == "hall-1"


def test_a_machine_that_is_a_box_already_hears_which_and_what_brings_it_back(box: Box, served: Served) -> None:
    assert box.installed(served.here.token(name="hall-1")).name == "hall-1"
    box.stop()
    shutil.rmtree(box.layout.root / "var/lib/edgegpu/identity")  # as an uninstall does
    stands = box.installed(served.here.token(uses=5))
    assert stands.failed
    refused = "this machine has the machine id of the box hall-1, which is enrolled already"
    assert stands.failure.text.startswith(f"cannot enrol at {served.url}: refused (REFUSED): {refused}")
    assert "`edgegpu-cloud enrol --for hall-1` gives a token for it alone" in stands.failure.remedy
    assert f"then here: sudo edgegpu agent enrol --url {served.url}" in stands.failure.remedy
    device = served.here.fleet.box("hall-1").device
    assert [(one.kind, one.device) for one in served.here.fleet.alarms()] == [("enrol.REFUSED", device)]
    assert box.installed(served.here.token(only_for=device)).line == f"enrolled as hall-1 at {served.url}"
    assert [(one.device, one.enrolment) for one in served.here.fleet.boxes()] == [(device, 2)]


def test_a_box_that_waits_for_a_person_has_not_failed(box: Box, served: Served) -> None:
    stands = box.installed(served.here.token(approval=True))
    assert not stands.failed
    assert "waiting for approval" in stands.line
    assert "edgegpu-cloud approve ID" in stands.line


def test_what_an_agent_of_before_said_is_not_taken_for_the_answer(box: Box, served: Served) -> None:
    standing = box.layout.run / "agent-identity.json"
    standing.parent.mkdir(parents=True)
    standing.write_text(json.dumps(IdentityStatus(stand=EnrolmentState.BROKEN, text="of before").document()))
    assert box.installed(served.here.token(name="hall-1")).line == f"enrolled as hall-1 at {served.url}"


def test_a_cloud_that_does_not_answer_fails_with_the_cause(box: Box, served: Served) -> None:
    served.server.stop()
    stands = box.installed("x" * 32, wait_s=0.5)
    assert stands.failed
    assert "sudo edgegpu agent enrol" in stands.failure.remedy


def test_a_cloud_and_no_token_names_the_command_that_enrols(box: Box, served: Served) -> None:
    stands = box.installed("")
    assert not stands.failed
    assert stands.line.startswith(f"not enrolled at {served.url} yet: sudo edgegpu agent enrol --url {served.url}")
