"""Sealed files: what comes out is what went in, and any change of a file is found."""

from __future__ import annotations

import io

import pytest

from edgegpu_cloud.enrolment.sealing import MAGIC, SealedReader, SealedWriter
from edgegpu_cloud.errors import CloudError

PASSPHRASE = "correct horse battery staple"  # noqa: S105
CHUNK, TAG = 65_536, 16
HEAD = len(MAGIC) + 16 + TAG


def seal(content: bytes) -> bytes:
    out = io.BytesIO()
    writer = SealedWriter(out, PASSPHRASE)
    for at in range(0, len(content), 50_000):
        writer.write(content[at : at + 50_000])
    writer.close()
    return out.getvalue()


def unseal(data: bytes, passphrase: str = PASSPHRASE) -> bytes:
    reader, found = SealedReader(io.BytesIO(data), passphrase), bytearray()
    while part := reader.read(10_007):
        found += part
    return bytes(found)


def content_of(size: int) -> bytes:
    return bytes(number % 251 for number in range(size))


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 5])
def test_what_comes_out_is_what_went_in(size: int) -> None:
    content = content_of(size)
    sealed = seal(content)
    assert unseal(sealed) == content
    assert content[:32] not in sealed or size < len(MAGIC), "a few bytes are in anything"


def test_two_files_of_one_content_share_no_chunk() -> None:
    one, other = seal(b"the same" * 10), seal(b"the same" * 10)
    assert one[len(MAGIC) :][:16] != other[len(MAGIC) :][:16]
    assert one[HEAD:] != other[HEAD:]


def test_another_passphrase_is_refused_before_anything_is_read() -> None:
    with pytest.raises(CloudError, match=r"passphrase is wrong.*give the passphrase with which"):
        SealedReader(io.BytesIO(seal(b"content")), PASSPHRASE + " ")


def test_another_file_is_no_backup() -> None:
    for other in (b"", b"PK\x03\x04" * 100, MAGIC[:-2]):
        with pytest.raises(CloudError, match="no backup"):
            SealedReader(io.BytesIO(other), PASSPHRASE)


def changed(sealed: bytes, at: int) -> bytes:
    return sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]


def test_each_change_is_found() -> None:
    sealed = seal(content_of(2 * CHUNK + 100))
    first, second = slice(HEAD, HEAD + CHUNK + TAG), slice(HEAD + CHUNK + TAG, HEAD + 2 * (CHUNK + TAG))
    changes = {
        "salt": changed(sealed, len(MAGIC)),
        "check of the passphrase": changed(sealed, HEAD - 1),
        "first chunk": changed(sealed, HEAD),
        "last chunk": changed(sealed, len(sealed) - 1),
        "cut within a chunk": sealed[:-50],
        "cut after a chunk": sealed[: second.stop],
        "cut after the head": sealed[:HEAD],
        "two chunks exchanged": sealed[:HEAD] + sealed[second] + sealed[first] + sealed[second.stop :],
        "one chunk left out": sealed[:HEAD] + sealed[second] + sealed[second.stop :],
        "something after the end": sealed + b"more",
    }
    for what, data in changes.items():
        with pytest.raises(CloudError, match=r"damaged|wrong"):
            pytest.fail(f"{what} was not found: {len(unseal(data))} bytes")
