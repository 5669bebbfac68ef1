"""The process edgegpu-agent, from its command line to its exit status."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edgegpu_agent.app import AgentApp, AgentOptions
from edgegpu_base.process import memory
from edgegpu_base.process.tasks import TaskGroup

_LOG = logging.getLogger("edgegpu_agent")

EXIT_FAILED = 1

_EPILOG = """\
exit status: 0 stopped by a signal, or to start anew with another configuration, 1 something failed while it ran.
/etc/edgegpu/agent.yaml names the cloud that this box belongs to; without it there is no link. `edgegpu agent status`
says how the link is, `edgegpu doctor` what is wrong with this machine, `edgegpu transaction show` what the last change
of it came to.
"""


def run(argv: Sequence[str] | None, group: TaskGroup) -> int:
    """Run the process until the task group is asked to end; return its exit status."""
    chosen = _parser().parse_args(argv)
    logging.basicConfig(stream=sys.stdout, format=_format(), level=chosen.log_level.upper())
    memory.few_arenas()
    options = AgentOptions(
        root=chosen.root,
        command=(*_outside_cgroup(chosen.root), chosen.edgegpu, "transaction", "resume", "--json"),
        deadline_s=chosen.deadline_s,
        edgegpu=chosen.edgegpu,
    )
    try:
        AgentApp(options, group).run()
    except Exception:  # noqa: BLE001  (the border of the process: an unforeseen error belongs in the log)
        _LOG.exception("edgegpu-agent failed for a reason that it does not know")
        return EXIT_FAILED
    return 0


def _outside_cgroup(root: Path) -> tuple[str, ...]:
    """Return the words that start a program outside this service's cgroup, where systemd runs (sd_booted(3)).

    Undoing a first installation removes the unit file of this service, and then stops the service. Without the file
    systemd has forgotten KillMode=process, and ends everything in the cgroup (seen on 252): it would kill the program
    that undoes the installation.
    """
    booted = (root / "run/systemd/system").is_dir()
    return ("systemd-run", "--scope", "--collect", "--quiet") if booted else ()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="edgegpu-agent",
        description="Finishes this machine's changes by edgegpu whose author died, and holds its link to the cloud.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--edgegpu", default="edgegpu", metavar="PROGRAM", help="the command line (default: %(default)s)"
    )
    parser.add_argument(
        "--deadline-s",
        type=float,
        default=900.0,
        metavar="S",
        help="how long finishing may take (default: %(default)s)",
    )
    parser.add_argument("--root", type=Path, default=Path("/"), metavar="FOLDER", help="look at the machine below this")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    return parser


class _Version(argparse.Action):
    """The option --version; it loads importlib.metadata, which costs the daemon two MiB, only when it is used."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata  # noqa: PLC0415

        parser.exit(0, f"edgegpu-agent {metadata.version('edgegpu')}\n")


def _format() -> str:
    """Return the format of the log; without the time under systemd, whose journal has it already."""
    text = "%(levelname)s %(name)s: %(message)s"
    return text if "JOURNAL_STREAM" in os.environ else f"%(asctime)s {text}"
