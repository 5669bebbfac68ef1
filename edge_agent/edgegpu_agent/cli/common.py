"""The common parts of the commands: options, output, and errors."""

import errno
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from edgegpu_base.cli.commandline import is_output_fault
from edgegpu_base.cli.output import dumped
from edgegpu_installer.errors import InstallError


class CliError(Exception):
    """An error that ends a command; the text reads "cannot x: cause"."""

    def __init__(self, text: str, *, remedy: str = "", more: dict[str, object] | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.remedy = remedy
        self.more = more or {}
        """Further keys of the document that `--json` prints."""

    def document(self) -> dict[str, object]:
        """Return what `--json` prints: `error`, `remedy` and the keys that the command adds."""
        return {"error": self.text, "remedy": self.remedy, **self.more}


EXIT_WRONG = 1
_SECRET = ("--token", "--join", "--cloud-proxy")

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Show it again every 2 seconds, in a pipe when it changed, until ctrl-C.")
]
SocketOption = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        metavar="PATH",
        help="The plugin's Unix socket  [default: plugin.sock in the configuration's paths.run, "
        "so /run/edgegpu/plugin.sock]",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Read paths.run from this configuration instead of the box's own."),
]


def print_json(value: object) -> None:
    """Print a document as JSON, or in the format of `-o`."""
    typer.echo(dumped(value))


def sayer(*, as_json: bool, indent: str = "") -> Callable[[str], None]:
    """Return a function that prints a line of progress at once, on stderr where stdout is for the document."""

    def say(line: str) -> None:
        typer.echo(f"{indent}{line}", err=as_json)
        (sys.stderr if as_json else sys.stdout).flush()

    return say


def need_root(what: str, *, root: Path = Path("/")) -> None:
    """Check before a command begins that this process runs as root.

    Args:
        what: what the command could not do, as in "cannot show the journal".
        root: the folder below which the command works; only `/` needs root.

    Raises:
        CliError: this process does not run as root.
    """
    if root == Path("/") and os.geteuid() != 0:
        raise CliError(f"{what}: this needs root", remedy=with_sudo())


def with_sudo() -> str:
    """Return this command with sudo before it; without its words where one may be a secret."""
    words = sys.argv[1:]
    if Path(sys.argv[0]).name != "edgegpu" or any(word.startswith(_SECRET) for word in words):
        return "run it again as root, with sudo"
    return f"sudo edgegpu {shlex.join(words)}"


def _of_the_box(error: OSError) -> CliError:
    """Return the error for a fault of the box, not of edgegpu, with its remedy."""
    where = f": {error.filename}" if error.filename else ""
    remedies = {
        errno.EACCES: with_sudo(),
        errno.EPERM: with_sudo(),
        errno.ENOSPC: "make room on that file system: df -h",
        errno.EDQUOT: "make room within the quota: df -h",
        errno.EROFS: "sudo mount -o remount,rw the file system; dmesg says whether the disk failed",
    }
    text = f"cannot go on: {error.strerror or error}{where}"
    return CliError(text, remedy=remedies.get(error.errno or 0, "EDGEGPU_DEBUG=1 before the command shows where"))


@contextmanager
def reporting(*, as_json: bool, status: int = EXIT_WRONG) -> Iterator[None]:
    """Run a command's body; print an error as a sentence, or as JSON on stdout, and exit with `status`."""
    try:
        yield
    except CliError as error:
        _say_error(error, as_json=as_json)
        raise typer.Exit(status) from error
    except InstallError as error:
        _say_error(CliError(error.message, remedy=error.remedy, more={"code": error.code}), as_json=as_json)
        raise typer.Exit(status) from error
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except Exception as error:
        if is_output_fault(error):
            raise
        if os.environ.get("EDGEGPU_DEBUG"):
            traceback.print_exc()
        if isinstance(error, OSError):
            said = _of_the_box(error)
        else:
            remedy = "this is a fault of edgegpu: run it again with EDGEGPU_DEBUG=1 and report what it prints"
            said = CliError(f"cannot go on: {type(error).__name__}: {error}", remedy=remedy)
        _say_error(said, as_json=as_json)
        raise typer.Exit(status) from error


def _say_error(error: CliError, *, as_json: bool) -> None:
    if as_json:
        print_json(error.document())
        return
    typer.echo(f"edgegpu: {error.text}", err=True)
    if error.remedy:
        typer.echo(f"  {error.remedy}", err=True)
