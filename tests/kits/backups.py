"""Backups of a controller as a test makes and reads them: a file with the passphrase, the members of the archive."""

from __future__ import annotations

import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from edgegpu_cloud.enrolment.sealing import SealedReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSPHRASE = "correct horse battery staple"  # noqa: S105


def passphrase_words(folder: Path, text: str = PASSPHRASE) -> tuple[str, str]:
    """Write a passphrase into a file of a folder; return the option that names it."""
    path = folder / "passphrase"
    path.touch(mode=0o600)
    path.write_text(text + "\n")
    return "--passphrase-file", str(path)


@contextmanager
def opened_archive(backup: Path) -> Iterator[tarfile.TarFile]:
    """Yield the archive within a backup."""
    with (
        backup.open("rb") as file,
        tarfile.open(mode="r|gz", fileobj=cast("BinaryIO", SealedReader(file, PASSPHRASE))) as tar,
    ):
        yield tar
