"""`edgegpu-cloud controllers`: those that share the boxes of this store, and the folder for a further one."""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from edgegpu_base.cli.helptext import command_group, put
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    ago,
    opened,
    operator,
    print_json,
    print_table,
    reporting,
)
from edgegpu_cloud.controller.status import runs
from edgegpu_cloud.enrolment.further import make_further
from edgegpu_cloud.enrolment.key_files import load_signing_key, write_file
from edgegpu_cloud.enrolment.key_sets import add, request_with, sign
from edgegpu_cloud.fleet.audit.entries import AuditedChange, Author, audit
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.layout import CloudConfig, CloudLayout

app = command_group("The controllers that share the boxes of one PostgreSQL: show them, add one.")

LIST_HELP = """\
Show the controllers that share the boxes of this store, and how many of the 64 partitions of boxes each holds.

A controller that died stays in the list for a week; its partitions go to the others within 15 s. A controller renews
its certificate by itself when a third of its life is left: a further one asks `serve` where the authorities are.

\b
--json prints {"controllers": [{"name", "host", "partitions": N, "seen_at": SECONDS, "certificate_ends_at": SECONDS
or null}], "unheld": N}
"""
ADD_HELP = """\
Make the folder of a further controller, in FOLDER; carry it to that machine, as /var/lib/edgegpu-cloud there.

It has a certificate and a signing key of its own. A new key set with that key is signed by the root key: by the one
in this folder, or by --root. Without either the request is written into FOLDER/request.json: sign it where the root
key is (`keys sign`), then `keys add` it here.

\b
Example, on this machine and then on the other one:
  edgegpu-cloud controllers add 2 --out /var/lib/edgegpu-cloud/controller-2
  edgegpu-cloud serve --no-https --no-console

\b
--json prints {"name", "folder": PATH, "signed": BOOL}
"""

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="a-z, 0-9 and -, as no other controller is called.")]
OutOption = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="An empty folder, or a new one.")]
RootOption = Annotated[
    Path | None, typer.Option("--root", metavar="FILE", help="The root key  [default: keys/root.key in the folder]")
]


def list_(*, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Show the controllers that share the boxes of this store."""
    with reporting(as_json=json), opened(folder) as cloud:
        with cloud.store.read() as tx:
            beats, leases, ends = tx.leases.controllers(), tx.leases.all(), tx.controller_certificates.ends()
        held = Counter(one.holder for one in leases)
        now_s = time.time()
        seen = {one.name: one.seen_at_s for one in beats}
        if not cloud.config.database.url and runs(cloud.layout):  # it shares the store with nobody, and renews nothing
            seen[cloud.config.controller_name] = now_s
        if json:
            rows = [
                {
                    "name": one.name,
                    "host": one.host,
                    "partitions": held[one.name],
                    "seen_at": int(seen[one.name]),
                    "certificate_ends_at": int(ends[one.name]) if one.name in ends else None,
                }
                for one in beats
            ]
            print_json({"controllers": rows, "unheld": held[""]})
            return
        table = [
            (one.name, one.host, str(held[one.name]), ago(seen[one.name], now_s), _end(ends.get(one.name)))
            for one in beats
        ]
        print_table(("CONTROLLER", "HOST", "PARTITIONS", "SEEN", "CERTIFICATE ENDS"), table)


def _end(at_s: float | None) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at_s)) if at_s else "-"


def add_(
    name: NameArgument,
    *,
    out: OutOption,
    root: RootOption = None,
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Make the folder of a further controller."""
    with reporting(as_json=json):
        given = load_signing_key(root) if root else None  # before root is given up: the owner may not read it
        target = out.absolute()
        with opened(folder) as cloud:
            public = _made(cloud.layout, cloud.config, name, target)
            asked = request_with(cloud.layout, cloud.store, public)
            here = cloud.layout.root_key
            key = given or (load_signing_key(here) if here.exists() else None)
            if key is not None:
                add(cloud.layout, cloud.store, sign(asked, key), by=operator(), now_s=time.time())
            else:
                write_file(target / "request.json", asked.model_dump_json(indent=2) + "\n", private=False)
            with cloud.store.write() as tx:
                added = AuditedChange({}, {"name": name})
                audit(tx, Author(operator(), time.time()), AuditKind.CONTROLLER_ADDED, added)
        _tell(name, target, signed=key is not None, as_json=json)


def _made(layout: CloudLayout, config: CloudConfig, name: str, target: Path) -> str:
    try:
        return make_further(layout, config, name, target, now_s=time.time())
    except ValidationError as error:
        raise typer.BadParameter("1 to 40 of a-z, 0-9 and -", param_hint="NAME") from error


def _tell(name: str, target: Path, *, signed: bool, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "folder": str(target), "signed": signed})
        return
    typer.echo(f"made the folder of controller {name} in {target}; it holds private keys")
    if not signed:
        typer.echo(f"boxes do not obey it yet: sign {target / 'request.json'} where the root key is (keys sign), then")
        typer.echo("  edgegpu-cloud keys add SIGNED")
    typer.echo("carry it to the machine of that controller, as /var/lib/edgegpu-cloud, and start it there:")
    typer.echo("  edgegpu-cloud serve --no-https")


put(app, "list", list_, LIST_HELP, "Show the controllers of this store.")
put(app, "add", add_, ADD_HELP, "Make the folder of a further controller.")
