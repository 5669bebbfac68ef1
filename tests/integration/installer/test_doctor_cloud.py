"""The doctor's checks of agent, cloud, enrolment, link: real agent, HTTPS and broker, remedies that are run.

Remedies that are sentences (the host is not reached, no controller is heard) name nothing to run: they are compared.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import yaml
from kits.agent import until
from kits.agentside import Tasks
from kits.agentyaml import written
from kits.cloudprocess import running
from kits.doctor import Box
from kits.https import Served

from edgegpu_base.http_unix import LocalServer, Response
from edgegpu_cloud.enrolment.key_files import file_sha256
from edgegpu_installer.doctor.verdict import CheckLevel, CheckResult

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


AGENT_YAML = "/etc/edgegpu/agent.yaml"


class Member:
    """A healthy box that belongs to a cloud, with a real agent over it where a test starts one."""

    def __init__(self, box: Box, url: str, ca: Path) -> None:
        self.box, self.url = box, url
        box.now = dt.datetime.now(dt.UTC)
        self.sha256 = file_sha256(ca.read_text())
        self.settings = written(url, self.sha256)
        box.write(AGENT_YAML, self.settings)
        box.write("/etc/machine-id", "3d1219c7c4c5404aaa1f6d2a48adfda4\n")
        box.at("/var/lib/edgegpu/tx").mkdir(parents=True)
        self._agent: Tasks | None = None

    def start(self, token: str = "") -> None:
        self.stop()
        if token:
            self.box.write("/etc/edgegpu/cloud-token", token)
        self._agent = Tasks(self.box.root)

    def stop(self) -> None:
        if self._agent is not None:
            self._agent.stop()

    def becomes(self, name: str, level: CheckLevel, remedy: str = "") -> CheckResult:
        """Return the first verdict of a level with these words in its remedies: a starting agent has other troubles."""
        seen: list[CheckResult] = []

        def so() -> bool:
            seen[:] = [self.box.see(name)]
            words = any(remedy in trouble.remedy for trouble in seen[0].problems)
            return seen[0].level is level and (words or not remedy)

        until(so, lambda: seen)
        return seen[0]

    def paste(self, remedy: str, **programs: str) -> int:
        """Run a remedy word for word: as root, with programs of the box; returns its exit status."""
        self.box.program("sudo", 'exec "$@"')
        for name, script in programs.items():
            self.box.program(name, script)
        env = {**os.environ, "PATH": f"{self.box.at('programs')}:{os.environ['PATH']}"}
        return subprocess.run(["bash", "-c", remedy], env=env, check=False, timeout=60).returncode

    def paste_restarting(self, remedy: str, **programs: str) -> tuple[int, list[str]]:
        """Run a remedy; returns its exit status and the units that systemd was told to restart."""
        told = self.box.at("restarted")
        told.write_text("")
        shown = self.box.at("programs/systemctl").read_text()
        restart = f'if [ "$1" = restart ]; then echo "$2" >> "{told}"; exit; fi\n{shown}'
        status = self.paste(remedy, systemctl=restart, **programs)
        return status, told.read_text().split()


@pytest.fixture
def member(box: Box, served: Served) -> Iterator[Member]:
    made = Member(box, served.url, served.here.layout.ca_cert("servers"))
    yield made
    made.stop()


@contextmanager
def answering(box: Box, **status: object) -> Iterator[None]:
    """Let an agent of an enrolled box answer on its socket."""
    identity = {"stand": "enrolled", "name": "hall-1", "not_after_s": int(box.now.timestamp()) + 300 * 86_400}
    body = json.dumps({"connected": True, "controller_unseen_s": 3, "identity": identity, **status}).encode()
    server = LocalServer(box.at("/run/edgegpu/agent.sock"), lambda _: Response(200, body), owner="x", remedy="y")
    server.open()
    thread = threading.Thread(target=server.run)
    thread.start()
    yield
    server.stop()
    thread.join(30)


def test_an_agent_that_does_not_run_or_does_not_start_with_the_machine(member: Member) -> None:
    box = member.box
    box.unit("edgegpu-agent", ActiveState="failed", SubState="failed", Result="exit-code")
    box.expect(
        "agent", CheckLevel.BROKEN, "edgegpu-agent is failed (failed, exit-code)", "systemctl restart edgegpu-agent"
    )
    box.unit("edgegpu-agent", UnitFileState="disabled")
    box.expect("agent", CheckLevel.BROKEN, "does not start with the machine", "sudo systemctl enable edgegpu-agent")
    box.at("units/edgegpu-agent").unlink()
    box.expect("agent", CheckLevel.BROKEN, "there is no edgegpu-agent.service", "sudo edgegpu install")


def test_an_enrolled_box_whose_agent_is_silent(member: Member, served: Served) -> None:
    member.start(served.here.token(name="hall-1"))
    member.becomes("enrolment", CheckLevel.OK)
    member.stop()
    member.box.expect("agent", CheckLevel.BROKEN, "edgegpu-agent does not answer", "systemctl restart edgegpu-agent")
    assert member.box.see("link").level is CheckLevel.SKIPPED
    (trouble,) = member.box.see("agent").problems
    assert member.paste_restarting(trouble.remedy) == (0, ["edgegpu-agent"])
    member.start()
    member.becomes("agent", CheckLevel.OK)


def test_a_box_that_is_enrolled_is_well_but_for_a_broker_that_is_not_there(member: Member, served: Served) -> None:
    member.start(served.here.token(name="hall-1"))
    verdict = member.becomes("enrolment", CheckLevel.OK)
    assert re.fullmatch(rf"as hall-1 at {member.url}, for \d+ days yet", verdict.text)
    assert member.box.see("cloud").text == f"{member.url} answers, and is the one it should be"
    member.becomes("agent", CheckLevel.OK)
    member.box.expect("link", CheckLevel.WARNING, "not connected to 127.0.0.1:8883: ", "/dev/tcp/127.0.0.1/8883")


def test_a_box_without_a_token_is_enrolled_by_the_remedy(member: Member, served: Served) -> None:
    """The line of the doctor is run as it stands; the agent that systemd would start anew is started here."""
    member.start()
    (trouble,) = member.becomes("enrolment", CheckLevel.BROKEN, "agent enrol").problems
    assert trouble.remedy.startswith(f"sudo edgegpu agent enrol --url {member.url} --ca-sha256 {member.sha256}")
    handed_in = f'echo "{served.here.token(name="hall-1")}" > "{member.box.at("/etc/edgegpu/cloud-token")}"'
    assert not member.paste(trouble.remedy, edgegpu=f'[ "$1 $2 $3" = "agent enrol --url" ] || exit 2\n{handed_in}')
    member.start()
    member.becomes("enrolment", CheckLevel.OK)


def test_a_token_that_was_refused_beside_an_enrolment_is_removed_by_the_remedy(member: Member, served: Served) -> None:
    member.start(served.here.token(name="hall-1"))
    member.becomes("enrolment", CheckLevel.OK)
    old = served.here.token()
    served.here.clock.now_s += 3_601
    member.start(old)
    (trouble,) = member.becomes("enrolment", CheckLevel.WARNING).problems
    assert "this token is too old" in trouble.text
    token = member.box.at("/etc/edgegpu/cloud-token")
    assert trouble.remedy.startswith("sudo rm /etc/edgegpu/cloud-token  # ")
    assert not member.paste(trouble.remedy.replace("/etc/edgegpu/cloud-token", str(token)))
    member.becomes("enrolment", CheckLevel.OK)


def test_a_cloud_that_is_another_one_or_not_there(member: Member) -> None:
    box = member.box
    box.write(AGENT_YAML, written(member.url, "0" * 64))
    box.expect("cloud", CheckLevel.WARNING, "its ca.crt has sha256", "take the line from your cloud anew")
    box.write(AGENT_YAML, written("https://127.0.0.1:9", member.sha256))
    box.expect("cloud", CheckLevel.WARNING, "cannot reach https://127.0.0.1:9", "check that this box reaches that host")
    box.write(AGENT_YAML, "version: 1\ncloud: {url: 'http://x'}\n")
    box.expect("cloud", CheckLevel.BROKEN, "not an https address", "sudoedit /etc/edgegpu/agent.yaml")


def test_a_file_of_the_agent_that_cannot_be_used_is_put_right_by_the_remedy(member: Member) -> None:
    """The editor of the remedy writes the right file; the restart is asked for once the editor has ended well."""
    box = member.box
    box.write(AGENT_YAML, "version: 1\ncloud: {url: 'http://x'}\n")
    (trouble,) = member.becomes("cloud", CheckLevel.BROKEN).problems
    assert member.paste_restarting(trouble.remedy, sudoedit="exit 1") == (1, [])
    right = box.write("/right.yaml", member.settings)
    assert member.paste_restarting(trouble.remedy, sudoedit=f'cp "{right}" "{box.root}$1"') == (0, ["edgegpu-agent"])
    assert member.becomes("cloud", CheckLevel.OK).problems == ()


def test_a_checksum_that_is_not_the_clouds_is_put_right_where_the_remedy_says(member: Member) -> None:
    box = member.box
    file = box.write(AGENT_YAML, written(member.url, "0" * 64))
    (trouble,) = member.becomes("cloud", CheckLevel.WARNING).problems
    assert trouble.remedy.endswith(f"or put cloud.ca_sha256 in {AGENT_YAML} right")
    settings = yaml.safe_load(file.read_text())
    settings["cloud"]["ca_sha256"] = member.sha256
    file.write_text(yaml.safe_dump(settings))
    member.becomes("cloud", CheckLevel.OK)


def test_a_proxy_that_refuses_and_a_route_that_is_named_no_more(member: Member) -> None:
    box = member.box
    box.write(AGENT_YAML, member.settings.replace("cloud:\n", "cloud:\n  proxy: http://edge:hunter22@127.0.0.1:9\n"))
    why = "cannot reach mqtt:8883 by the proxy http://127.0.0.1:9: it does not take this user and password (407)"
    with answering(box, connected=False, why_down=why):
        remedy = "sudo edgegpu install --cloud-proxy http://[USER:PASSWORD@]HOST:PORT"
        box.expect("link", CheckLevel.WARNING, why, remedy)
        assert "hunter22" not in str(box.see("link"))
    trouble = "connected to mqtt:8883 by the proxy http://127.0.0.1:8, which the settings name no more"
    with answering(box, route="mqtt:8883 by the proxy http://127.0.0.1:8", route_trouble=trouble):
        box.expect("link", CheckLevel.WARNING, trouble, f"sudoedit {AGENT_YAML}  # cloud.proxy, cloud.broker")
    with answering(box, route="mqtt:443"):
        assert "connected to mqtt:443" in str(box.see("link"))


def test_a_link_that_is_down_comes_back_by_the_remedy(box: Box, tmp_path: Path) -> None:
    """Over a real broker. Its line finds out whether the broker can be reached, and restarts the agent only then."""
    with running(tmp_path) as cloud:
        member = Member(box, cloud.url, cloud.ca)
        try:
            member.start(cloud.ok("enrol", "--name", "hall-1", "--json").json["token"])
            member.becomes("link", CheckLevel.OK)
            cloud.stop_broker()
            (trouble,) = member.becomes("link", CheckLevel.WARNING).problems
            status, restarted = member.paste_restarting(trouble.remedy)
            assert (status != 0, restarted) == (True, []), "nothing answers there"
            member.stop()
            cloud.start_broker()
            assert member.paste_restarting(trouble.remedy) == (0, ["edgegpu-agent"])
            member.start()
            member.becomes("link", CheckLevel.OK)
        finally:
            member.stop()


def test_a_link_that_is_up_and_a_controller_that_is_silent(member: Member) -> None:
    with answering(member.box, refused={"BadSignature": 3}):
        verdict = member.box.see("link")
        assert (verdict.level, verdict.details) == (CheckLevel.OK, ("messages that were not believed: BadSignature 3",))
    with answering(member.box, controller_unseen_s=6_000, outbox_used=0.95):
        member.box.expect("link", CheckLevel.WARNING, "no controller was heard for 100 minutes", "edgegpu-cloud serve")
        member.box.expect("link", CheckLevel.WARNING, "too many results wait to be sent", "edgegpu-cloud serve")


@pytest.mark.parametrize(
    ("left_days", "level"), [(300, CheckLevel.OK), (9, CheckLevel.WARNING), (-1, CheckLevel.BROKEN)]
)
def test_a_certificate_that_ends(member: Member, left_days: int, level: CheckLevel) -> None:
    ends = int(member.box.now.timestamp()) + left_days * 86_400 + 60
    with answering(member.box, identity={"stand": "enrolled", "name": "hall-1", "not_after_s": ends}):
        assert member.box.see("enrolment").level is level


def test_a_person_has_to_say_yes(box: Box, tmp_path: Path) -> None:
    """Both commands that the remedy names are typed in the cloud; the box asks again at its next start."""
    with running(tmp_path) as cloud:
        member = Member(box, cloud.url, cloud.ca)
        try:
            member.start(cloud.ok("enrol", "--name", "hall-1", "--approve", "--json").json["token"])
            member.becomes("enrolment", CheckLevel.WARNING, "edgegpu-cloud approve ID")
            box.expect(
                *("enrolment", CheckLevel.WARNING, "a person has to approve this box"),
                "in the cloud: edgegpu-cloud pending, then edgegpu-cloud approve ID",
            )
            (waiting,) = cloud.ok("pending", "--json").json
            cloud.ok("approve", waiting["id"])
            member.start()
            member.becomes("enrolment", CheckLevel.OK)
        finally:
            member.stop()
