"""`edgegpu-cloud restore`: makes a controller of what `backup` has written, in an empty folder."""

import os
import shutil
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, BinaryIO, cast

import typer
from pydantic import ValidationError

from edgegpu_cloud.broker.folder import write_broker
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    answer,
    moment,
    operator,
    reporting,
    store_entry,
)
from edgegpu_cloud.cli.database.later import (
    LaterController,
    RevokedList,
    check_list,
    folders_beside,
    last_entry_of,
    later_of,
    read_list_file,
)
from edgegpu_cloud.cli.database.passphrase import PassphraseOption, read_passphrase
from edgegpu_cloud.cli.database.withdrawal import Withdrawal, withdraw, withdrawal_words
from edgegpu_cloud.enrolment.issuing import complete_crl
from edgegpu_cloud.enrolment.key_files import read_file, write_file
from edgegpu_cloud.enrolment.new_folder import take_over, unfinished
from edgegpu_cloud.enrolment.sealing import SealedReader
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.layout import CloudConfig, CloudLayout, dump, load, store_url
from edgegpu_cloud.ownership import become_owner, open_regular
from edgegpu_cloud.store.backup import restored_dump
from edgegpu_cloud.store.migrations import load_revisions, newest
from edgegpu_cloud.store.store import ControllerStore, audit_store, migrate_tables, tables_version

HELP = """\
Make a controller of a backup, in an empty folder: all of it or nothing.

It asks for the passphrase of the backup. A store that was in PostgreSQL goes by `pg_restore` into the database that
the backup names, or into the one of --database; it must have no tables. Tables of an older version are migrated. Boxes
that were told more after the backup are found ahead, RESTORED, and wait for `confirm`.

A backup gives back what was taken away since: so all sessions and one-time links end, and what the controller had last
is looked up, in the folder beside this one whose name begins alike (FOLDER.old), or in --later. What is revoked or
disabled there is so here. If nothing is left of its store, all tokens end. It lists all that and asks; --yes does not
ask.

\b
Examples:
  edgegpu-cloud restore /srv/backup/edgegpu-cloud.backup
  edgegpu-cloud restore edgegpu-cloud.backup --database postgresql://edgegpu@db2.example.com/edgegpu
  edgegpu-cloud restore edgegpu-cloud.backup --later /srv/broker/boxes.crl --yes

\b
--json needs --yes, and prints {"folder", "from", "to", "later": PATH or null, "sessions", "links",
"enrolment_tokens": [], "api_tokens": [], "boxes": [], "certificates", "people": [], "kept": []}; "from" and "to" are
the versions of the tables in the backup and here
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


YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
LaterOption = Annotated[
    Path | None,
    typer.Option("--later", metavar="PATH", help="The controller's folder as it was last, or its file boxes.crl."),
]
KeepOption = Annotated[
    bool, typer.Option("--keep-api-tokens", help="Keep API tokens of which nobody knows whether they were revoked.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What was asked for. `later_list`: the content of --later where it is a file, read as the caller."""

    file: Path
    passphrase: str
    database: dict[str, str]
    later: Path | None
    later_list: bytes | None
    keep_api_tokens: bool
    yes: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class _Restored:
    version: int
    done: Withdrawal
    later: LaterController


