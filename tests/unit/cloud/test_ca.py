"""Authorities and certificates: whom they are for, what openssl says of them, what a request's names come to."""

from __future__ import annotations

import datetime as dt
import subprocess
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from edgegpu_base.x509 import key_pem, new_key
from edgegpu_cloud.enrolment import ca
from edgegpu_cloud.enrolment.ca import Authority, CertificateRequest, RequestError
from edgegpu_cloud.enrolment.key_files import file_sha256, load_signing_key, pin, write_file
from edgegpu_cloud.errors import CloudError
from edgegpu_sync.ids import device_id

if TYPE_CHECKING:
    from pathlib import Path

    from edgegpu_cloud.store.records import CertificateRecord

NOW_S = 1_790_000_000.0
YEAR_S = 365 * 86_400
DEVICE = device_id("k3f9x2m7q1w8e5r4")


@pytest.fixture(scope="module")
def boxes() -> Authority:
    return ca.make_authority("edgegpu-boxes", now_s=NOW_S, days=7_300)


@pytest.fixture(scope="module")
def servers() -> Authority:
    return ca.make_authority("edgegpu-servers", now_s=NOW_S, days=7_300)


def asked(common: str = "box", *, unit: str = "", names: tuple[str, ...] = ()) -> str:
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if unit:
        subject.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=True)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.sign(new_key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def issue(boxes: Authority, request: CertificateRequest) -> CertificateRecord:
    return boxes.box(request, device=DEVICE, enrolment=3, now_s=NOW_S, days=365)


def openssl(folder: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False, cwd=folder, timeout=20)
    return done.returncode, done.stdout + done.stderr


def verify(folder: Path, purpose: str, *more: str, at_s: int = 1_790_000_000, **files: str) -> tuple[int, str]:
    for name, text in files.items():
        (folder / f"{name}.pem").write_text(text)
    words = ["verify", "-x509_strict", "-attime", str(at_s), "-purpose", purpose, "-CAfile", "ca.pem", *more]
    return openssl(folder, *words, "leaf.pem")


@pytest.mark.parametrize("common", ["controller-1", "+/#", "a/b/c", "aaaaaaaaaaaaaaaa", "\u200b", "*"])
def test_of_a_request_the_key_alone_counts(boxes: Authority, common: str) -> None:
    pem = asked(common, unit="e99", names=("controller-1", "broker"))
    request = ca.read_request(pem)
    issued = x509.load_pem_x509_certificate(issue(boxes, request).pem.encode())
    assert [(one.oid, one.value) for one in issued.subject] == [
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "e3"),
        (NameOID.COMMON_NAME, DEVICE),
    ]
    assert issued.public_key() == request.public
    with pytest.raises(x509.ExtensionNotFound):
        issued.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert issued.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False


def test_a_boxs_certificate_opens_what_it_is_for_and_no_more(boxes: Authority, tmp_path: Path) -> None:
    issued = issue(boxes, ca.read_request(asked()))
    code, said = verify(tmp_path, "sslclient", ca=boxes.cert_pem, leaf=issued.pem)
    assert code == 0, said
    assert verify(tmp_path, "sslserver", ca=boxes.cert_pem, leaf=issued.pem)[0] != 0
    other = ca.make_authority("edgegpu-boxes", now_s=NOW_S, days=10)
    assert verify(tmp_path, "sslclient", ca=other.cert_pem, leaf=issued.pem)[0] != 0


def test_a_box_cannot_sign_certificates(boxes: Authority, tmp_path: Path) -> None:
    key = new_key()
    csr = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    mine = issue(boxes, ca.read_request(csr.public_bytes(serialization.Encoding.PEM).decode()))
    evil = Authority(x509.load_pem_x509_certificate(mine.pem.encode()), key)
    forged = evil.client(new_key().public_key(), "controller-1", now_s=NOW_S, days=10)
    more = ("-untrusted", "between.pem")
    code, said = verify(tmp_path, "sslclient", *more, ca=boxes.cert_pem, leaf=forged, between=mine.pem)
    assert code != 0
    assert "invalid CA certificate" in said


def test_a_box_has_a_year_and_renews_at_two_thirds_of_it(boxes: Authority) -> None:
    issued = issue(boxes, ca.read_request(asked()))
    assert issued.not_after_s == NOW_S + YEAR_S
    assert not issued.due_for_renewal(NOW_S + YEAR_S * 0.66)
    assert issued.due_for_renewal(NOW_S + YEAR_S * 0.67)
    certificate = x509.load_pem_x509_certificate(issued.pem.encode())
    begin, end = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    assert begin + (end - begin) * 2 / 3 > NOW_S + 200 * 86_400, "who counts from the dates renews as late as ever"
    assert begin < NOW_S - 29 * 86_400, "a broker whose clock fell back by a month still takes it"


