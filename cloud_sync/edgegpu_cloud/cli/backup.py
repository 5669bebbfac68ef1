"""`edgegpu-cloud backup`: writes the whole controller into one file."""

import os
import secrets
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from edgegpu_base.files import open_folder
from edgegpu_cloud.cli.common import DEFAULT, FolderOption, JsonOption, answer, opened, reporting
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudLayout
from edgegpu_cloud.ownership import CallersFiles, Json, outside
from edgegpu_cloud.store.backup import copy_file

HELP = """\
Write everything that this controller is into FILE (.tar.gz): configuration, keys, authorities, the store as it stands.

The controller may run meanwhile. The file is secret: it holds all keys. Restore it into an empty folder with tar, and
start `serve`: boxes that were told more after the backup are found ahead, RESTORED, and wait for `confirm`.

\b
Examples:
  edgegpu-cloud backup /srv/backup/edgegpu-cloud.tar.gz
  mkdir -m 700 /var/lib/edgegpu-cloud && tar -xzf edgegpu-cloud.tar.gz -C /var/lib/edgegpu-cloud   # restore

\b
--json prints {"file": PATH, "bytes"}
"""


def backup(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Written whole or not at all; replaced where it is there.")
    ],
    *,
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Write everything that this controller is into FILE."""
    with reporting(as_json=json):
        _check(file)
        try:
            with _written_whole(file.absolute(), folder) as (out, caller), opened(folder) as cloud:
                _write(cloud.layout, out, beside=file.absolute().parent)
                size = out.tell()
                caller.do("keep", None)
        except OSError as error:
            remedy = f"name a file in a folder with room (`df {file.absolute().parent}`) that you may write"
            raise CloudError(f"cannot write {file}: {error}", remedy=remedy) from error
        text = f"wrote {file}, {size} bytes; it holds every key of this controller"
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


def _write(layout: CloudLayout, out: BinaryIO, *, beside: Path) -> None:
    """Write the archive; meanwhile the copy of the store lies beside it, or else in the controller's folder."""
    place = beside if os.access(beside, os.W_OK) else layout.folder
    with tempfile.TemporaryDirectory(dir=place, prefix=".edgegpu-backup-") as work:
        database = Path(work, layout.database.name)
        try:
            copy_file(layout.database, database)
        except CloudError as error:
            remedy = f"is there room for it in {place} (df)?"
            raise CloudError(f"cannot write the backup: {error.text}", remedy=remedy) from error
        database.chmod(0o600)
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for path in (layout.config, layout.keys, layout.ca, layout.tls):
                tar.add(path, arcname=path.name)
            for path in (layout.broker, *sorted(layout.broker.glob("*")), layout.release):
                if path.exists():  # folders stay empty: the broker's data and the bundle come of themselves
                    tar.add(path, arcname=str(path.relative_to(layout.folder)), recursive=False)
            tar.add(database, arcname=layout.database.name)
        out.flush()
        os.fsync(out.fileno())
