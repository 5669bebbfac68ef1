"""The list of revoked certificates: what the console has revoked comes onto it without the console's help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography import x509
from kits.enrol import Box, office

from edgegpu_cloud.enrolment.issuing import complete_crl, write_crl
from edgegpu_cloud.layout import RetentionConfig

if TYPE_CHECKING:
    from pathlib import Path

    from kits.enrol import Office


def serials(here: Office) -> set[str]:
    return {f"{one.serial_number:x}" for one in x509.load_pem_x509_crl(here.layout.crl.read_bytes())}


def test_a_list_that_lacks_a_certificate_is_written_and_another_is_left(tmp_path: Path) -> None:
    here = office(tmp_path / "cloud")
    device = Box(here.token()).enrolled(here.desk).device
    assert not complete_crl(here.layout, here.store, clock=here.clock)
    here.fleet.revoke(device)
    assert complete_crl(here.layout, here.store, clock=here.clock)
    with here.store.read() as tx:
        (one,) = tx.enrolments.revoked()
    revoked = {one.serial}
    assert serials(here) == revoked
    write_crl(here.layout, here.store, clock=here.clock, also=["abc"])
    assert not complete_crl(here.layout, here.store, clock=here.clock)
    assert serials(here) == revoked | {"abc"}, "what a command has put beside it stays"
    here.store.close()


def test_a_revocation_is_noticed_where_another_one_is_purged_meanwhile(tmp_path: Path) -> None:
    here = office(tmp_path / "cloud")
    first, second = (Box(here.token()).enrolled(here.desk).device for _ in range(2))

    def mark() -> str:
        with here.store.read() as tx:
            return tx.enrolments.revoked_mark()

    here.fleet.forget(first)
    before = mark()
    assert mark() == before
    with here.store.write() as tx:
        (ends_s,) = {one.not_after_s for one in tx.enrolments.certificates(first)}
        assert not tx.tidy(RetentionConfig(enrolments_days=1), now_s=ends_s + 2 * 86_400.0)
        assert tx.enrolments.certificates(first) == []
        tx.enrolments.revoke_certificates(second, now_s=ends_s)
        assert len(tx.enrolments.revoked()) == 1
    assert mark() != before
    here.store.close()
