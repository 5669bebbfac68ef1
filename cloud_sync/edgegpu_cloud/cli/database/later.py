"""The controller as it was last, for a restore: its list of the revoked, and its store where that can be read."""

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudLayout, load, store_url
from edgegpu_cloud.ownership import open_regular
from edgegpu_cloud.store.people.records import UserAccount
from edgegpu_cloud.store.records import Token
from edgegpu_cloud.store.store import ControllerStore, Transaction
from edgegpu_sync.ids import DeviceId

ALL_TOKENS = 10_000_000
_LIST_MAX = 64 * 1_048_576


@dataclass(frozen=True, slots=True)
class RevokedList:
    """A list of the revoked that the authority of the boxes has signed: its file, its number, its serials, its text."""

    path: Path
    number: int
    serials: frozenset[str]
    pem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterRecords:
    """What a later store has of people, tokens and boxes; API tokens by their digest.

    `last_entry`: the number of its last audit entry, which only rises.
    """

    last_entry: int
    accounts: Mapping[str, UserAccount]
    api_tokens: frozenset[str]
    tokens: Mapping[str, Token]
    enrolled: frozenset[DeviceId]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterController:
    """What is left of a controller as it was last. `problem`: why its store does not count."""

    revoked: RevokedList | None = None
    records: LaterRecords | None = None
    problem: str = ""

    def recency(self) -> tuple[int, int]:
        """Return what is higher for a controller that is later: by its list, then by its store."""
        number = -1 if self.revoked is None else self.revoked.number
        return number, -1 if self.records is None else self.records.last_entry


def read_list_file(path: Path) -> bytes:
    """Read a file that may be a list of the revoked, as its caller.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        return file.read(_LIST_MAX)


def check_list(path: Path, pem: bytes, layout: CloudLayout) -> RevokedList:
    """Read a list of the revoked, which has to be of the authority of a controller's boxes.

    Raises:
        CloudError: no list, or another authority's.
    """
    authority = x509.load_pem_x509_certificate(layout.ca_cert("boxes").read_bytes())
    try:
        revoked = x509.load_pem_x509_crl(pem)
        number = revoked.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except (ValueError, UnsupportedAlgorithm, x509.ExtensionNotFound) as error:
        text = f"cannot use {path}: it is no list of revoked certificates"
        raise CloudError(text, remedy="name the file ca/boxes.crl of the controller, or the broker's copy") from error
    if revoked.issuer != authority.subject or not revoked.is_signature_valid(authority.public_key()):  # type: ignore[arg-type]  # an authority of ours has an EC key
        text = f"cannot use {path}: another controller's authority has signed it"
        raise CloudError(text, remedy="name the list of the controller that the backup is of")
    text = revoked.public_bytes(serialization.Encoding.PEM).decode()
    return RevokedList(path, number, frozenset(f"{each.serial_number:x}" for each in revoked), text)


def folders_beside(folder: Path, new: CloudLayout) -> Iterator[tuple[CloudLayout, RevokedList]]:
    """Yield the folders beside a controller's that begin with its name, and have a list of the same authority."""
    for path in sorted(folder.parent.glob(f"{glob.escape(folder.name)}?*")):
        beside = CloudLayout(path)
        try:
            if path.stat().st_uid in {0, os.geteuid()}:
                yield beside, check_list(beside.crl, read_list_file(beside.crl), new)
        except (OSError, CloudError):
            continue  # another controller, or no folder of one


def later_of(
    layout: CloudLayout, revoked: RevokedList | None, *, restored_url: str, restored_entry: int
) -> LaterController:
    """Read what a folder has of a controller as it was last.

    A store that is older than the restored one does not count: all that was added since would be taken away. Its
    list does, as it only has what is revoked.

    Args:
        layout: the folder.
        revoked: its list.
        restored_url: the store that is restored.
        restored_entry: the number of the last audit entry in there.
    """
    if not layout.config.exists():
        return LaterController(revoked=revoked, problem=f"{layout.folder} has no controller.yaml")
    try:
        url = store_url(layout, load(layout.config).database)
        if url == restored_url:
            return LaterController(revoked=revoked, problem="its store is the one that is restored")
        records = _records(url)
    except CloudError as error:
        return LaterController(revoked=revoked, problem=error.text)
    if records.last_entry < restored_entry:
        return LaterController(revoked=revoked, problem="its store is older than the backup")
    return LaterController(revoked=revoked, records=records)


def last_entry_of(url: str) -> int:
    """Return the number of a store's last audit entry; 0 where it has none.

    Raises:
        CloudError: the store cannot be read.
    """
    store = ControllerStore.open(url, create=False)
    try:
        with store.read() as tx:
            return _last_entry(tx)
    finally:
        store.close()


def _last_entry(tx: Transaction) -> int:
    return max((entry.number for entry in tx.notes.audits(limit=1)), default=0)


def _records(url: str) -> LaterRecords:
    store = ControllerStore.open(url, create=False)
    try:
        with store.read() as tx:
            return LaterRecords(
                last_entry=_last_entry(tx),
                accounts={account.name: account for account in tx.people.accounts()},
                api_tokens=frozenset(token.digest for token in tx.people.tokens()),
                tokens={token.digest: token for token in tx.enrolments.tokens(limit=ALL_TOKENS)},
                enrolled=frozenset(tx.boxes.enrolled()),
            )
    finally:
        store.close()
