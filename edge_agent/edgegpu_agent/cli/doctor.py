"""`edgegpu doctor`: find what is wrong on this box, why, and the command that fixes it."""

import datetime as dt
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgegpu_agent.cli.agent import RootOption
from edgegpu_agent.cli.clients import completing
from edgegpu_agent.cli.common import CliError, JsonOption, need_root, print_json, reporting
from edgegpu_base.cli.helptext import HelpCommand
from edgegpu_base.cli.output import make_console

if TYPE_CHECKING:
    from edgegpu_installer.doctor.checks import Check
    from edgegpu_installer.doctor.probe import BoxProbe

JSON_VERSION = 1
EXIT_UNSEEN = 3
"""The exit status where nothing was looked at: 1 and 2 tell of the box."""

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

HELP = """\
Read this box and say what is wrong, why, and which command mends it. Nothing is changed.

Each line is a check: `ok` well, `i` good to know, `-` does not apply here, `!` a warning, `x` broken.
docs/doctor.md of edgegpu's source says of each check what it looks at and what red means.

\b
Exit status: 0 all is well, 1 warnings, 2 something is broken, 3 doctor could not look: it is not root, there is no
such check or option, or it failed itself.

\b
Examples:
  sudo edgegpu doctor
  sudo edgegpu doctor --check extender --check scheduler
  sudo edgegpu doctor --json | jq -r '.checks[].troubles[] | "\\(.text)\\n  \\(.remedy)"'

\b
--json: {"v": 1, "version": TEXT, "level": "ok", "warning" or "broken",
  "checks": [{"name", "group", "about": TEXT, "level": "ok", "info", "not applicable", "warning" or "broken",
              "text": TEXT, "troubles": [{"level", "text", "remedy": TEXT}], "details": [TEXT], "took_s": NUMBER}]}
"""

CheckOption = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="NAME",
        help="Only this check; may be given several times.",
        autocompletion=completing.checks,
    ),
]
ListOption = Annotated[bool, typer.Option("--list", help="Print the names of the checks, and look at nothing.")]


class DoctorCommand(HelpCommand):
    """The command `doctor`, whose usage errors do not end as a broken box does."""

    usage_status = EXIT_UNSEEN


def doctor(
    *,
    json: JsonOption = False,
    check: CheckOption = None,
    list_: ListOption = False,
    root: RootOption = Path("/"),
) -> None:
    """Read this box and say what is wrong, why, and which command mends it."""
    with reporting(as_json=json, status=EXIT_UNSEEN):
        from edgegpu_installer.doctor.checks import CHECKS  # noqa: PLC0415  (slow to load)

        if not list_:
            need_root("cannot look at this box", root=root)
        if os.environ.get("EDGEGPU_DEBUG"):
            logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
        if list_:
            _print_list(as_json=json)
            return
        status = _look(_wanted(CHECKS, check or []), _probe(root), as_json=json)
        if status:
            raise typer.Exit(status)


def _wanted(checks: tuple["Check", ...], names: list[str]) -> list["Check"]:
    known = {check.name for check in checks}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CliError(
            f"cannot look at {', '.join(unknown)}: no such check", remedy="`edgegpu doctor --list` names them"
        )
    return [check for check in checks if not names or check.name in names]


def _probe(root: Path) -> "BoxProbe":
    from edgegpu_agent.cli.clients.doctor import BoxClients  # noqa: PLC0415  (slow to load)
    from edgegpu_installer.doctor.probe import BoxProbe  # noqa: PLC0415

    path = os.pathsep.join(filter(None, (os.environ.get("PATH", ""), _SYSTEM_PATH)))
    return BoxProbe(root=root, clients=BoxClients(root), path=path, now=lambda: dt.datetime.now(dt.UTC))


def _look(checks: list["Check"], probe: "BoxProbe", *, as_json: bool) -> int:
    from edgegpu_agent.cli.views.doctor import DoctorView, as_document  # noqa: PLC0415  (slow to load)
    from edgegpu_base.cli.commandline import installed_version  # noqa: PLC0415
    from edgegpu_installer.doctor.checks import exit_status, run_checks, worst  # noqa: PLC0415

    if as_json:
        results = list(run_checks(checks, probe))
        print_json(
            {"v": JSON_VERSION, "version": installed_version(), "level": worst(results).value}
            | {"checks": [as_document(result) for result in results]}
        )
        return exit_status(results)
    view, results = DoctorView(make_console()), []
    with view.progress() as looking:
        for result in run_checks(checks, probe, before=looking):
            results.append(result)
            view.show(result)
    view.summary(results)
    return exit_status(results)


def _print_list(*, as_json: bool) -> None:
    from edgegpu_installer.doctor.checks import CHECKS  # noqa: PLC0415  (slow to load)

    if as_json:
        print_json([{"name": check.name, "group": check.group, "about": check.about} for check in CHECKS])
        return
    width = max(len(check.name) for check in CHECKS)
    for check in CHECKS:
        typer.echo(f"{check.name:<{width}}  {check.about}")
