"""What becomes of a box, with the agent's process: an expired certificate, a copied disk, a disk that is made anew."""

from __future__ import annotations

import datetime as dt
import json
import secrets
import shutil
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from kits.agent import Agent, Cloud, until

from edgegpu_sync.messages.spec import Isolation, IsolationMode, Spec
from edgegpu_sync.states import CommandState, ResultCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NONE = Spec(isolation=Isolation(rev=0, mode=IsolationMode.NONE))


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    made = Cloud(tmp_path_factory.mktemp("fates") / "cloud")
    made.start("mosquitto", "controller")
    yield made
    made.close()


@pytest.fixture
def agent(short_tmp: Path) -> Iterator[Agent]:
    with Agent(short_tmp, machine=secrets.token_hex(16)) as made:
        yield made


def gone(cloud: Cloud, agent: Agent, name: str) -> None:
    agent.kill()
    until(lambda: (box := cloud.box(name)) is not None and not box.online, lambda: cloud.box(name))


def identity(agent: Agent) -> Path:
    return agent.root / "var/lib/edgegpu/identity"


def expire(cloud: Cloud, path: Path) -> bytes:
    """Put a certificate of the same key in its place that has ended a month ago."""
    mine = x509.load_pem_x509_certificate(path.read_bytes())
    key = load_pem_private_key((cloud.folder / "ca/boxes.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    ended = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(days=30)
    made = (
        x509.CertificateBuilder()
        .subject_name(mine.subject)
        .issuer_name(mine.issuer)
        .public_key(mine.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ended - dt.timedelta(days=365))
        .not_valid_after(ended)
    )
    for extension in mine.extensions:
        made = made.add_extension(extension.value, critical=extension.critical)
    pem = made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    path.write_bytes(pem)
    return pem


def test_a_box_that_was_off_until_its_certificate_had_ended_renews_it_and_is_back(cloud: Cloud, agent: Agent) -> None:
    agent.on_link(cloud, "expired")
    gone(cloud, agent, "expired")
    certificate = identity(agent) / "tls.crt"
    old = expire(cloud, certificate)
    id_ = cloud.fleet.command("expired", "identity.rotate", {})
    agent.start()
    cloud.online("expired")
    assert certificate.read_bytes() != old
    *_, last = cloud.fleet.follow(id_, timeout_s=60)
    assert last.state is CommandState.SUCCEEDED
    assert not cloud.fleet.box("expired").restored


def test_a_copy_of_its_disk_stays_off_the_link_and_says_so(cloud: Cloud, agent: Agent, tmp_path: Path) -> None:
    agent.on_link(cloud, "origin")
    gone(cloud, agent, "origin")
    (tmp_path / "c").mkdir()
    with Agent(tmp_path / "c", machine=secrets.token_hex(16)) as copy:
        shutil.copytree(agent.root / "var", copy.root / "var", dirs_exist_ok=True)
        shutil.copy(agent.root / "etc/edgegpu/agent.yaml", copy.root / "etc/edgegpu/agent.yaml")
        copy.start()
        standing = copy.root / "run/edgegpu/agent-identity.json"
        until(lambda: standing.exists() and json.loads(standing.read_text())["stand"] == "cloned", lambda: copy.log)
        assert "on the link" not in copy.log
        agent.start()
        cloud.online("origin")
        assert cloud.end("origin", "identity.rotate").state is CommandState.SUCCEEDED
    assert cloud.fleet.box("origin").enrolment == 1


def test_a_box_that_is_imaged_anew_is_itself_again_and_becomes_what_it_shall_be(cloud: Cloud, agent: Agent) -> None:
    agent.on_link(cloud, "imaged")
    device = cloud.fleet.box("imaged").device
    rev = cloud.fleet.set_spec("imaged", lambda _: NONE)
    until(lambda: cloud.fleet.box("imaged").applied_rev == rev, lambda: cloud.box("imaged"))
    gone(cloud, agent, "imaged")
    open_ = cloud.fleet.command("imaged", "plugin.restart", {})
    shutil.rmtree(agent.root / "var/lib/edgegpu")
    (agent.root / "var/lib/edgegpu/tx").mkdir(parents=True)
    agent.belongs(cloud.line("another"))  # a token for any box: this machine is one already
    agent.start()
    until(lambda: "`edgegpu-cloud enrol --for imaged`" in agent.log, lambda: agent.log)
    assert cloud.fleet.box(device).enrolment == 1
    (agent.root / "etc/edgegpu/cloud-token").write_text(cloud.line("imaged", "--for")["token"])
    until(lambda: cloud.fleet.box(device).enrolment == 2 and cloud.fleet.box(device).online, lambda: agent.log)
    ended = cloud.fleet.one_command(open_)
    assert (ended.state, ended.code) == (CommandState.UNKNOWN, ResultCode.REIMAGED)
    until(lambda: cloud.fleet.box(device).applied_rev == cloud.fleet.box(device).rev, lambda: cloud.box("imaged"))
    assert "isolation" in cloud.fleet.box(device).items
    assert cloud.end(device, "identity.rotate").state is CommandState.SUCCEEDED
    assert not cloud.fleet.box(device).restored


def test_a_box_that_edgegpu_is_taken_off_says_so_as_it_goes(cloud: Cloud, agent: Agent) -> None:
    for name, op, left in (("leaves", "uninstall", "uninstall"), ("comes-back", "upgrade", "stop")):
        with Agent(agent.root / name, machine=secrets.token_hex(16)) as one:
            one.on_link(cloud, name)
            (one.root / "var/lib/edgegpu/tx/state").write_text(f"id=t\nop={op}\nstate=COMMITTED\n")
            assert one.end() == 0
            until(lambda: not cloud.fleet.box(name).online, lambda: cloud.box(name))  # noqa: B023  (called at once)
            assert cloud.fleet.box(name).left == left
