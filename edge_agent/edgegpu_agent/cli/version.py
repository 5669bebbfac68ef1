"""`edgegpu version`: show the version that is installed, and that of the running plugin."""

import typer

from edgegpu_agent.cli.clients.plugin import fetch_status, find_socket
from edgegpu_agent.cli.common import CliError, ConfigOption, JsonOption, SocketOption, print_json, reporting
from edgegpu_base.cli.commandline import installed_version

HELP = """\
Show the version that is installed, and that of the plugin that runs.

They differ after an upgrade until `systemctl restart edgegpu-plugin`. A plugin that does not run is no error here.

\b
Example:
  edgegpu version

\b
--json: {"version": TEXT, "plugin": TEXT or null, "problem": why the plugin's is not known, or ""}
"""


def version(*, json: JsonOption = False, socket: SocketOption = None, config: ConfigOption = None) -> None:
    """Show the version that is installed, and that of the plugin that runs."""
    with reporting(as_json=json):
        mine, theirs, problem = installed_version(), None, ""
        try:
            theirs = fetch_status(find_socket(socket, config)).version
        except CliError as error:
            problem = error.text
        if json:
            print_json({"version": mine, "plugin": theirs, "problem": problem})
            return
        typer.echo(f"edgegpu {mine}")
        typer.echo(f"edgegpu-plugin {theirs} runs" if theirs else problem)
        if theirs not in {None, mine}:
            typer.echo("they differ: `systemctl restart edgegpu-plugin` starts what is installed")
