"""`edgegpu-cloud keys`: the sets of keys that boxes obey, signed by the root key, here or where it is kept offline."""

import sys
import time
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ValidationError

from edgegpu_base.cli.helptext import command_group, put
from edgegpu_base.x509 import key_pem
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    answer,
    opened,
    operator,
    print_json,
    print_table,
    refuse_server,
    reporting,
    say,
)
from edgegpu_cloud.cli.local_cloud import LocalCloud
from edgegpu_cloud.enrolment.key_files import load_signing_key, write_file
from edgegpu_cloud.enrolment.key_sets import SigningRequest, add, chain_of, prepare, read_set, ring_of, sign
from edgegpu_cloud.errors import CloudError
from edgegpu_sync.faults import first_fault
from edgegpu_sync.keys import KeySet, key_id, public_text
from edgegpu_sync.messages.downlink import KeySetLink
from edgegpu_sync.wire import from_base64

app = command_group("The keys that boxes obey: show, rotate, and sign with a root key that is kept offline.")

ROTATE_HELP = """\
Make a new signing key and have the root sign a set with it. Boxes follow it when they are back, however long they were
away. `edgegpu-cloud serve` notices within a second: it tells the boxes that are there, then signs with the new key.

The set holds the old key too, so that nothing is refused meanwhile. --drop-old leaves it out: do that when it may be
known to others. --root names the root key's file where it is not in the folder any more.

\b
--json prints {"version", "keys": [ID], "signing_key": ID}
"""
REQUEST_HELP = """\
Print what has to be signed where the root key is; carry it there, then `keys sign`, then `keys add` here.

\b
The steps, here on the controller and there where the root key is:
  here:   edgegpu-cloud keys request --rotate > request.json
  there:  edgegpu-cloud keys sign --root root.key < request.json > signed.json
  here:   edgegpu-cloud keys add signed.json
"""
SIGN_HELP = "Sign a request (standard input) with the root key; needs no controller, no network. Prints the signed set."
ADD_HELP = """\
Take a set that the root has signed: FILE is what `keys sign` printed, - is standard input.

\b
--json prints {"version", "keys": [ID], "signing_key": ID}
"""
MAKE_ROOT_HELP = """\
Make a root key in FILE, on a machine that is kept offline; prints its public half, for `init --root`.

\b
--json prints {"file": PATH, "public"}
"""
SHOW_HELP = """\
Show the sets that there are, and which key this controller signs with.

\b
--json prints {"root", "root_key_here": BOOL, "signing_key": ID, "in_effect": BOOL, "sets": [{"version", "keys",
"link": {"set", "sig"}}]}; a link in a file of its own is what `keys add` takes
"""

T = TypeVar("T", bound=BaseModel)

RootOption = Annotated[
    Path | None, typer.Option("--root", metavar="FILE", help="The root key  [default: keys/root.key in the folder]")
]
NextRootOption = Annotated[
    str, typer.Option("--next-root", metavar="PUBLIC", help="The public root key that signs the set after this one.")
]
RotateOption = Annotated[bool, typer.Option("--rotate", help="With a new signing key.")]
DropOption = Annotated[bool, typer.Option("--drop-old", help="Boxes refuse what the old key signs from then on.")]


