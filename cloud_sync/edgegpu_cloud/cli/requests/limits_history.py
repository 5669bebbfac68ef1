"""`edgegpu-cloud limits history`: each change of an app's requested limits, and what became of it."""

import typer

from edgegpu_base.cli.output import counted
from edgegpu_cloud.cli.arguments import AppArgument, BoxArgument, ContainerOption, app_of
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    moment,
    print_json,
    print_table,
    reached,
    reporting,
)
from edgegpu_cloud.cli.requests.limits_target import box_and_others, container_of
from edgegpu_cloud.cli.requests.settlements import WAITS_FOR_SHARING
from edgegpu_cloud.fleet.limits.history import ContainerKey, LimitsHistoryEntry
from edgegpu_cloud.fleet.limits.outcomes import OutcomeState, RequestOutcome
from edgegpu_sync.messages.spec import AppLimits

HISTORY_HELP = """\
Show each change of the limits that were requested for one container of an app, newest first: when and by whom, from
what to what, when the box had applied or refused it, and what became of it.

\b
Example:
  edgegpu-cloud limits history asr-hall default/asr

\b
STATE is `replaced` where another request came before the box reported on it, and `not known` where it is older than
what the controller keeps.
--json prints [{"rev", "requested_at_s", "requested_by", "before": {...} or null, "after": {...} or null, "again",
"outcome": {"state", "at_s", "code", "text"} or null}]
"""


def history(
    name: BoxArgument,
    app_name: AppArgument,
    *,
    folder: FolderOption = DEFAULT,
    container: ContainerOption = None,
    json: JsonOption = False,
) -> None:
    """Show each change of an app's limits."""
    namespace, app_ = app_of(app_name)
    with reporting(as_json=json), reached(folder) as cloud:
        view = cloud.fleet.box(name)
        key = ContainerKey(namespace, app_, container_of(box_and_others(cloud, view), namespace, app_, container))
        entries = cloud.fleet.limits_history(view.device, key)
        if json:
            print_json([_document(one) for one in entries])
        elif not entries:
            typer.echo(f"no limits of {namespace}/{app_} were requested on {view.name}")
        else:
            heads = ("REQUESTED AT", "BY", "FROM", "TO", "ENDED AT", "STATE")
            print_table(heads, [_row(one) for one in entries])


def _document(entry: LimitsHistoryEntry) -> dict[str, object]:
    before, after = (
        None if one is None else one.model_dump(mode="json", exclude={"critical"})
        for one in (entry.before, entry.after)
    )
    return {
        "rev": entry.rev,
        "requested_at_s": entry.at_s,
        "requested_by": entry.by,
        "before": before,
        "after": after,
        "again": entry.again,
        "outcome": entry.outcome,
    }


def _row(entry: LimitsHistoryEntry) -> tuple[str, ...]:
    outcome = entry.outcome
    settled = "-" if outcome is None or outcome.state is OutcomeState.REPLACED else moment(outcome.at_s or 0.0)
    return moment(entry.at_s), entry.by, _amounts(entry.before), _amounts(entry.after), settled, _words(outcome)


def _amounts(item: AppLimits | None) -> str:
    return "-" if item is None else f"{counted(item.memory_units, 'unit')}, core {item.core}"


def _words(outcome: RequestOutcome | None) -> str:
    if outcome is None:
        return "taken back"
    code = None if outcome.state is OutcomeState.DORMANT else outcome.code
    return ": ".join(word for word in (_STATES[outcome.state], code, outcome.text) if word)


_STATES = {
    OutcomeState.NOT_REQUESTED: "not requested",
    OutcomeState.WAITING: "waiting for the box",
    OutcomeState.WORKING: "waiting for the box",
    OutcomeState.APPLIED: "Applied",
    OutcomeState.REJECTED: "Rejected",
    OutcomeState.FAILED: "Failed",
    OutcomeState.PENDING: "Pending",
    OutcomeState.UNSUPPORTED: "Unsupported",
    OutcomeState.ELSEWHERE: "applied by another box",
    OutcomeState.DORMANT: WAITS_FOR_SHARING,
    OutcomeState.REPLACED: "replaced",
    OutcomeState.NOT_KNOWN: "not known",
}
