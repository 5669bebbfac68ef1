"""The command line `edgegpu-cloud`; it loads little, so that ctrl-C works from the start."""

from collections.abc import Callable

from edgegpu_base.cli.commandline import run


def main() -> None:
    """Run one command and exit with its status."""
    run("edgegpu-cloud", _commands)


def _commands() -> Callable[..., object]:
    from edgegpu_cloud.cli.tree import app  # noqa: PLC0415  (slow to load)

    return app


if __name__ == "__main__":
    main()
