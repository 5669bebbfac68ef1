"""The process from its command line to its exit status, with one line in the log that says what ended it."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.kube import KubeconfigError
from edgegpu_base.process import memory
from edgegpu_base.process.tasks import TaskGroup
from edgegpu_core.model import ModelError
from edgegpu_plugin.app import PluginApp, version
from edgegpu_plugin.config.schema import DEFAULT_PATH, PluginConfig, load
from edgegpu_plugin.errors import ConfigError
from edgegpu_plugin.extender.server import CertificateError, ExtenderError

_LOG = logging.getLogger("edgegpu_plugin")

SWITCH_S = 0.0005
"""How long a thread may keep the interpreter: kubelet's calls shall not wait for Python's usual 5 ms."""

EXIT_FAILED = 1
EXIT_CONFIG = 2

_EPILOG = """\
exit status: 0 stopped by a signal, 1 something failed while it ran, 2 the configuration cannot be used.
`edgegpu config check FILE` says what is wrong with a configuration; `edgegpu status` what this process is doing.
"""


def run(argv: Sequence[str] | None, group: TaskGroup) -> int:
    """Run the process until its task group is asked to end; return the exit status, or exit with it once tasks ran."""
    chosen = _parser().parse_args(argv)
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    try:
        config = load(chosen.config)
    except ConfigError as error:
        for problem in error.problems:
            sys.stderr.write(f"edgegpu-plugin: {problem}\n")
        return EXIT_CONFIG
    logging.basicConfig(stream=sys.stderr, force=True, format=_format(), level=config.log_level.upper())
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    memory.few_arenas()
    sys.setswitchinterval(SWITCH_S)
    status = _serve(config, group, chosen.proc)
    logging.shutdown()
    os._exit(status)  # a call that hangs in a driver, or a waiting call of kubelet, must not delay the exit


def _serve(config: PluginConfig, group: TaskGroup, proc: Path) -> int:
    try:
        if not group.ended:
            PluginApp(config, group, proc=proc).run()
    except (ModelError, KubeconfigError, CertificateError) as error:
        sys.stderr.write(f"edgegpu-plugin: {error}\n")
        return EXIT_CONFIG
    except (EdgegpuError, ExtenderError) as error:
        sys.stderr.write(f"edgegpu-plugin: {error}\n")
        return EXIT_FAILED
    except Exception:  # noqa: BLE001  (the process's border: an unforeseen error is logged with its traceback)
        _LOG.exception("edgegpu-plugin failed for a reason that it does not know")
        return EXIT_FAILED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="edgegpu-plugin",
        description="Shares this node's NVIDIA cards: device plugins, placement, and the scheduler's extender.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, default=DEFAULT_PATH, help="configuration file (default: %(default)s)")
    parser.add_argument(
        "--proc",
        type=Path,
        default=Path("/proc"),
        help="where containers' processes are looked up; another folder is for simulated boxes (default: %(default)s)",
    )
    parser.add_argument("--version", action="version", version=f"edgegpu-plugin {version()}")
    return parser


def _format() -> str:
    """Return the log format: without the time under systemd, whose journal has it."""
    text = "%(levelname)s %(threadName)s %(name)s: %(message)s"
    return text if "JOURNAL_STREAM" in os.environ else f"%(asctime)s {text}"
