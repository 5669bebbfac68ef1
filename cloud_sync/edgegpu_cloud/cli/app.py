"""The command line `edgegpu-cloud`: what begins and ends all commands the same way; light, so that ctrl-C finds it."""

import os
import sys

_FAILED, _USAGE, _INTERRUPTED = 1, 2, 130
_STREAMS = 3


def main() -> None:
    """Run one command and exit with its status."""
    try:
        _open_streams()
        _check_words(sys.argv[1:])
        from edgegpu_cloud.cli.tree import app  # noqa: PLC0415  (slow to load)

        try:
            app(prog_name="edgegpu-cloud")
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:  # `edgegpu-cloud boxes | head`: the reader has seen enough
        _drop_output()
        sys.exit(_FAILED)
    except OSError as error:
        _drop_output()
        sys.exit(f"edgegpu-cloud: cannot write its answer: {error}\n  the command itself may have been done")


def _open_streams() -> None:
    """See that what was closed is /dev/null: else a file of ours would be taken for standard output."""
    for number in range(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


def _check_words(words: list[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            print(f"edgegpu-cloud: an argument is no UTF-8: {word!a}", file=sys.stderr)
            sys.exit(_USAGE)


def _drop_output() -> None:
    """Let nothing be written at the end of the process, which would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    main()
