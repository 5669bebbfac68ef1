"""Certificates of boxes, issued by the store's records, and the file with the list of the revoked ones."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from cryptography import x509

from edgegpu_cloud.enrolment.bootstrap import authority_of
from edgegpu_cloud.enrolment.ca import Authority, CertificateRequest
from edgegpu_cloud.enrolment.key_files import read_file, write_file
from edgegpu_cloud.enrolment.tokens import RefusalCode, RequestRefusedError
from edgegpu_cloud.layout import CloudLayout
from edgegpu_cloud.ownership import locked
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.store import ControllerStore, Transaction
from edgegpu_sync.ids import DeviceId, op_name

_DAY_S = 86_400.0
_CERTIFICATES_A_DAY = 20
"""How many a box may ask for by itself; each `identity.rotate` that people ask of it allows one more."""

_ROTATE = op_name("identity.rotate")


@dataclass(frozen=True, slots=True)
class Issuer:
    """The issuer of boxes' certificates, each for `days` days."""

    authority: Authority
    days: int

    def issue(self, tx: Transaction, csr: CertificateRequest, *, device: DeviceId, enrolment: int, now_s: float) -> str:
        """Return a box's certificate, PEM: for the same request the same one, while a third of its life is left.

        Raises:
            RequestRefusedError: TOO_MANY, for a box that asks for ever new ones.
        """
        last = tx.enrolments.certificate_for(device, enrolment, csr.digest)
        if last is not None and last.revoked_at_s is None and not last.due_for_renewal(now_s):
            return last.pem
        _check_number(tx, device, now_s)
        new = self.authority.box(csr, device=device, enrolment=enrolment, now_s=now_s, days=self.days)
        tx.enrolments.add_certificate(new)
        return new.pem


def _check_number(tx: Transaction, device: DeviceId, now_s: float) -> None:
    recent = [one for one in tx.enrolments.certificates(device) if abs(now_s - one.not_before_s) < _DAY_S]
    if len(recent) < _CERTIFICATES_A_DAY:
        return
    if len(recent) >= _CERTIFICATES_A_DAY + tx.commands.number_since(device, _ROTATE, now_s - _DAY_S):
        text = phrase("this box was given %(num)s certificates within a day", num=len(recent))
        raise RequestRefusedError(
            RefusalCode.TOO_MANY, text, "look at its journal; it may ask again tomorrow", alarm=True
        )


def write_crl(
    layout: CloudLayout, store: ControllerStore, *, clock: Callable[[], float], also: Sequence[str] = ()
) -> None:
    """Write the list of all certificates of boxes that are revoked; the broker has to read it again.

    Args:
        layout: of the authority, and of the list.
        store: has the revoked certificates.
        clock: seconds since 1970.
        also: further serials, on this list alone.

    Raises:
        CloudError: the list, the authority's key or the store cannot be used.
    """
    with _crl_locked(layout):  # who reads the store later must not write the file earlier
        _write(layout, _revoked(store), clock=clock, also=also)


def complete_crl(layout: CloudLayout, store: ControllerStore, *, clock: Callable[[], float]) -> bool:
    """Write the list of the revoked where it lacks one of the store's; return whether it did.

    The console revokes boxes in the store alone: it does not read the authority's key.

    Raises:
        CloudError: as `write_crl`.
    """
    with _crl_locked(layout):
        serials = _revoked(store)
        listed = {f"{one.serial_number:x}" for one in x509.load_pem_x509_crl(read_file(layout.crl).encode())}
        if listed.issuperset(serials):
            return False
        _write(layout, serials, clock=clock, also=())
    return True


def _crl_locked(layout: CloudLayout) -> AbstractContextManager[None]:
    return locked(layout.ca / ".crl.lock", layout.crl)


def _revoked(store: ControllerStore) -> list[str]:
    with store.read() as tx:
        return [one.serial for one in tx.enrolments.revoked()]


def _write(layout: CloudLayout, serials: Sequence[str], *, clock: Callable[[], float], also: Sequence[str]) -> None:
    now_s = clock()
    number = int(now_s * 1_000)  # it has to rise, also where certificates that have ended leave the list
    text = authority_of(layout, "boxes").revoke([*serials, *also], number=number, now_s=now_s)
    write_file(layout.crl, text, private=False)
