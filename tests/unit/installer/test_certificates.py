"""Certificates are what the extender and the scheduler take, by a wrong clock too, and are kept while they do."""

from __future__ import annotations

import datetime as dt
import os
import ssl
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from edgegpu_installer.plan.certificates import Certificates, KeyPair, flaw, make, usable
from edgegpu_installer.scheduler.file import SERVER_NAME

NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
YEAR = dt.timedelta(days=365)


@pytest.fixture(scope="module")
def made() -> Certificates:
    return make(NOW)


def load(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def test_names_and_purposes_are_told_apart(made: Certificates) -> None:
    names = load(made.server.cert).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [SERVER_NAME]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    for pair, purpose in (
        (made.server, ExtendedKeyUsageOID.SERVER_AUTH),
        (made.client, ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        usage = load(pair.cert).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(usage) == [purpose]


def test_no_two_are_alike_and_no_key_is_shown(made: Certificates) -> None:
    other = make(NOW)
    assert other.ca != made.ca
    assert made.server.key not in repr(made)
    assert made.client.key not in repr(made)


@pytest.mark.parametrize(
    "clock",
    [dt.datetime(1970, 1, 1, 0, 1, tzinfo=dt.UTC), dt.datetime(2016, 5, 5, tzinfo=dt.UTC), NOW, NOW + 15 * YEAR],
    ids=["no battery", "behind", "right", "ahead"],
)
def test_made_by_a_wrong_clock_they_hold_when_it_is_put_right(clock: dt.datetime) -> None:
    certificates = make(clock)
    for when in (clock, NOW, dt.datetime(1970, 1, 2, tzinfo=dt.UTC), NOW + 18 * YEAR):
        assert flaw(certificates, when) == ""
    assert usable(certificates, NOW)


def test_they_are_not_kept_in_their_last_year(made: Certificates) -> None:
    ends = load(made.server.cert).not_valid_after_utc
    assert usable(made, ends - 1.1 * YEAR)
    assert "less than a year" in flaw(made, ends - 0.9 * YEAR)


def test_what_does_not_belong_together_is_not_kept(made: Certificates) -> None:
    other = make(NOW)
    broken = {
        "not of one authority": replace(made, ca=other.ca),
        "a key does not fit": replace(made, server=KeyPair(made.server.cert, other.server.key)),
        "another purpose": replace(made, server=made.client, client=made.server),
        "cannot be read": replace(made, ca="-----BEGIN CERTIFICATE-----\nx"),
    }
    for words, certificates in broken.items():
        assert words in flaw(certificates, NOW)
        assert not usable(certificates, NOW)
    assert "not of one authority" in flaw(replace(made, client=other.client), NOW)
    assert flaw(Certificates("", KeyPair("", ""), KeyPair("", "")), NOW)


def test_both_sides_take_each_other(made: Certificates) -> None:
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context, pair in ((server, made.server), (client, made.client)):
        load_pair(context, pair)
        context.load_verify_locations(cadata=made.ca)
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=SERVER_NAME)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    sides = [ours, theirs]
    for side in sides * 5:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert theirs.getpeercert(binary_form=True)
    assert ours.version() == "TLSv1.3"


def load_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    memory = os.memfd_create("pair")
    try:
        os.write(memory, f"{pair.cert}{pair.key}".encode())
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
