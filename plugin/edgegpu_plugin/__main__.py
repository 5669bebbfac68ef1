"""The command edgegpu-plugin: reads its configuration, runs the process, and says in one line what ended it."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edgegpu_core.model import ModelError
from edgegpu_plugin import memory
from edgegpu_plugin.app import App, version
from edgegpu_plugin.config import DEFAULT_PATH, load
from edgegpu_plugin.errors import ConfigError, PluginError
from edgegpu_plugin.extender import ExtenderError
from edgegpu_plugin.kube import KubeconfigError

_LOG = logging.getLogger("edgegpu_plugin")

EXIT_FAILED = 1
EXIT_CONFIG = 2

_EPILOG = """\
exit status: 0 stopped by a signal, 1 something failed while it ran, 2 the configuration cannot be used.
`edgegpu config check FILE` says what is wrong with a configuration; `edgegpu status` what this process is doing.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="edgegpu-plugin",
        description="Shares this node's NVIDIA cards: device plugins, placement, and the scheduler's extender.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, default=DEFAULT_PATH, help="configuration file (default: %(default)s)")
    parser.add_argument("--version", action="version", version=f"edgegpu-plugin {version()}")
    path: Path = parser.parse_args(argv).config
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    try:
        config = load(path)
    except ConfigError as error:
        for problem in error.problems:
            sys.stderr.write(f"edgegpu-plugin: {problem}\n")
        return EXIT_CONFIG
    logging.basicConfig(stream=sys.stderr, force=True, format=_format(), level=config.log_level.upper())
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    memory.few_arenas()
    try:
        App(config).run()
    except (ModelError, KubeconfigError) as error:
        sys.stderr.write(f"edgegpu-plugin: {error}\n")
        return EXIT_CONFIG
    except (PluginError, ExtenderError) as error:
        sys.stderr.write(f"edgegpu-plugin: {error}\n")
        return EXIT_FAILED
    except Exception:  # noqa: BLE001  (the process's border: what nobody foresaw belongs in the log, whole)
        _LOG.exception("edgegpu-plugin failed for a reason that it does not know")
        return EXIT_FAILED
    return 0


def _format() -> str:
    """Under systemd the journal has the time already."""
    text = "%(levelname)s %(threadName)s %(name)s: %(message)s"
    return text if "JOURNAL_STREAM" in os.environ else f"%(asctime)s {text}"


if __name__ == "__main__":
    sys.exit(main())
