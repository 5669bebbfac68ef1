"""The commands of `edgegpu` by name."""

from typing import Annotated

import typer

from edgegpu_agent.cli import (
    agent,
    config,
    demo,
    doctor,
    install,
    journal,
    pods,
    status,
    transaction,
    uninstall,
    version,
)
from edgegpu_sync.helptext import by_names
from edgegpu_sync.outputformat import with_output

_HELP = """Share NVIDIA GPUs between the services of this box: look at cards, pods and configuration, or try it out.

\b
  edgegpu status             cards, who holds what, what is wrong
  edgegpu pods -n NAMESPACE  which pod has which card
  edgegpu config check       is /etc/edgegpu/plugin.yaml right?
  edgegpu install            put it on this machine, change it, upgrade it; edgegpu uninstall takes it off
  edgegpu doctor             what is wrong on this box, and the command that mends it
  edgegpu agent status       is this box connected to its cloud? edgegpu journal shows what was asked of it
  edgegpu demo               both scenarios, without a GPU and without k3s

Exit status: 0 all is well, 1 something is wrong (said), 2 a usage error.
"""

app = typer.Typer(
    name="edgegpu",
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(wanted: bool) -> None:  # noqa: FBT001  (as typer calls it)
    if wanted:
        typer.echo(f"edgegpu {version.installed_version()}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_tell_version)
]


@app.callback()
def _options(*, version: VersionOption = False) -> None:
    del version


app.command("status", help=status.HELP, short_help="Cards, who holds what, what is wrong.")(with_output(status.status))
app.command("pods", help=pods.HELP, short_help="Which container has which card.")(with_output(pods.pods))
app.add_typer(config.app, name="config")
app.command("install", help=install.HELP, short_help="Put edgegpu on this machine, or change it there.")(
    with_output(install.install)
)
app.command("uninstall", help=uninstall.HELP, short_help="Take edgegpu off this machine.")(
    with_output(uninstall.uninstall)
)
app.add_typer(transaction.app, name="transaction")
app.command("doctor", help=doctor.HELP, short_help="What is wrong on this box, and what mends it.")(
    with_output(doctor.doctor)
)
app.add_typer(agent.app, name="agent")
app.command("journal", help=journal.HELP, short_help="What this box was asked, and what came of it.")(
    with_output(journal.journal)
)
app.command("version", help=version.HELP, short_help="What is installed, and what runs.")(with_output(version.version))
app.command("demo", help=demo.HELP, short_help="Try it out: services placed on cards.")(with_output(demo.demo))
by_names(app)
