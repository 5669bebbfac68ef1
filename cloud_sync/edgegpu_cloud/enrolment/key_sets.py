"""The controllers' key sets: their chain, the request for the next set, and how a signed set takes effect."""

import contextlib
from pathlib import Path
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from edgegpu_base.x509 import key_pem
from edgegpu_cloud.enrolment.key_files import load_signing_key, read_file, write_file
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.audit.entries import Author, audit, difference
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.layout import CloudLayout
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.errors import MessageRefusedError
from edgegpu_sync.keys import KeyRing, KeySet, PublicKey, key_id, next_link, public_text
from edgegpu_sync.messages.downlink import KeySetLink
from edgegpu_sync.wire import decode

_SETS = TypeAdapter(KeySet)
_NEXT = "signing.next"

MOST_KEYS = 32
"""Keys in one set."""


class SigningRequest(BaseModel):
    """A request that is carried to the root key: the newest set, and the keys that the one after it shall hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: Literal[1] = 1
    before: KeySetLink | None
    keys: Annotated[tuple[PublicKey, ...], Field(min_length=1, max_length=MOST_KEYS)]


def read_set(link: KeySetLink) -> KeySet:
    """Return the set in a link of the chain."""
    return decode(_SETS, link.set.encode())


def chain_of(store: ControllerStore) -> tuple[KeySetLink, ...]:
    """Return the chain of key sets, first to last."""
    with store.read() as tx:
        return tx.notes.chain()


def ring_of(layout: CloudLayout, chain: tuple[KeySetLink, ...]) -> KeyRing:
    """Return the key ring of a box that was enrolled here and has followed the chain.

    Raises:
        CloudError: no box could follow it.
    """
    ring = KeyRing.pinned(read_file(layout.root_public).strip())
    try:
        return ring.follow(chain) if chain else ring
    except MessageRefusedError as error:
        remedy = "restore keys and store from one backup"
        raise CloudError(f"cannot use the chain of key sets: {error}", remedy=remedy) from error


def prepare(layout: CloudLayout, store: ControllerStore, *, rotate: bool, drop_old: bool) -> SigningRequest:
    """Return what the root has to sign; with `rotate` a new signing key is made, and waits beside the present one.

    Args:
        layout: of this controller.
        store: holds the chain.
        rotate: make a new key; else ask for the present one alone, for a first set.
        drop_old: leave the present key out of the set: boxes refuse what it signs from then on.

    Raises:
        CloudError: keys or store cannot be used, or a box holds a newer set than this store, which is from a backup.
    """
    chain = chain_of(store)
    _check_newest(store, chain)
    public = public_text(load_signing_key(layout.signing_key))
    others = [key.public for key in read_set(chain[-1]).keys if key.public != public] if chain else []
    keys = [*others, public]
    if rotate:
        new = Ed25519PrivateKey.generate()
        write_file(layout.keys / _NEXT, key_pem(new))
        keys = [public_text(new)] if drop_old else [public_text(new), public, *_of_controllers(store, others)]
        _check_size(keys)
    return SigningRequest(before=chain[-1] if chain else None, keys=tuple(keys))


def request_with(layout: CloudLayout, store: ControllerStore, public: str) -> SigningRequest:
    """Return what the root has to sign so that boxes obey one more key, a further controller's.

    Args:
        layout: of this controller, whose own key stays in the set.
        store: holds the chain.
        public: the further key.

    Raises:
        CloudError: as `prepare`, or the set is full.
    """
    chain = chain_of(store)
    _check_newest(store, chain)
    keys = [key.public for key in read_set(chain[-1]).keys] if chain else []
    keys += [one for one in (public_text(load_signing_key(layout.signing_key)), public) if one not in keys]
    _check_size(keys)
    return SigningRequest(before=chain[-1] if chain else None, keys=tuple(keys))


def _of_controllers(store: ControllerStore, others: list[str]) -> list[str]:
    """Return the keys that may be further controllers'; where there is none they are old keys of this one."""
    with store.read() as tx:
        return others if len(tx.leases.controllers()) > 1 else []


