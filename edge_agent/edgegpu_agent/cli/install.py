"""`edgegpu install`: install edgegpu on this machine, change its settings, or upgrade it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgegpu_agent.cli.clients import completing
from edgegpu_agent.cli.common import EXIT_WRONG, CliError, JsonOption, need_root, print_json, reporting, sayer

if TYPE_CHECKING:
    from edgegpu_agent.cli.setup.installing import InstallerConsole
    from edgegpu_agent.cli.setup.membership import Membership
    from edgegpu_installer.install import InstallReport
    from edgegpu_installer.plan.site import InstallOptions, MachineRole

JSON_VERSION = 1
_SECRET_VARIABLES = _TOKEN_VARIABLE, _JOIN_VARIABLE, _PROXY_VARIABLE = "EDGEGPU_TOKEN", "EDGEGPU_JOIN", "EDGEGPU_PROXY"

HELP = """\
Put edgegpu on this machine, change what is on it, or upgrade it to this version.

Looks at the machine first and refuses, with the remedy, what would not work. Then all is changed as one: k3s is
restarted only if what it reads at its start changes, and whatever goes wrong, a power cut included, ends with the
machine as it was and k3s up. Run it again as often as you like: a machine that is as asked is left alone.

On a terminal it asks which nodes of the cluster have GPUs; --node or --yes answer that. Each further server, and each
node with GPUs, runs the same line; at its end it says which ones still lack theirs.

\b
Examples:
  edgegpu install
  edgegpu install --yes --policy spread
  edgegpu install --node box-1 --node box-2
  edgegpu install --dry-run
  EDGEGPU_TOKEN=TOKEN edgegpu install --cloud https://cloud.example.com --ca-sha256 HEX

\b
--json: {"v": 1, "op", "state", "why", "role", "version": TEXT, "changed", "restarted": BOOL,
  "files": [{"path", "change": "new"|"changed"|"removed"|"as it is", "mode": TEXT}], "lacking": [TEXT]}
  and of a dry run "labels": [{"node", "kind": "label"|"annotation", "name", "value", "change": TEXT}],
  "objects": [{"name", "change": TEXT}] of the cluster, "unseen": why its state is unknown;
  with --show-join "join": TEXT, a secret, empty where there is none
  or, refused, {"error", "remedy", "code": TEXT} with "code": "REFUSED", "BUSY" (try again in a while) or "KNOWN"
  "enrolment": null, or of a box that belongs to a cloud {"url", "stand", "name", "device", "text", "remedy": TEXT}
Progress goes to stderr then.

