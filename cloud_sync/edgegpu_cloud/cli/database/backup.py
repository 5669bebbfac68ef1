"""`edgegpu-cloud backup`: writes the whole controller into one file, which a passphrase encrypts."""

import os
import secrets
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer

from edgegpu_base.files import open_folder
from edgegpu_cloud.cli.common import DEFAULT, FolderOption, JsonOption, answer, opened, refuse_server, reporting
from edgegpu_cloud.cli.database.passphrase import PassphraseOption, read_passphrase
from edgegpu_cloud.enrolment.sealing import SealedWriter
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudLayout, DatabaseConfig, store_url
from edgegpu_cloud.ownership import CallersFiles, Json, outside
from edgegpu_cloud.store.backup import copy_store

HELP = """\
Write everything that this controller is into FILE: configuration, keys, authorities, the store as it stands.

The controller may run meanwhile. A store in PostgreSQL is copied by `pg_dump`. A passphrase encrypts the whole file
(scrypt, AES-256-GCM): it is asked for, or read from a file. Keep the passphrase elsewhere than the backup: without it
the backup is worth nothing. `edgegpu-cloud restore` brings it back.

\b
Examples:
  edgegpu-cloud backup /srv/backup/edgegpu-cloud.backup
  edgegpu-cloud backup /srv/backup/edgegpu-cloud.backup --passphrase-file /etc/edgegpu-backup-passphrase

\b
--json prints {"file": PATH, "bytes"}
"""


def backup(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Written whole or not at all; replaced where it is there.")
    ],
    *,
    passphrase_file: PassphraseOption = None,
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Write everything that this controller is into FILE."""
    with reporting(as_json=json):
        refuse_server()
        _check(file)
        passphrase = read_passphrase(passphrase_file, new=True)
        try:
            with _written_whole(file.absolute(), folder) as (out, caller), opened(folder) as cloud:
                sealed = SealedWriter(out, passphrase)
                _write(cloud.layout, cloud.config.database, sealed, beside=file.absolute().parent)
                sealed.close()
                out.flush()
                os.fsync(out.fileno())
                size = out.tell()
                caller.do("keep", None)
        except OSError as error:
            remedy = f"name a file in a folder with room (`df {file.absolute().parent}`) that you may write"
            raise CloudError(f"cannot write {file}: {error}", remedy=remedy) from error
        text = f"wrote {file}, {size} bytes; keep it and its passphrase in two places"
        answer({"file": str(file.absolute()), "bytes": size}, text, as_json=json)


@contextmanager
def _written_whole(file: Path, folder: Path) -> Iterator[tuple[BinaryIO, CallersFiles]]:
    """Yield an open file, and the task that gives it its name in the end; without that the file is removed.

    Both belong to the caller, while the owner of the controller's folder writes the archive.
    """
    new = f".edgegpu-backup-{secrets.token_hex(4)}"
    with open_folder(file.parent) as parent:

        def keep(_: Json) -> None:
            os.rename(new, file.name, src_dir_fd=parent, dst_dir_fd=parent)
            os.fsync(parent)

        def drop(_: Json) -> None:
            with suppress(FileNotFoundError):
                os.unlink(new, dir_fd=parent)

        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)
        with os.fdopen(handle, "wb") as out, outside(folder, keep=keep, drop=drop) as caller:
            yield out, caller


def _check(file: Path) -> None:
    """Refuse a target that is not a regular file: a device, a pipe, a link would be replaced, and be gone."""
    try:
        other = not stat.S_ISREG(file.lstat().st_mode)
    except OSError:
        other = False
    if other or str(file) == "-":
        what = "standard output" if str(file) == "-" else "not a regular file"
        raise CloudError(f"cannot write a backup to {file}: it is {what}", remedy="name a file, new or to be replaced")


def _write(layout: CloudLayout, database: DatabaseConfig, out: SealedWriter, *, beside: Path) -> None:
    """Write the archive; meanwhile the copy of the store lies beside it, or else in the controller's folder."""
    place = beside if os.access(beside, os.W_OK) else layout.folder
    with tempfile.TemporaryDirectory(dir=place, prefix=".edgegpu-backup-") as work:
        name = layout.database_dump.name if database.url else layout.database.name
        copy = Path(work, name)
        try:
            copy_store(store_url(layout, database), copy)
        except CloudError as error:
            remedy = error.remedy if database.url else f"is there room for it in {place} (df)?"
            raise CloudError(f"cannot write the backup: {error.text}", remedy=remedy) from error
        with tarfile.open(mode="w|gz", fileobj=cast("BinaryIO", out)) as tar:
            for path in (layout.config, layout.keys, layout.ca, layout.tls):
                tar.add(path, arcname=path.name)
            for path in (layout.broker, *sorted(layout.broker.glob("*")), layout.release):
                if path.exists():  # folders stay empty: the broker's data and the bundle come of themselves
                    tar.add(path, arcname=str(path.relative_to(layout.folder)), recursive=False)
            tar.add(copy, arcname=name)
