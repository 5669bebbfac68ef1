"""`edgegpu-cloud migrate`: brings the tables of the store to this program's version, after a copy of them."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from edgegpu_base.files import sync_folder
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    answer,
    check_database,
    refuse_server,
    reporting,
    say,
    store_entry,
)
from edgegpu_cloud.controller.status import check_stopped
from edgegpu_cloud.enrolment.key_files import read_file, write_file
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.layout import CloudConfig, CloudLayout, load, store_url, with_database
from edgegpu_cloud.ownership import become_owner
from edgegpu_cloud.store.backup import copy_store
from edgegpu_cloud.store.controllers.running import running_controllers
from edgegpu_cloud.store.migrations import load_revisions, newest
from edgegpu_cloud.store.move import move_store
from edgegpu_cloud.store.store import audit_store, migrate_tables, tables_version

HELP = """\
Bring the tables of the store to the version of this program, in one transaction: all of it or nothing.

Run it after an upgrade of edgegpu-cloud. Stop `serve` before, on each machine that uses the store. One of the new
version that was started already waits for this; one of the old version that was overlooked ends by itself.

First the store is copied: a SQLite file beside itself, a PostgreSQL by `pg_dump` into the controller's folder. The copy
has a time in its name and holds the whole store; it is yours to remove.

--to moves a store that is a SQLite file into an empty PostgreSQL: in batches, in one transaction, compared row by row
before the commit. Then controller.yaml names that database. The SQLite file is left as it was.

\b
Examples:
  edgegpu-cloud migrate
  edgegpu-cloud migrate --no-backup     # there is a copy already, or no pg_dump here
  edgegpu-cloud migrate --to postgresql://edgegpu@db.example.com/edgegpu --database-password-file FILE

\b
--json prints {"from", "to", "backup": PATH or ""}; `from` and `to` are equal where there was nothing to do. With --to
it prints {"database": PLACE, "rows": {TABLE: N}, "kept": PATH}
"""

ToOption = Annotated[
    str, typer.Option("--to", metavar="URL", help="Move the store there: postgresql://USER@HOST/DATABASE, empty.")
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option("--database-password-file", metavar="FILE", help="The file with its password, in the first line."),
]
BackupOption = Annotated[bool, typer.Option("--backup/--no-backup", help="Copy the store first.")]


@dataclass(frozen=True, slots=True)
class MigrationDone:
    """What `migrate` has done: the versions of the tables before and after, and the path of the copy."""

    before: int
    after: int
    backup: str = ""


def migrate(
    *,
    folder: FolderOption = DEFAULT,
    backup: BackupOption = True,
    to: ToOption = "",
    database_password_file: PasswordFileOption = None,
    json: JsonOption = False,
) -> None:
    """Bring the tables of the store to the version of this program, or move them into a PostgreSQL."""
    with reporting(as_json=json):
        refuse_server()
        load_revisions()
        become_owner(folder)
        layout = CloudLayout(folder.absolute())
        config = load(layout.config)
        if to:
            password = str(database_password_file.absolute()) if database_password_file else ""
            _move(layout, config, _config_of(config, to, password), as_json=json)
            return
        done = _migrate(layout, config, backup=backup)
        document = {"from": done.before, "to": done.after, "backup": done.backup}
        answer(document, _text(done), as_json=json)


def _migrate(layout: CloudLayout, config: CloudConfig, *, backup: bool) -> MigrationDone:
    check_database(layout, config)
    url, ours = store_url(layout, config.database), newest()
    found = tables_version(url)
    if found is None:
        remedy = "restore a backup: docs/cloud/backup.md says how"
        raise CloudError("cannot migrate the store: it has no tables", remedy=remedy)
    if found == ours:
        return MigrationDone(found, ours)
    check_stopped(layout)
    if config.database.url:
        _check_alone(url)
    copy = ""
    if backup:
        copy = str(_copy(layout, config, url))
    migrate_tables(url, lambda had: store_entry(AuditKind.STORE_MIGRATED, {"version": had}, {"version": ours}))
    return MigrationDone(found, ours, copy)


def _check_alone(url: str) -> None:
    """Refuse while controllers on other machines work with the database."""
    say("edgegpu-cloud: looks whether controllers of other machines run, some seconds")
    if running := running_controllers(url):
        text = f"cannot migrate the store: {', '.join(running)} works with it"
        raise CloudError(text, remedy="stop it there (systemctl stop edgegpu-cloud), migrate, and start it again")


def _config_of(config: CloudConfig, url: str, password_file: str) -> CloudConfig:
    try:
        database = {"url": url, "password_file": password_file}
        return CloudConfig.model_validate({**config.model_dump(), "database": database})
    except ValidationError as error:
        text = error.errors(include_url=False, include_context=False)[0]["msg"].removeprefix("Value error, ")
        raise typer.BadParameter(text, param_hint="--to") from error


def _move(layout: CloudLayout, config: CloudConfig, new: CloudConfig, *, as_json: bool) -> None:
    """Copy the rows first, and name the database in controller.yaml when they are there."""
    if config.database.url:
        remedy = "PostgreSQL's own tools bring it into another one: pg_dump, pg_restore"
        raise CloudError("cannot move the store: it is in a PostgreSQL already", remedy=remedy)
    check_database(layout, config)
    check_stopped(layout)
    url = store_url(layout, new.database)
    moved = move_store(store_url(layout, config.database), url)
    write_file(layout.config, with_database(read_file(layout.config), new))
    # Not before: a move that was cut off is known by rows that are the same in both.
    entry = store_entry(AuditKind.STORE_MIGRATED, {"database": str(layout.database)}, {"database": moved.place})
    audit_store(url, entry)
    text = (
        f"moved the store into {moved.place}: {sum(moved.rows.values())} rows of {len(moved.rows)} tables, compared\n"
        f"  {layout.config} names it; start `serve`\n"
        f"  the old store is as it was, and no longer used: {layout.database}"
    )
    answer({"database": moved.place, "rows": moved.rows, "kept": str(layout.database)}, text, as_json=as_json)


def _copy(layout: CloudLayout, config: CloudConfig, url: str) -> Path:
    of = layout.database_dump if config.database.url else layout.database
    for left in layout.folder.glob(f".{of.stem}-*.unfinished"):  # by a migration that was killed
        left.unlink()
    target = of.with_name(f"{of.stem}-{time.strftime('%Y%m%d-%H%M%S')}{of.suffix}")
    unfinished = target.with_name(f".{target.name}.unfinished")  # whoever finds the target's name has a whole copy
    try:
        copy_store(url, unfinished)
        unfinished.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise CloudError(f"cannot copy the store to {target}: {error}", remedy="make room there") from error
    except CloudError as error:
        remedy = f"{error.remedy}; or copy the store yourself, then `edgegpu-cloud migrate --no-backup`"
        raise CloudError(f"cannot migrate the store: {error.text}", remedy=remedy) from error
    return target


def _text(done: MigrationDone) -> str:
    if done.before == done.after:
        return f"nothing to do: the tables have version {done.after}"
    lines = [f"migrated the tables from version {done.before} to {done.after}"]
    if done.backup:
        lines.append(f"  the store as it was: {done.backup}")
    return "\n".join(lines)