def show(*, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Show the sets that there are."""
    with reporting(as_json=json), opened(folder) as cloud:
        chain = chain_of(cloud.store)
        ring = ring_of(cloud.layout, chain)
        mine = key_id(public_text(load_signing_key(cloud.layout.signing_key)))
        sets = [read_set(link) for link in chain]
        answer = {
            "root": ring.root,
            "root_key_here": cloud.layout.root_key.exists(),
            "signing_key": mine,
            "in_effect": ring.public(mine) is not None,
            "sets": [
                {
                    "version": one.version,
                    "keys": [key_id(key.public) for key in one.keys],
                    "link": link.model_dump(mode="json"),
                }
                for one, link in zip(sets, chain, strict=True)
            ],
        }
        if json:
            print_json(answer)
            return
        typer.echo(f"root {ring.root}{', whose private half lies here' if answer['root_key_here'] else ''}")
        typer.echo(f"this controller signs with {mine}")
        if not answer["in_effect"]:
            typer.echo("no box obeys that key: sign a set with it (edgegpu-cloud keys request --help)")
        print_table(
            ("SET", "KEYS"), [(str(one.version), ", ".join(key_id(key.public) for key in one.keys)) for one in sets]
        )


def rotate(
    *,
    folder: FolderOption = DEFAULT,
    root: RootOption = None,
    next_root: NextRootOption = "",
    drop_old: DropOption = False,
    json: JsonOption = False,
) -> None:
    """Make a new signing key and have the root sign a set with it."""
    if next_root:
        check_public(next_root, option="--next-root")
    with reporting(as_json=json):
        refuse_server()
        given = _root_key(root) if root else None  # before root is given up: root may read it, the owner may not
        with opened(folder) as cloud:
            key = given or _root_key(cloud.layout.root_key)
            link = sign(prepare(cloud.layout, cloud.store, rotate=True, drop_old=drop_old), key, next_root=next_root)
            _tell_added(cloud, _add(cloud, link), as_json=json)


def _root_key(path: Path) -> Ed25519PrivateKey:
    if not path.exists():
        remedy = "name its file with --root, or go the way of `edgegpu-cloud keys request --rotate`"
        raise CloudError(f"cannot sign a set: there is no root key in {path}", remedy=remedy)
    return load_signing_key(path)


def request(*, folder: FolderOption = DEFAULT, new: RotateOption = False, drop_old: DropOption = False) -> None:
    """Print what has to be signed where the root key is."""
    with reporting(as_json=False), opened(folder) as cloud:
        asked = prepare(cloud.layout, cloud.store, rotate=new, drop_old=drop_old)
        typer.echo(asked.model_dump_json(indent=2))


def sign_(
    *,
    root: Annotated[Path, typer.Option("--root", metavar="FILE", help="The root key.")],
    next_root: NextRootOption = "",
) -> None:
    """Sign a request with the root key."""
    if next_root:
        check_public(next_root, option="--next-root")
    with reporting(as_json=False):
        refuse_server()
        asked = _read(SigningRequest, sys.stdin.read(), "standard input")
        signed = sign(asked, load_signing_key(root), next_root=next_root)
        say(f"set {read_set(signed).version} with {', '.join(key_id(public) for public in asked.keys)}")
        typer.echo(signed.model_dump_json(indent=2))


def add_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="- is standard input.")],
    *,
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Take a set that the root has signed."""
    with reporting(as_json=json):
        refuse_server()
        try:
            text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            remedy = "name the file into which `keys sign` has printed, or - for standard input"
            raise CloudError(f"cannot read {file}: {error}", remedy=remedy) from error
        with opened(folder) as cloud:
            _tell_added(cloud, _add(cloud, _read(KeySetLink, text, file)), as_json=json)


def make_root(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")], *, json: JsonOption = False
) -> None:
    """Make a root key in FILE."""
    with reporting(as_json=json):
        refuse_server()
        if file.exists():
            raise CloudError(f"cannot make a root key in {file}: it exists already", remedy="name another file")
        key = Ed25519PrivateKey.generate()
        write_file(file, key_pem(key))
        if not json:
            say(f"keep {file} offline, and a copy of it elsewhere: without it no key can be changed. Its public half:")
        answer({"file": str(file), "public": public_text(key)}, public_text(key), as_json=json)


def _add(cloud: LocalCloud, link: KeySetLink) -> KeySet:
    return add(cloud.layout, cloud.store, link, by=operator(), now_s=time.time())


def _tell_added(cloud: LocalCloud, new: KeySet, *, as_json: bool) -> None:
    mine = key_id(public_text(load_signing_key(cloud.layout.signing_key)))
    keys = [key_id(key.public) for key in new.keys]
    if as_json:
        print_json({"version": new.version, "keys": keys, "signing_key": mine})
        return
    typer.echo(f"key set {new.version} is in effect: {', '.join(keys)}")
    typer.echo(f"edgegpu-cloud serve signs with {mine} from now on")
    typer.echo("take a backup now: a controller that is restored from an older one cannot change keys any more")


def _read(model: type[T], text: str, where: str) -> T:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        remedy = "name the file with the output of the step before"
        raise CloudError(f"cannot read {where}: {first_fault(error)}", remedy=remedy) from error


_KEY_BYTES = 32


def check_public(text: str, *, option: str) -> None:
    """Refuse a text that is no public key.

    Raises:
        typer.BadParameter: it is none.
    """
    try:
        good = len(from_base64(text)) == _KEY_BYTES
    except ValueError:
        good = False
    if not good:
        raise typer.BadParameter("not the 43 characters that `keys make-root` prints", param_hint=option)


put(app, "show", show, SHOW_HELP, "Show the sets that there are.")
put(app, "rotate", rotate, ROTATE_HELP, "Make a new signing key.")
put(app, "request", request, REQUEST_HELP, "Print what the root has to sign.")
put(app, "sign", sign_, SIGN_HELP, "Sign a request with the root key.")
put(app, "add", add_, ADD_HELP, "Take a set that the root has signed.")
put(app, "make-root", make_root, MAKE_ROOT_HELP, "Make a root key on a machine that is kept offline.")
