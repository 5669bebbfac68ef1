"""The commands of `edgegpu` by name."""

from edgegpu_agent.cli import (
    agent,
    card,
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
from edgegpu_agent.cli.isolation import limit, selftest
from edgegpu_base.cli.helptext import command_line, put

_HELP = """Share NVIDIA GPUs between the services of this box: look at cards, pods and configuration, or try it out.

\b
  edgegpu status             cards, who holds what, what is wrong
  edgegpu pods -n NAMESPACE  which pod has which card
  edgegpu config check       is /etc/edgegpu/plugin.yaml right?
  edgegpu install            put it on this machine, change it, upgrade it; edgegpu uninstall takes it off
  edgegpu doctor             what is wrong on this box, and the command that mends it
  edgegpu agent status       is this box connected to its cloud? edgegpu journal shows what was asked of it
  edgegpu demo --real        services placed on this box's cards, and every placement checked

Exit status: 0 all is well, 1 something is wrong (said), 2 a usage error. `doctor` has statuses of its own.
"""

app = command_line("edgegpu", _HELP)
put(app, "status", status.status, status.HELP, "Cards, who holds what, what is wrong.")
put(app, "pods", pods.pods, pods.HELP, "Which container has which card.")
put(app, "limit", limit.limit, limit.HELP, "Hold a running container to less card memory.")
put(app, "selftest", selftest.selftest, selftest.HELP, "Try the limiter on this box's cards.")
app.add_typer(card.app, name="card")
app.add_typer(config.app, name="config")
put(app, "install", install.install, install.HELP, "Put edgegpu on this machine, or change it there.")
put(app, "uninstall", uninstall.uninstall, uninstall.HELP, "Take edgegpu off this machine.")
app.add_typer(transaction.app, name="transaction")
put(
    app,
    "doctor",
    doctor.doctor,
    doctor.HELP,
    "What is wrong on this box, and what mends it.",
    cls=doctor.DoctorCommand,
)
app.add_typer(agent.app, name="agent")
put(app, "journal", journal.journal, journal.HELP, "What this box was asked, and what came of it.")
put(app, "version", version.version, version.HELP, "What is installed, and what runs.")
put(app, "demo", demo.demo, demo.HELP, "Try it out: services placed on cards.")
