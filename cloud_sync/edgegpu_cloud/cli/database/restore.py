"""`edgegpu-cloud restore`: makes a controller of what `backup` has written, in an empty folder."""

import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, BinaryIO, cast

import typer
from pydantic import ValidationError

from edgegpu_cloud.broker.folder import write_broker
from edgegpu_cloud.cli.common import DEFAULT, FolderOption, JsonOption, answer, reporting, store_entry
from edgegpu_cloud.cli.database.passphrase import PassphraseOption, read_passphrase
from edgegpu_cloud.enrolment.key_files import write_file
from edgegpu_cloud.enrolment.new_folder import take_over, unfinished
from edgegpu_cloud.enrolment.sealing import SealedReader
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.layout import CloudConfig, CloudLayout, dump, load, store_url
from edgegpu_cloud.ownership import become_owner, open_regular
from edgegpu_cloud.store.backup import restore_dump
from edgegpu_cloud.store.migrations import newest
from edgegpu_cloud.store.store import audit_store, tables_version

HELP = """\
Make a controller of a backup, in an empty folder: all of it or nothing.

It asks for the passphrase of the backup. A store that was in PostgreSQL goes by `pg_restore` into the database that
the backup names, or into the one of --database; it must have no tables. Boxes that were told more after the backup are
found ahead, RESTORED, and wait for `confirm`.

\b
Examples:
  edgegpu-cloud restore /srv/backup/edgegpu-cloud.backup
  edgegpu-cloud restore edgegpu-cloud.backup --database postgresql://edgegpu@db2.example.com/edgegpu

\b
--json prints {"folder", "from", "to"}: the versions of the restored tables and of this program; where they differ,
`edgegpu-cloud migrate` comes next
"""
_GZIP = b"\x1f\x8b"
_COPY = 1_048_576

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="What `backup` has written.")]
DatabaseOption = Annotated[
    str, typer.Option("--database", metavar="URL", help="Restore a store of PostgreSQL into this empty database.")
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option("--database-password-file", metavar="FILE", help="The file with its password, in the first line."),
]


def restore(
    file: FileArgument,
    *,
    passphrase_file: PassphraseOption = None,
    database: DatabaseOption = "",
    database_password_file: PasswordFileOption = None,
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Make a controller of a backup, in an empty folder."""
    with reporting(as_json=json):
        passphrase = read_passphrase(passphrase_file, new=False)
        password = str(database_password_file.absolute()) if database_password_file else ""
        with _opened(file) as source:  # before root is given up: the file is the caller's
            become_owner(folder)
            layout = CloudLayout(folder.absolute())
            found = _restore(file, source, layout, passphrase, {"url": database, "password_file": password})
        text = f"restored the controller into {layout.folder}\n" + _next(found)
        answer({"folder": str(layout.folder), "from": found, "to": newest()}, text, as_json=json)


def _next(version: int) -> str:
    if version != newest():
        return f"its tables have version {version}, ours is {newest()}: run `edgegpu-cloud migrate`, then `serve`"
    return "start the broker and `serve`; boxes that are ahead of the backup wait for `edgegpu-cloud confirm BOX`"


def _opened(file: Path) -> BinaryIO:
    try:
        return os.fdopen(open_regular(file, os.O_RDONLY), "rb")
    except OSError as error:
        raise CloudError(f"cannot read {file}: {error}", remedy="name a backup that you may read") from error


def _unsealed(file: Path, source: BinaryIO, passphrase: str) -> SealedReader:
    if source.read(len(_GZIP)) == _GZIP:
        remedy = "unpack it into the empty folder: tar -xzf FILE -C FOLDER (docs/cloud/backup.md)"
        raise CloudError(f"cannot restore {file}: edgegpu 0.1.0 has made it, without a passphrase", remedy=remedy)
    source.seek(0)
    try:
        return SealedReader(source, passphrase)
    except CloudError as error:
        raise CloudError(f"cannot restore {file}: {error.text}", remedy=error.remedy) from error


def _restore(file: Path, source: BinaryIO, layout: CloudLayout, passphrase: str, database: dict[str, str]) -> int:
    """Unpack beside the target, bring the store back, and give all its place; return the version of its tables."""
    try:
        with unfinished(layout) as new:
            sealed = _unsealed(file, source, passphrase)
            try:
                _unpack(sealed, new.folder)
                version = _bring_back(new, _configured(new, database), file.name)
                write_broker(layout, load(new.config), into=new.broker)
            except CloudError as error:
                raise CloudError(f"cannot restore {file}: {error.text}", remedy=error.remedy) from error
            new.release.mkdir(mode=0o700, exist_ok=True)
            take_over(new, layout)
    except (OSError, tarfile.TarError) as error:
        remedy = f"is there room in {layout.folder} (df), and may you write there?"
        raise CloudError(f"cannot restore {file}: {error}", remedy=remedy) from error
    return version


def _unpack(sealed: SealedReader, into: Path) -> None:
    """Write the files of an archive; links and names that lead elsewhere are refused."""
    with tarfile.open(mode="r|gz", fileobj=cast("BinaryIO", sealed)) as tar:
        for one in tar:
            name = PurePosixPath(one.name)
            if name.is_absolute() or ".." in name.parts or not (one.isdir() or one.isreg()):
                raise CloudError(f"it has {one.name!r}, which no backup has", remedy="take another backup")
            path = into / name
            (path if one.isdir() else path.parent).mkdir(mode=0o700, parents=True, exist_ok=True)
            if content := tar.extractfile(one):
                _write_synced(path, content, mode=one.mode & 0o644)
    sealed.drain()


def _write_synced(path: Path, content: IO[bytes], *, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "wb") as out:
        shutil.copyfileobj(content, out, _COPY)
        out.flush()
        os.fsync(handle)


def _configured(new: CloudLayout, database: dict[str, str]) -> CloudConfig:
    """Return the configuration of the backup, with another database where one is named."""
    config = load(new.config)
    if not database["url"]:
        return config
    if not config.database.url:
        text = "its store is a SQLite file"
        raise CloudError(text, remedy="leave --database out, and move the store afterwards: docs/cloud/postgresql.md")
    try:
        config = CloudConfig.model_validate({**config.model_dump(), "database": database})
    except ValidationError as error:
        text = error.errors(include_url=False, include_context=False)[0]["msg"].removeprefix("Value error, ")
        raise typer.BadParameter(text, param_hint="--database") from error
    write_file(new.config, dump(config))
    return config


def _bring_back(new: CloudLayout, config: CloudConfig, backup: str) -> int:
    url = store_url(new, config.database)
    if config.database.url:
        restore_dump(new.database_dump, url)
        new.database_dump.unlink()
    version = tables_version(url)
    if version is None:
        raise CloudError("its store has no tables", remedy="take another backup")
    audit_store(url, store_entry(AuditKind.STORE_RESTORED, {}, {"file": backup, "version": version}))
    return version
