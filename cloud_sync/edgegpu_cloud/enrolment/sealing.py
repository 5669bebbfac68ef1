"""Sealed files: a stream that a passphrase encrypts and authenticates, 64 KiB at a time.

scrypt makes the key of a file from the passphrase and a salt of that file. Each chunk is sealed by AES-256-GCM under
its number, and the last one says that it is the last: what was changed, moved or cut off is found where it is read.
"""

import os
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from edgegpu_cloud.errors import CloudError

MAGIC = b"edgegpu-cloud backup 1\n"
"""The first bytes of a sealed file: they name the parameters below too."""

_SALT, _KEY, _TAG = 16, 32, 16
_N, _R, _P = 2**17, 8, 1
"""scrypt's cost: 128 MiB and some tenths of a second for each passphrase that somebody tries."""
_CHUNK = 65_536
_MORE, _LAST, _HEAD = 0, 1, 2


class SealedWriter:
    """A file for writing, whose content a passphrase seals; `close` writes the last chunk, and leaves the file open."""

    def __init__(self, out: BinaryIO, passphrase: str) -> None:
        self._out, self._waiting, self._number = out, bytearray(), 0
        head = MAGIC + os.urandom(_SALT)
        self._cipher = _cipher(passphrase, head)
        out.write(head + self._cipher.encrypt(_nonce(0, _HEAD), b"", head))

    def write(self, data: bytes) -> int:
        """Take data; whole chunks are written at once. Raises OSError."""
        self._waiting += data
        while len(self._waiting) > _CHUNK:
            self._seal(bytes(self._waiting[:_CHUNK]), _MORE)
            del self._waiting[:_CHUNK]
        return len(data)

    def close(self) -> None:
        """Write the last chunk. Raises OSError."""
        self._seal(bytes(self._waiting), _LAST)

    def _seal(self, chunk: bytes, kind: int) -> None:
        self._out.write(self._cipher.encrypt(_nonce(self._number, kind), chunk, None))
        self._number += 1


class SealedReader:
    """The content of a sealed file, from its beginning to its end."""

    def __init__(self, file: BinaryIO, passphrase: str) -> None:
        """Take a file at its beginning.

        Raises:
            CloudError: it is not sealed, or not with this passphrase.
            OSError: it cannot be read.
        """
        self._file, self._ready, self._number = file, bytearray(), 0
        head, seal = file.read(len(MAGIC) + _SALT), file.read(_TAG)
        if not head.startswith(MAGIC):
            raise CloudError("it is no backup that `edgegpu-cloud backup FILE` has written", remedy="name another file")
        self._cipher = _cipher(passphrase, head)
        try:
            self._cipher.decrypt(_nonce(0, _HEAD), seal, head)
        except (InvalidTag, ValueError) as error:
            remedy = "give the passphrase with which this backup was made"
            raise CloudError("the passphrase is wrong, or its first bytes are damaged", remedy=remedy) from error
        self._next = file.read(_CHUNK + _TAG)
        self._ended = False

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer at the end.

        Raises:
            CloudError: the file was changed or cut off.
            OSError: it cannot be read.
        """
        while len(self._ready) < size and not self._ended:
            self._ready += self._open()
        found = bytes(self._ready[:size])
        del self._ready[:size]
        return found

    def drain(self) -> None:
        """Read to the end, and so see that nothing was cut off. Raises as `read`."""
        while self.read(_CHUNK):
            pass

    def _open(self) -> bytes:
        chunk, self._next = self._next, self._file.read(_CHUNK + _TAG)
        self._ended = not self._next
        nonce = _nonce(self._number, _LAST if self._ended else _MORE)
        self._number += 1
        try:
            return self._cipher.decrypt(nonce, chunk, None)
        except (InvalidTag, ValueError) as error:
            remedy = "take another copy of this backup, or another backup"
            raise CloudError("it is damaged, or cut off", remedy=remedy) from error


def _cipher(passphrase: str, head: bytes) -> AESGCM:
    return AESGCM(Scrypt(salt=head[len(MAGIC) :], length=_KEY, n=_N, r=_R, p=_P).derive(passphrase.encode()))


def _nonce(number: int, kind: int) -> bytes:
    """Return the nonce of a chunk: the key is one file's alone, so a number is used once."""
    return number.to_bytes(11, "big") + bytes([kind])
