"""The list of revoked certificates: what the console has revoked comes onto it without the console's help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography import x509
from kits.enrol import Box, office

from edgegpu_cloud.enrolment.issuing import complete_crl, write_crl

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
        revoked = {one.serial for one in tx.enrolments.revoked()}
        assert tx.enrolments.revoked_count() == 1
    assert serials(here) == revoked
    write_crl(here.layout, here.store, clock=here.clock, also=["abc"])
    assert not complete_crl(here.layout, here.store, clock=here.clock)
    assert serials(here) == revoked | {"abc"}, "what a command has put beside it stays"
    here.store.close()
