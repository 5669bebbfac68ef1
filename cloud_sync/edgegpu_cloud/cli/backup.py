"""`edgegpu-cloud backup`: everything that a controller is, in one file."""

import os
import stat
import tarfile
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from edgegpu_cloud.cli.common import DEFAULT, FolderOption, JsonOption, opened, print_json, reporting
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudLayout
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
    with reporting(as_json=json), opened(folder) as cloud:
        _check(file)
        try:
            size = _write(cloud.layout, file.absolute())
        except OSError as error:
            remedy = f"name a file in a folder with room (`df {file.absolute().parent}`) that you may write"
            raise CloudError(f"cannot write {file}: {error}", remedy=remedy) from error
        if json:
            print_json({"file": str(file.absolute()), "bytes": size})
        else:
            typer.echo(f"wrote {file}, {size} bytes; it holds every key of this controller")


def _check(file: Path) -> None:
    """Refuse what is no file: a device, a pipe, a link would be replaced, and be gone."""
    try:
        other = not stat.S_ISREG(file.lstat().st_mode)
    except OSError:
        other = False
    if other or str(file) == "-":
        what = "standard output" if str(file) == "-" else "no regular file"
        raise CloudError(f"cannot write a backup to {file}: it is {what}", remedy="name a file, new or to be replaced")


def _write(layout: CloudLayout, file: Path) -> int:
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".edgegpu-backup-") as work:
        database = Path(work, layout.database.name)
        try:
            copy_file(layout.database, database)
        except CloudError as error:
            remedy = f"is there room for it in {file.parent} (df)?"
            raise CloudError(f"cannot write {file}: {error.text}", remedy=remedy) from error
        database.chmod(0o600)
        new = Path(work, "new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            with tarfile.open(fileobj=out, mode="w:gz") as tar:
                for path in (layout.config, layout.keys, layout.ca, layout.tls):
                    tar.add(path, arcname=path.name)
                for path in (layout.broker, *sorted(layout.broker.glob("*")), layout.release):
                    if path.exists():  # folders stay empty: the broker's data and the bundle come of themselves
                        tar.add(path, arcname=str(path.relative_to(layout.folder)), recursive=False)
                tar.add(database, arcname=layout.database.name)
            out.flush()
            os.fsync(out.fileno())
        new.replace(file)
    return file.stat().st_size