def test_servers_and_authorities_are_valid_since_1970(servers: Authority, tmp_path: Path) -> None:
    leaf = servers.server(new_key().public_key(), ["cloud.example", "10.0.0.7", "::1"], now_s=NOW_S, days=825)
    for name in ("cloud.example",):
        code, said = verify(
            tmp_path, "sslserver", "-verify_hostname", name, at_s=86_400, ca=servers.cert_pem, leaf=leaf
        )
        assert code == 0, said
    for address in ("10.0.0.7", "::1"):
        assert verify(tmp_path, "sslserver", "-verify_ip", address, ca=servers.cert_pem, leaf=leaf)[0] == 0
    assert verify(tmp_path, "sslserver", "-verify_ip", "10.0.0.8", ca=servers.cert_pem, leaf=leaf)[0] != 0
    assert verify(tmp_path, "sslclient", ca=servers.cert_pem, leaf=leaf)[0] != 0
    with pytest.raises(CloudError, match="has no host name"):
        servers.server(new_key().public_key(), [], now_s=NOW_S, days=825)


def test_made_with_a_clock_that_is_years_behind_they_are_valid_now() -> None:
    made = ca.make_authority("edgegpu-boxes", now_s=0.0, days=365)
    assert made.certificate.not_valid_after_utc > dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
    issued = made.box(ca.read_request(asked()), device=DEVICE, enrolment=1, now_s=0.0, days=900)
    assert issued.not_after_s == made.certificate.not_valid_after_utc.timestamp(), "no leaf outlives its authority"


def test_the_list_of_the_revoked(boxes: Authority, tmp_path: Path) -> None:
    one, other = (issue(boxes, ca.read_request(asked())) for _ in range(2))
    crl = boxes.revoke([one.serial], number=7, now_s=NOW_S)
    more = ("-crl_check", "-CRLfile", "crl.pem")
    code, said = verify(tmp_path, "sslclient", *more, ca=boxes.cert_pem, crl=crl, leaf=one.pem)
    assert code != 0
    assert "certificate revoked" in said
    assert verify(tmp_path, "sslclient", *more, ca=boxes.cert_pem, crl=crl, leaf=other.pem)[0] == 0
    late_s = int(NOW_S) + 300 * 86_400
    code, said = verify(tmp_path, "sslclient", *more, at_s=late_s, ca=boxes.cert_pem, crl=crl, leaf=other.pem)
    assert code == 0, f"an old list must not lock every box out: {said}"
    empty = boxes.revoke([], number=1, now_s=NOW_S)
    assert verify(tmp_path, "sslclient", *more, ca=boxes.cert_pem, crl=empty, leaf=one.pem)[0] == 0


def rsa_request() -> str:
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    csr = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return csr.public_bytes(serialization.Encoding.PEM).decode()


def forged_request() -> str:
    der = bytearray(x509.load_pem_x509_csr(asked().encode()).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    return x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    ("pem", "words"),
    [
        ("", "cannot read"),
        ("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "cannot read"),
        ("x" * 9_000, "more than 8192"),
        (rsa_request(), "neither EC"),
        (forged_request(), "signature is wrong"),
    ],
)
def test_requests_that_are_none(pem: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        ca.read_request(pem)


def test_an_authority_comes_back_from_its_files(boxes: Authority) -> None:
    back = ca.load_authority(boxes.cert_pem, key_pem(boxes.key))
    assert back.cert_pem == boxes.cert_pem
    with pytest.raises(CloudError, match="does not fit"):
        ca.load_authority(boxes.cert_pem, key_pem(new_key()))
    with pytest.raises(CloudError, match="cannot read"):
        ca.load_authority("nothing", key_pem(boxes.key))
    assert key_pem(boxes.key) not in repr(boxes)


def test_pin_and_checksum_are_those_that_the_tools_print(servers: Authority, tmp_path: Path) -> None:
    public_der = "openssl x509 -in leaf.pem -pubkey -noout | openssl pkey -pubin -outform der"
    line = f"{public_der} | openssl dgst -sha256 -binary | base64"
    write_file(tmp_path / "leaf.pem", servers.cert_pem, private=False)
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=20)
    public = servers.certificate.public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert pin(public) == done.stdout.strip()
    done = subprocess.run(
        ["sha256sum", "leaf.pem"], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=20
    )
    assert file_sha256(servers.cert_pem) == done.stdout.split()[0]


def test_key_files(tmp_path: Path) -> None:
    write_file(tmp_path / "tls.key", key_pem(new_key()))
    assert (tmp_path / "tls.key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(CloudError, match="no Ed25519 key"):
        load_signing_key(tmp_path / "tls.key")
    with pytest.raises(CloudError, match="cannot read"):
        load_signing_key(tmp_path / "none.key")
    with pytest.raises(CloudError, match="cannot write"):
        write_file(tmp_path / "no" / "such", "")
    assert [one.name for one in tmp_path.iterdir()] == ["tls.key"], "nothing half written is left"
