"""`edgegpu uninstall`: remove edgegpu, and restore this machine byte for byte."""

from typing import TYPE_CHECKING, Annotated

import typer

from edgegpu_agent.cli.common import EXIT_WRONG, CliError, JsonOption, need_root, print_json, reporting
from edgegpu_agent.cli.install import DeadlineOption, DryRunOption, TransactionOption

if TYPE_CHECKING:
    from edgegpu_agent.cli.setup.installing import InstallerConsole
    from edgegpu_installer.uninstall import UninstallResult

JSON_VERSION = 1

HELP = """\
Take edgegpu off this machine: every file, unit, link, label, annotation and account that it brought.

What was there before comes back as it was, the scheduler's configuration as a change of its own that is undone when k3s
does not come up with it. Pods of this node that still use shares are named: without --force it goes no further. With
it their containers run on, but cannot be started again.

Where k3s was removed before, nobody can be asked: this machine is restored all the same, and what the cluster may still
have of the node is named.

kubelet keeps the resources for five minutes and would then offer 0 of them for ever: edgegpu-farewell.service waits for
that, takes them out of the node's status, and removes itself.

With --keep-agent GPU sharing alone goes: plugin, scheduler's configuration, accounts and marks. The agent stays, with
plugin.yaml, and `edgegpu install` brings sharing back as it was.

\b
Examples:
  edgegpu uninstall
  edgegpu uninstall --yes --force
  edgegpu uninstall --keep-agent
  edgegpu uninstall --dry-run

\b
--json: {"v": 1, "op": "uninstall" or "withdraw" (--keep-agent), "state", "why": TEXT, "changed": BOOL,
  "still": [pods that run on with shares], "kept": [what stays, and why], of a dry run "files", "labels", "objects",
  "unseen": as in `edgegpu install --dry-run --json`}
  or, refused, {"error", "remedy", "code": TEXT, "pods": [TEXT]} with "code": "IN_USE", "BUSY", "REFUSED" or "KNOWN"

Exits 0 when edgegpu is gone, 1 when it was refused or rolled back.
"""

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]
KeepOption = Annotated[bool, typer.Option("--keep-agent", help="Take GPU sharing off, and leave the agent.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Go on although pods of this node use shares.")]


def uninstall(
    *,
    yes: YesOption = False,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    keep_agent: KeepOption = False,
    deadline: DeadlineOption = 600.0,
    transaction_id: TransactionOption = "",
    json: JsonOption = False,
) -> None:
    """Take edgegpu off this machine."""
    with reporting(as_json=json):
        need_root("cannot uninstall")
        from edgegpu_agent.cli.setup.installing import this_machine  # noqa: PLC0415  (slow to load)
        from edgegpu_installer.uninstall import InUseError  # noqa: PLC0415

        installing = this_machine(as_json=json, deadline_s=deadline, transaction_id=transaction_id)
        try:
            removal = installing.uninstall(ask=not yes, agreed=yes, force=force, dry_run=dry_run, keep_agent=keep_agent)
        except InUseError as error:
            more: dict[str, object] = {"code": error.code, "pods": list(error.pods)}
            raise CliError(error.message, remedy=error.remedy, more=more) from error
        if json:
            print_json(_document(removal, installing))
        else:
            _say(removal, installing)
        if not removal.succeeded:
            raise typer.Exit(EXIT_WRONG)


def _document(removal: "UninstallResult", installing: "InstallerConsole") -> dict[str, object]:
    outcome = removal.outcome
    return {
        "v": JSON_VERSION,
        "op": removal.plan.op.value,
        "state": outcome.state.value if outcome else "DRY_RUN",
        "why": outcome.why if outcome else "",
        "changed": bool(outcome and outcome.changed),
        "still": list(removal.still),
        "kept": list(removal.kept),
        "files": installing.changes(removal.plan) if outcome is None else [],
        **({} if outcome else removal.cluster_changes.document()),
    }


def _say(removal: "UninstallResult", installing: "InstallerConsole") -> None:
    from edgegpu_installer.changes import TransactionKind  # noqa: PLC0415  (slow to load)

    if removal.outcome is None:
        installing.say_plan(removal.plan, removal.cluster_changes)
        return
    withdrawn = removal.plan.op is TransactionKind.WITHDRAW
    if not removal.succeeded:
        installing.say_failure("uninstall", removal.outcome)
        return
    if not removal.has_node:
        what = "GPU sharing" if withdrawn else "edgegpu"
        typer.echo(f"{what} is uninstalled; k3s was removed from this machine before")
    elif not withdrawn:
        typer.echo("edgegpu is uninstalled; the node stops naming its resources in about five minutes")
    elif removal.outcome.changed:
        typer.echo(
            "GPU sharing is uninstalled and the agent stays; the node stops naming the resources in five minutes"
        )
    else:
        typer.echo("nothing to change: GPU sharing is not installed, and the agent is")
    for line in removal.still:
        typer.echo(f"runs on with its share, and cannot be started again: {line}")
    for line in removal.kept:
        typer.echo(f"stays: {line}")
