"""The passphrase of a backup: from a file that nobody else reads, or typed; never from the command line."""

import os
import stat
import sys
from pathlib import Path
from typing import Annotated

import typer

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.ownership import open_regular

_LEAST = 12
_OTHERS = stat.S_IRWXG | stat.S_IRWXO

PassphraseOption = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        help="The file with the passphrase in its first line, readable for you alone  [default: asks for it]",
    ),
]


def read_passphrase(file: Path | None, *, new: bool) -> str:
    """Return the passphrase in a file, or the one that is typed at the terminal.

    Call it before root is given up: the file is the caller's.

    Args:
        file: its first line counts; None: ask.
        new: it seals a new backup: it has to be long enough, and is asked for twice.

    Raises:
        CloudError: the file cannot be read, or others can read it; there is nobody to ask; it is too short.
    """
    found = _asked(new=new) if file is None else _first_line(file)
    if new and len(found) < _LEAST:
        remedy = "take several words, or the output of: openssl rand -base64 24"
        raise CloudError(f"cannot use this passphrase: it has fewer than {_LEAST} characters", remedy=remedy)
    return found


def _asked(*, new: bool) -> str:
    if not sys.stdin.isatty():
        remedy = "write it into a file (chmod 600) and name that: --passphrase-file FILE"
        raise CloudError("cannot ask for the passphrase: the input is no terminal", remedy=remedy)
    return str(typer.prompt("Passphrase of the backup", hide_input=True, confirmation_prompt=new, err=True))


def _first_line(path: Path) -> str:
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), encoding="utf-8") as file:
            others = os.fstat(file.fileno()).st_mode & _OTHERS
            found = file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        remedy = "name a file that you may read, with the passphrase in its first line"
        raise CloudError(f"cannot read the passphrase in {path}: {error}", remedy=remedy) from error
    if others:
        raise CloudError(
            f"cannot use {path}: others may read it", remedy=f"chmod 600 {path}, and take a new passphrase"
        )
    if not found:
        raise CloudError(f"cannot use {path}: its first line is empty", remedy="write the passphrase there")
    return found
