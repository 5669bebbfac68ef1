"""Key files: how they are read, written so that nobody else reads them, and named by a hash."""

import base64
import hashlib
import os
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgegpu_base.files import Owner, open_folder, replace_in
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.ownership import ROOT, open_regular, remedy_for

PublicKey = ec.EllipticCurvePublicKey
PrivateKey = ec.EllipticCurvePrivateKey


def load_key(pem: str) -> PrivateKey:
    """Read a private key for TLS or an authority.

    Raises:
        ValueError: it is none, or none of an elliptic curve.
    """
    key = serialization.load_pem_private_key(pem.encode(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not one of an elliptic curve")  # noqa: TRY004  (what the caller catches)
    return key


def load_signing_key(path: Path) -> Ed25519PrivateKey:
    """Read the Ed25519 key in a file: the root's, or a controller's.

    Raises:
        CloudError: the file cannot be read, or holds no such key.
    """
    try:
        key = serialization.load_pem_private_key(read_file(path).encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        remedy = "name the file that `keys make-root` or `init` has made, or restore it from a backup"
        raise CloudError(f"cannot use {path}: it holds no private key (PEM)", remedy=remedy) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise CloudError(f"cannot use {path}: it holds no Ed25519 key", remedy="restore it from a backup")
    return key


def pin(public: PublicKey) -> str:
    """Return the value for `curl --pinnedpubkey sha256//…`: base64 of the SHA-256 of the public key in DER."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return base64.b64encode(hashlib.sha256(public.public_bytes(serialization.Encoding.DER, form)).digest()).decode()


def file_sha256(text: str) -> str:
    """Return what `sha256sum FILE` prints of a file with this text."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_file(path: Path) -> str:
    """Read a file of the controller's folder.

    Raises:
        CloudError: it cannot be read.
    """
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, PermissionError):
            remedy = remedy_for(path)
        else:
            remedy = "`edgegpu-cloud init --name HOST` makes it in a new folder, a backup brings it back in an old one"
        raise CloudError(f"cannot read {path}: {error}", remedy=remedy) from error


def write_file(path: Path, text: str, *, private: bool = True) -> None:
    """Write a file whole or not at all, also at a power cut; it belongs to the owner of its folder.

    Args:
        path: in a folder that exists.
        text: its content.
        private: mode 0600 from its first moment on; else 0644.

    Raises:
        CloudError: it cannot be written.
    """
    try:
        with open_folder(path.parent) as folder:
            replace_in(folder, path.name, text.encode(), mode=0o600 if private else 0o644, owner=owner_in(folder))
    except PermissionError as error:
        raise CloudError(f"cannot write {path}: {error}", remedy=remedy_for(path)) from error
    except OSError as error:
        raise CloudError(f"cannot write {path}: {error}", remedy="make room, or mend the folder's rights") from error


def owner_in(folder: int) -> Owner | None:
    """Return the owner of an open folder, to whom root gives new files; None where nothing is given. Raises OSError."""
    there = os.fstat(folder)
    return (there.st_uid, there.st_gid) if os.geteuid() == ROOT and there.st_uid != ROOT else None