With a token it ends when the box is enrolled, or waits for a person's approval in the cloud.
Exits 0 when the machine is as asked, 1 when it was refused or rolled back, or the cloud did not take the token.
"""

NodeOption = Annotated[
    list[str] | None, typer.Option("--node", metavar="NAME", help="A node with GPUs, to be labelled; several times.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: label this node if it has cards.")]
RoleOption = Annotated[
    str | None,
    typer.Option(
        "--role",
        metavar="ROLE",
        help="server, agent or extender-only.  [default: what fits the machine]",
        autocompletion=completing.roles,
    ),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="POLICY",
        help="first-fit, best-fit or spread.",
        autocompletion=completing.policies,
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="CARD", help="A card not to share: 0, 0:1, GPU-…; several times. none: share all."
    ),
]
UnitOption = Annotated[
    int | None,
    typer.Option("--unit-mib", metavar="MIB", help="MiB of a unit of memory; refused while pods hold shares."),
]
ReserveOption = Annotated[
    str | None,
    typer.Option(
        "--reserve-mib",
        metavar="MIB",
        help="MiB kept back on each card, or auto: what the driver keeps, as a new installation does.",
    ),
]
RootOption = Annotated[
    str | None, typer.Option("--driver-root", metavar="FOLDER", help="Where the NVIDIA driver is installed.")
]
IsolationOption = Annotated[
    str | None,
    typer.Option(
        "--isolation",
        metavar="MODE",
        help="limiter, the default, mps or none: what holds new containers to their shares.",
    ),
]
WaitOption = Annotated[
    str | None,
    typer.Option(
        "--wait-at-start",
        metavar="on|off",
        help="on: a k3s that starts looks at its pods only once it has the devices, so that none fails.",
        autocompletion=completing.switches,
    ),
]
JoinOption = Annotated[
    str,
    typer.Option(
        "--join", metavar="TOKEN", envvar=_JOIN_VARIABLE, help="On an agent node: what a server's install printed."
    ),
]
ShowJoinOption = Annotated[
    bool, typer.Option("--show-join", help="On a server: print the token for agent nodes' --join at the end: a secret.")
]
TokenOption = Annotated[
    str,
    typer.Option("--token", metavar="TOKEN", envvar=_TOKEN_VARIABLE, help="The one-time token that enrols this box."),
]
TokenFileOption = Annotated[Path | None, typer.Option("--token-file", metavar="FILE", help="A file with the token.")]
CloudOption = Annotated[str, typer.Option("--cloud", metavar="URL", help="The cloud of this box, https://HOST.")]
CaOption = Annotated[
    str, typer.Option("--ca-sha256", metavar="HEX", help="The cloud has a CA of its own, with this SHA-256.")
]
ProxyOption = Annotated[
    str,
    typer.Option(
        "--cloud-proxy",
        metavar="URL",
        envvar=_PROXY_VARIABLE,
        help="The agent's proxy, http://HOST:PORT; MQTT goes by it where it does not go straight. none: no proxy.",
    ),
]
BrokerOption = Annotated[
    str,
    typer.Option(
        "--cloud-broker",
        metavar="HOST:PORT",
        help="Where the agent finds the broker first, if not where the cloud says. none: as the cloud says.",
    ),
]
LimitsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--limits-namespace",
        metavar="NS",
        help="Where the cloud may change apps' limits; several times. *: all but kube-system, none: nowhere.",
    ),
]
AgentOnlyOption = Annotated[
    bool, typer.Option("--agent-only", help="The agent without GPU sharing; refused if sharing is installed.")
]
TransactionOption = Annotated[
    str, typer.Option("--transaction-id", metavar="ID", help="What the change is called in the journal.", hidden=True)
]
EnrolWaitOption = Annotated[
    float,
    typer.Option("--enrol-wait", metavar="SECONDS", min=0, help="How long to wait for the cloud to take the token."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be changed, and change nothing.")]
DeadlineOption = Annotated[
    float, typer.Option("--deadline", metavar="SECONDS", min=20, help="All is put back when it is not done by then.")
]


def install(  # noqa: PLR0913  (one for each option)
    *,
    node: NodeOption = None,
    yes: YesOption = False,
    role: RoleOption = None,
    policy: PolicyOption = None,
    exclude: ExcludeOption = None,
    unit_mib: UnitOption = None,
    reserve_mib: ReserveOption = None,
    driver_root: RootOption = None,
    isolation: IsolationOption = None,
    wait_at_start: WaitOption = None,
    join: JoinOption = "",
    show_join: ShowJoinOption = False,
    token: TokenOption = "",
    token_file: TokenFileOption = None,
    cloud: CloudOption = "",
    ca_sha256: CaOption = "",
    cloud_proxy: ProxyOption = "",
    cloud_broker: BrokerOption = "",
    enrol_wait: EnrolWaitOption = 60.0,
    limits_namespace: LimitsOption = None,
    agent_only: AgentOnlyOption = False,
    dry_run: DryRunOption = False,
    deadline: DeadlineOption = 600.0,
    transaction_id: TransactionOption = "",
    json: JsonOption = False,
) -> None:
    """Put edgegpu on this machine, change what is on it, or upgrade it to this version."""
    with reporting(as_json=json):
        installing = _begin(as_json=json, deadline_s=deadline, transaction_id=transaction_id)
        from edgegpu_installer.plan.site import InstallOptions  # noqa: PLC0415  (slow to load)

        options = InstallOptions(
            role=_role(role),
            policy=_policy(policy),
            exclude=_excluded(exclude),
            unit_mib=unit_mib,
            reserve_mib=None if agent_only else _reserve(reserve_mib, role, driver_root, unit_mib, as_json=json),
            driver_root=driver_root,
            isolation=_isolation(isolation, as_json=json),
            wait_at_start=_wait_at_start(wait_at_start),
            nodes=tuple(node or ()),
            token=_token(token, token_file),
            join=join,
            agent_only=agent_only,
        )
        options = _at_cloud(options, cloud, pin=ca_sha256, routes=(cloud_proxy, cloud_broker), limits=limits_namespace)
        report = installing.install(options, ask=not yes and not node, dry_run=dry_run)
        _end(report, installing, options.token, wait_s=enrol_wait, as_json=json, show_join=show_join)


def _end(
    report: "InstallReport",
    installing: "InstallerConsole",
    token: str,
    *,
    wait_s: float,
    as_json: bool,
    show_join: bool,
) -> None:
    stands = None
    if report.succeeded and report.outcome is not None:
        # Import only here: undoing a first installation has removed the folder of this program.
        from edgegpu_agent.cli.setup.membership import membership  # noqa: PLC0415

        stands = membership(installing.layout, token, wait_s=wait_s, say=installing.say)
    failed = stands is not None and stands.failed
    if as_json:
        enrolment = stands.document() if stands is not None else None
        print_json({**_document(report, installing, show_join=show_join), "enrolment": enrolment})
    else:
        _say(report, installing, stands, show_join=show_join)
        if stands is not None and failed:
            raise stands.failure
    if failed or not report.succeeded:
        raise typer.Exit(EXIT_WRONG)


def _at_cloud(
    options: "InstallOptions", url: str, *, pin: str, routes: tuple[str, str], limits: list[str] | None
) -> "InstallOptions":
    from edgegpu_agent.cli.setup.enrol_options import with_cloud, with_routes  # noqa: PLC0415  (slow to load)

    proxy, broker = routes
    return with_routes(with_cloud(options, url, ca_sha256=pin, limits=limits), proxy=proxy, broker=broker)


def _begin(*, as_json: bool, deadline_s: float, transaction_id: str) -> "InstallerConsole":
    need_root("cannot install")
    for name in _SECRET_VARIABLES:  # programs that are started from here on do not inherit them
        os.environ.pop(name, None)
    from edgegpu_agent.cli.setup.installing import this_machine  # noqa: PLC0415  (slow to load)

    return this_machine(as_json=as_json, deadline_s=deadline_s, transaction_id=transaction_id).checked()


def _isolation(text: str | None, *, as_json: bool) -> str | None:
    from edgegpu_agent.cli.setup.isolation_option import wanted_isolation  # noqa: PLC0415  (slow to load)
    from edgegpu_installer.layout import Layout  # noqa: PLC0415

    return wanted_isolation(text, Layout(), say=sayer(as_json=as_json))


def _reserve(
    text: str | None, role: str | None, driver_root: str | None, unit_mib: int | None, *, as_json: bool
) -> int | str | None:
    from edgegpu_agent.cli.setup.reserve_option import CardOptions, wanted_reserve  # noqa: PLC0415  (slow to load)
    from edgegpu_installer.layout import Layout  # noqa: PLC0415
    from edgegpu_installer.plan.site import MachineRole  # noqa: PLC0415

    offers = role != MachineRole.EXTENDER_ONLY
    options = CardOptions(driver_root=driver_root, unit_mib=unit_mib, offers=offers)
    return wanted_reserve(text, Layout(), options=options, say=sayer(as_json=as_json))


def _role(text: str | None) -> "MachineRole | None":
    from edgegpu_installer.plan.site import MachineRole  # noqa: PLC0415  (slow to load)

    if text is None:
        return None
    try:
        return MachineRole(text)
    except ValueError:
        roles = ", ".join(role.value for role in MachineRole)
        raise CliError(f"cannot install with --role {text}: there is no such role", remedy=f"give {roles}") from None


def _policy(text: str | None) -> str | None:
    from edgegpu_core.placement import parse_policy  # noqa: PLC0415  (slow to load)

    if text is not None:
        try:
            parse_policy(text)
        except ValueError as error:
            raise CliError(
                f"cannot install with --policy {text}: {error}", remedy="give first-fit, best-fit or spread"
            ) from error
    return text


def _wait_at_start(text: str | None) -> bool | None:
    if text not in {None, "on", "off"}:
        raise CliError(f"cannot install with --wait-at-start {text}: it is on or off", remedy="give on or off")
    return None if text is None else text == "on"


def _excluded(cards: list[str] | None) -> tuple[str, ...] | None:
    from edgegpu_plugin.config.types import is_card_name  # noqa: PLC0415  (slow to load)

    wrong = [card for card in cards or () if not is_card_name(card)] if cards != ["none"] else []
    if wrong:
        raise CliError(
            f"cannot install with --exclude {wrong[0]!r}: not the name of a card",
            remedy="give a number (0), a MIG device (0:1) or a UUID (GPU-…), or none alone to share all",
        )
    return () if cards == ["none"] else None if cards is None else tuple(cards)


def _token(token: str, file: Path | None) -> str:
    if file is None:
        return token.strip()
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(
            f"cannot read the token in {file}: {error}", remedy="name a readable file of one line"
        ) from error


def _document(report: "InstallReport", installing: "InstallerConsole", *, show_join: bool) -> dict[str, object]:
    outcome = report.outcome
    return {
        "v": JSON_VERSION,
        "op": report.op.value,
        "state": outcome.state.value if outcome else "DRY_RUN",
        "why": outcome.why if outcome else "",
        "role": report.role.value,
        "version": report.version,
        "changed": bool(outcome and outcome.changed),
        "restarted": report.restarted,
        "files": installing.changes(report.plan),
        "lacking": list(report.lacking),
        **({"join": report.join} if show_join else {}),
        **({} if outcome else report.cluster_changes.document()),
    }


def _say(
    report: "InstallReport", installing: "InstallerConsole", stands: "Membership | None", *, show_join: bool
) -> None:
    if report.outcome is None:
        installing.say_plan(report.plan, report.cluster_changes)
        return
    if not report.succeeded:
        installing.say_failure(report.op.value, report.outcome)
        return
    if not report.outcome.changed:
        typer.echo(f"nothing to change: edgegpu {report.version} is installed as asked ({report.role.value})")
    else:
        unit = report.plan.restart
        again = f"{unit} was restarted once" if unit and report.restarted else "no restart was needed"
        typer.echo(f"edgegpu {report.version} is installed ({report.role.value}); {again}")
    for line in installing.standing(report.role):
        typer.echo(line)
    for line in report.lacking:
        typer.echo(f"still lacking: {line}")
    if report.join and (report.lacking or show_join):
        typer.echo(f"on an agent node add: --join {report.join}")
    if stands is None:
        typer.echo("next: edgegpu status; edgegpu demo --real; edgegpu doctor")
    elif not stands.failed:
        typer.echo(stands.line)
        there = f"; on {stands.cloud.url}: edgegpu-cloud box {stands.name}" if stands.name else ""
        typer.echo(f"next: edgegpu status; edgegpu agent status; edgegpu doctor{there}")
