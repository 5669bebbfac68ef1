"""The agent's own enrolment and renewal against the controller's HTTPS: both ends of the contract are the real ones."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from kits.enrol import NOW_S
from kits.https import Served, serving

from edgegpu_agent.identity.enrolment import BoxEnrolment
from edgegpu_agent.identity.enrolment_client import CloudClient, PendingAnswer
from edgegpu_agent.identity.errors import DeniedError, IdentityError
from edgegpu_agent.identity.identity_files import BoxIdentity, CloudAddress
from edgegpu_agent.identity.renewal import LIFE, Renewal
from edgegpu_cloud.enrolment.key_files import file_sha256

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INSTANCE = "6c" * 32


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("cloud")) as one:
        yield one


def agent(folder: Path, served: Served, *, ca_sha256: str = "", instance: str = INSTANCE) -> BoxEnrolment:
    pem = served.here.layout.ca_cert("servers").read_text()
    address = CloudAddress(url=served.url, ca_sha256=ca_sha256 or file_sha256(pem))
    return BoxEnrolment(
        folder=folder,
        cloud=address,
        instance=instance,
        host="box-1",
        agent="0.2.0",
        client=lambda ca: CloudClient(url=served.url, ca_pem=ca, check_dates=lambda: True),
    )


def enrolled(folder: Path, served: Served, *, instance: str = INSTANCE) -> BoxIdentity:
    identity = agent(folder, served, instance=instance).attempt(served.here.token())
    assert isinstance(identity, BoxIdentity)
    return identity


def renewal(identity: BoxIdentity, served: Served, *, instance: str) -> Renewal:
    return Renewal(
        identity=identity,
        instance=instance,
        cloud=identity.device.cloud,
        client=lambda ca: CloudClient(url=served.url, ca_pem=ca, check_dates=lambda: True),
    )


def test_the_agent_enrols_with_either_hash_of_the_ca(served: Served, tmp_path: Path) -> None:
    identity = enrolled(tmp_path / "one", served, instance="01" * 32)
    assert served.here.fleet.box(identity.device.device).host == "box-1"
    pem = served.here.layout.ca_cert("servers").read_bytes()
    der = hashlib.sha256(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)).hexdigest()
    made = agent(tmp_path / "two", served, ca_sha256=der, instance="02" * 32).attempt(served.here.token())
    assert isinstance(made, BoxIdentity)
    with pytest.raises(IdentityError, match="cannot trust"):
        agent(tmp_path / "three", served, ca_sha256="0" * 64).attempt(served.here.token())


def test_the_agent_waits_for_a_yes_and_hears_a_no(served: Served, tmp_path: Path) -> None:
    waiting = agent(tmp_path, served, instance="03" * 32)
    token = served.here.token(approval=True)
    answer = waiting.attempt(token)
    assert isinstance(answer, PendingAnswer)
    assert answer.retry_s == 15
    with pytest.raises(DeniedError, match="not known"):
        waiting.attempt("wrong")


def test_the_agent_renews_and_a_copy_of_its_disk_does_not(served: Served, tmp_path: Path) -> None:
    identity = enrolled(tmp_path, served, instance="04" * 32)
    before = identity.certificate()
    assert before.renew_at_s > NOW_S + 200 * 86_400, "a fresh certificate is not renewed at once"
    renewal(identity, served, instance="04" * 32).renew(LIFE)
    after = identity.certificate()
    assert (after.name, after.public != before.public) == (before.name, True)
    with pytest.raises(DeniedError, match="another machine"):
        renewal(identity, served, instance="05" * 32).renew(LIFE)