def restore(  # noqa: PLR0913  (one for each option)
    file: FileArgument,
    *,
    passphrase_file: PassphraseOption = None,
    database: DatabaseOption = "",
    database_password_file: PasswordFileOption = None,
    later: LaterOption = None,
    keep_api_tokens: KeepOption = False,
    yes: YesOption = False,
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Make a controller of a backup, in an empty folder."""
    with reporting(as_json=json):
        passphrase = read_passphrase(passphrase_file, new=False)
        password = str(database_password_file.absolute()) if database_password_file else ""
        wanted = _Wanted(
            file=file,
            passphrase=passphrase,
            database={"url": database, "password_file": password},
            later=later.absolute() if later else None,
            later_list=_later_list(later),
            keep_api_tokens=keep_api_tokens,
            yes=yes,
            as_json=json,
        )
        load_revisions()
        with _opened(file) as source:  # before root is given up: the file is the caller's
            become_owner(folder)
            layout = CloudLayout(folder.absolute())
            restored = _restore(source, layout, wanted)
        revoked = restored.later.revoked
        document = {"folder": str(layout.folder), "from": restored.version, "to": newest()}
        document |= {"later": None if revoked is None else str(revoked.path)} | asdict(restored.done)
        text = f"restored the controller into {layout.folder}\n{_NEXT}"
        answer(document, text, as_json=json)


_NEXT = "start the broker and `serve`; boxes that are ahead of the backup wait for `edgegpu-cloud confirm BOX`"


def _later_list(later: Path | None) -> bytes | None:
    """Return the content of --later where it is a file, read as the caller; None for a folder."""
    try:
        return None if later is None or later.is_dir() else read_list_file(later)
    except OSError as error:
        raise _unreadable_later(later, error) from error


def _unreadable_later(path: Path | None, error: OSError) -> CloudError:
    remedy = "name with --later the controller's folder as it was last, or its file ca/boxes.crl"
    return CloudError(f"cannot read {path}: {error}", remedy=remedy)


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


def _restore(source: BinaryIO, layout: CloudLayout, wanted: _Wanted) -> _Restored:
    """Unpack beside the target, bring the store back, take away what was taken away, ask, and give all its place."""
    file = wanted.file
    try:
        with unfinished(layout) as new:
            sealed = _unsealed(file, source, wanted.passphrase)
            try:
                made_s = _unpack(sealed, new)
                with _brought_back(new, _configured(new, wanted.database)) as (url, version):
                    later = _later(layout, new, wanted, url=url)
                    done, older_boxes = _withdrawn(new, url, later, wanted)
                    entry = store_entry(AuditKind.STORE_RESTORED, {}, {"file": file.name, "version": version})
                    audit_store(url, entry)
                    write_broker(layout, load(new.config), into=new.broker, older_boxes=older_boxes)
                    _ask(wanted, withdrawal_words(done, later, made=moment(made_s)))
                    new.release.mkdir(mode=0o700, exist_ok=True)
                    take_over(new, layout)
            except CloudError as error:
                raise CloudError(f"cannot restore {file}: {error.text}", remedy=error.remedy) from error
    except (OSError, tarfile.TarError) as error:
        remedy = f"is there room in {layout.folder} (df), and may you write there?"
        raise CloudError(f"cannot restore {file}: {error}", remedy=remedy) from error
    return _Restored(version, done, later)


def _later(layout: CloudLayout, new: CloudLayout, wanted: _Wanted, *, url: str) -> LaterController:
    """Return what is left of the controller as it was last: by --later, else beside the folder, the newest."""
    if wanted.later_list is not None:
        return LaterController(revoked=check_list(wanted.later or Path(), wanted.later_list, new))
    entry = last_entry_of(url)
    if wanted.later is not None:
        last = CloudLayout(wanted.later)
        try:
            pem = read_list_file(last.crl)
        except OSError as error:
            raise _unreadable_later(last.crl, error) from error
        revoked = check_list(last.crl, pem, new)
        return later_of(last, revoked, restored_url=url, restored_entry=entry)
    beside = (later_of(*each, restored_url=url, restored_entry=entry) for each in folders_beside(layout.folder, new))
    return max(beside, key=LaterController.recency, default=LaterController())


def _withdrawn(new: CloudLayout, url: str, later: LaterController, wanted: _Wanted) -> tuple[Withdrawal, bool]:
    """Take away what was taken away, and write the list of the revoked: the broker may start before `serve`.

    Returns:
        What was taken away, and whether a box with an older agent is left: the broker has to let it send results.
    """
    store = ControllerStore.open(url, create=False)
    try:
        who = Author(operator(), time.time())
        done = withdraw(store, later, who, new=new, keep_api_tokens=wanted.keep_api_tokens)
        if later.revoked is not None:
            _take_over_list(new, later.revoked)
        if new.ca_key("boxes").exists():
            complete_crl(new, store, clock=time.time)
        with store.read() as tx:
            return done, bool(tx.conditions.without_one_result_topic())
    finally:
        store.close()


def _take_over_list(new: CloudLayout, revoked: RevokedList) -> None:
    """Write a later list of the revoked as it is: the authority's key, to sign one anew, may be elsewhere."""
    if revoked.number > check_list(new.crl, read_file(new.crl).encode(), new).number:
        write_file(new.crl, revoked.pem, private=False)


def _ask(wanted: _Wanted, lines: list[str]) -> None:
    """Show what comes back and what does not, and ask."""
    refused = CloudError("nobody has confirmed", remedy="pass --yes")
    if wanted.as_json:
        if not wanted.yes:
            raise refused
        return
    typer.echo("\n".join(lines))
    if wanted.yes:
        return
    try:
        is_confirmed = typer.confirm("restore it?")
    except typer.Abort:  # nobody can be asked
        raise refused from None
    if not is_confirmed:
        raise typer.Abort


def _unpack(sealed: SealedReader, new: CloudLayout) -> float:
    """Write the files of an archive, and return when its store was copied; links and names elsewhere are refused."""
    made_s = 0.0
    with tarfile.open(mode="r|gz", fileobj=cast("BinaryIO", sealed)) as tar:
        for one in tar:
            name = PurePosixPath(one.name)
            if name.is_absolute() or ".." in name.parts or not (one.isdir() or one.isreg()):
                raise CloudError(f"it has {one.name!r}, which no backup has", remedy="take another backup")
            path = new.folder / name
            if path in {new.database, new.database_dump}:
                made_s = float(one.mtime)
            (path if one.isdir() else path.parent).mkdir(mode=0o700, parents=True, exist_ok=True)
            if content := tar.extractfile(one):
                _write_synced(path, content, mode=one.mode & 0o644)
    sealed.drain()
    return made_s


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


@contextmanager
def _brought_back(new: CloudLayout, config: CloudConfig) -> Iterator[tuple[str, int]]:
    """Yield the URL of the store with tables of this version, and the version that they had.

    After an error a database of PostgreSQL has no tables again; a file goes with its folder.
    """
    url = store_url(new, config.database)
    if not config.database.url:
        yield url, _migrated(url)
        return
    with restored_dump(new.database_dump, url):
        new.database_dump.unlink()
        yield url, _migrated(url)


def _migrated(url: str) -> int:
    version = tables_version(url)
    if version is None:
        raise CloudError("its store has no tables", remedy="take another backup")
    if version != newest():
        after = {"version": newest()}
        migrate_tables(url, lambda had: store_entry(AuditKind.STORE_MIGRATED, {"version": had}, after))
    return version