def _check_size(keys: list[str]) -> None:
    if len(keys) > MOST_KEYS:
        remedy = "leave out old keys first: edgegpu-cloud keys rotate --drop-old"
        raise CloudError(f"cannot add a key: a set holds {MOST_KEYS} at most", remedy=remedy)


def _check_newest(store: ControllerStore, chain: tuple[KeySetLink, ...]) -> None:
    with store.read() as tx:
        newest, name = tx.boxes.newest_key_set()
    if newest > len(chain):
        raise CloudError(
            f"cannot change the keys: {name} holds set {newest}, and the sets here end with {len(chain)}: this store "
            "is older than that change, and a box that holds it would follow no other",
            remedy="add the missing sets first, from a later copy (docs/cloud/backup.md); if there are no "
            f"such sets, {name} reports a false number: `edgegpu-cloud revoke {name}`",
        )


def sign(request: SigningRequest, root: Ed25519PrivateKey, *, next_root: str = "") -> KeySetLink:
    """Sign the next set; this is done where the root key is.

    Raises:
        CloudError: this root key is not the one in effect.
    """
    if request.before is not None and read_set(request.before).root != public_text(root):
        remedy = "use the root key that the newest set names"
        raise CloudError("cannot sign: this is not the root key in effect, so boxes would not obey", remedy=remedy)
    return next_link(root, keys=request.keys, before=request.before, next_root=next_root or None)


def add(layout: CloudLayout, store: ControllerStore, link: KeySetLink, *, by: str, now_s: float) -> KeySet:
    """Add a set that the root has signed; a waiting key takes effect with the first set that has it.

    Raises:
        CloudError: it does not follow the newest set, the root has not signed it, or no key of ours is in it.
    """
    chain = chain_of(store)
    ring = ring_of(layout, chain)
    try:
        ring.follow([link])
        new = read_set(link)
    except MessageRefusedError as error:
        raise CloudError(f"cannot take this key set: {error}", remedy="make the request anew, and sign that") from error
    publics = {key.public for key in new.keys}
    waiting = layout.keys / _NEXT
    mine = [path for path in (layout.signing_key, waiting) if path.exists() and _public(path) in publics]
    if not mine:
        text = "cannot take this key set: it holds no key of this controller, which nobody would obey then"
        raise CloudError(text, remedy="make the request anew, and sign that")
    with store.write() as tx:
        tx.notes.add_link(new.version, link)
        tx.notes.changed()
        held = _shown(read_set(chain[-1])) if chain else {}
        audit(tx, Author(by, now_s), AuditKind.KEYS_ADDED, difference(held, _shown(new)))
    if waiting in mine:
        _come_into_effect(layout)
    return new


def _shown(keys: KeySet) -> dict[str, object]:
    """Return what the audit has of a key set."""
    return {"version": keys.version, "keys": sorted(key_id(key.public) for key in keys.keys)}


def _public(path: Path) -> str:
    return public_text(load_signing_key(path))


def settle(layout: CloudLayout, store: ControllerStore) -> None:
    """Finish an `add` that was interrupted: a waiting key that is in the newest set takes effect.

    Raises:
        CloudError: keys or store cannot be used.
    """
    chain, waiting = chain_of(store), layout.keys / _NEXT
    if not chain or not waiting.exists():
        return
    try:
        public = _public(waiting)
    except CloudError:
        if waiting.exists():
            raise
        return  # it has taken effect meanwhile
    if public in {key.public for key in read_set(chain[-1]).keys}:
        _come_into_effect(layout)


def _come_into_effect(layout: CloudLayout) -> None:
    with contextlib.suppress(FileNotFoundError):  # both a running controller and an `add` do so
        (layout.keys / _NEXT).replace(layout.signing_key)
