"""`edgegpu transaction`: show the installer's last change of this machine, or finish one that was cut off."""

from pathlib import Path
from typing import Annotated

import typer

from edgegpu_agent.cli.common import EXIT_WRONG, CliError, JsonOption, need_root, print_json, reporting
from edgegpu_base.cli.helptext import command_group, put

JSON_VERSION = 1

SHOW_HELP = """\
Show the last change of this machine: what it was for, how far it came, how it ended and why; --history shows all.

\b
--json: {"v": 1, "id", "op", "state", "why", "version": TEXT, "finished": BOOL, "history": [TEXT]}
"""
RESUME_HELP = """\
Finish a change whose installer died: verify it if its time is not over, else undo it. edgegpu-agent does so by itself.

\b
--json: {"v": 1, "state": TEXT ("NONE" where there was nothing to finish), "why": TEXT}

Exits 0 when nothing is left to be done, 1 when it could not be undone.
"""

app = command_group("The last change of this machine by the installer.")

HistoryOption = Annotated[bool, typer.Option("--history", help="Print every line of the history.")]


def show(*, history: HistoryOption = False, json: JsonOption = False) -> None:
    """Show the last change of this machine."""
    with reporting(as_json=json):
        need_root("cannot show the last change of this machine")
        from edgegpu_installer.layout import Layout  # noqa: PLC0415  (slow to load)
        from edgegpu_installer.transaction.journal import TransactionJournal  # noqa: PLC0415
        from edgegpu_installer.transaction.states import TERMINAL  # noqa: PLC0415

        journal = TransactionJournal(Layout(Path("/")).tx)
        record, lines = journal.read(), journal.history()
        if json:
            known = {
                "id": record.id if record else "",
                "op": record.op.value if record else "",
                "state": record.state.value if record else "NONE",
                "why": record.why if record else "",
                "version": record.version if record else "",
                "finished": record is None or record.state in TERMINAL,
            }
            print_json({"v": JSON_VERSION, **known, "history": list(lines)})
            return
        if record is None:
            typer.echo("this machine was not changed by edgegpu's installer")
        else:
            typer.echo(f"{record.op} {record.id}: {record.state}{f' ({record.why})' if record.why else ''}")
        for line in lines if history else ():
            typer.echo(line)


def resume(*, json: JsonOption = False) -> None:
    """Finish a change whose installer died."""
    with reporting(as_json=json):
        need_root("cannot finish the last change of this machine")
        from edgegpu_agent.cli.setup.installing import this_machine  # noqa: PLC0415  (slow to load)
        from edgegpu_installer.transaction.states import TERMINAL  # noqa: PLC0415

        outcome = this_machine(as_json=json).resume()
        state, why = (outcome.state.value, outcome.why) if outcome else ("NONE", "")
        if json:
            print_json({"v": JSON_VERSION, "state": state, "why": why})
        elif outcome is None:
            typer.echo("there is nothing to finish")
        else:
            typer.echo(f"{state}{f': {why}' if why else ''}")
        if outcome is not None and outcome.state not in TERMINAL:
            if json:
                raise typer.Exit(EXIT_WRONG)
            raise CliError(f"cannot finish the last change: {why}", remedy="edgegpu-recover show")


put(app, "show", show, SHOW_HELP, "What it was, how it ended.")
put(app, "resume", resume, RESUME_HELP, "Finish one that was cut off.")
