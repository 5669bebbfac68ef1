"""Start and exit of every command line: full or closed output, ctrl-C, arguments that are no UTF-8; few imports."""

import errno
import os
import sys
from collections.abc import Callable

_OUTPUT_FAULTS = frozenset({errno.ENOSPC, errno.EBADF, errno.EIO, errno.EDQUOT})
_FAILED, _USAGE, _INTERRUPTED = 1, 2, 130
_STREAMS = 3


def run(name: str, load: Callable[[], Callable[..., object]]) -> None:
    """Run one command and exit with its status.

    Args:
        name: the program's name.
        load: imports the commands, which takes a second on a slow box, so that ctrl-C may come before it ends.
    """
    try:
        _open_streams()
        _check_words(name, sys.argv[1:])
        try:
            load()(prog_name=name)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:  # `edgegpu pods | head`: the reader has closed the pipe
        _drop_output()
        sys.exit(_FAILED)
    except OSError as error:
        _drop_output()
        sys.exit(f"{name}: cannot write its answer: {error}\n  the command itself may have been done")


def installed_version() -> str:
    """Return the version of the package that this command belongs to."""
    from importlib import metadata  # noqa: PLC0415  (not for `--help` and completion)

    try:
        return metadata.version("edgegpu")
    except metadata.PackageNotFoundError:  # run from a source folder
        return "unknown"


def is_output_fault(error: BaseException) -> bool:
    """Return whether standard output is full or missing: nothing can be written to it, and `run` ends the command."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_FAULTS


def _open_streams() -> None:
    """Open /dev/null for each closed standard stream: otherwise a file of ours would get its number."""
    for number in range(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


def _check_words(name: str, words: list[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            sys.stderr.write(f"{name}: an argument is no UTF-8: {word!a}\n")
            sys.exit(_USAGE)


def _drop_output() -> None:
    """Discard buffered output, since its write at the end of the process would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
