"""`edgegpu-cloud alerts`: what is wrong in the fleet, silence for one alert, and a test of the webhook."""

import time
from typing import Annotated

import typer

from edgegpu_base.cli.durations import seconds
from edgegpu_base.cli.helptext import command_group, put
from edgegpu_base.cli.output import counted
from edgegpu_cloud.alerts.service import AlertView
from edgegpu_cloud.cli.arguments import FilterBoxArgument
from edgegpu_cloud.cli.common import (
    DEFAULT,
    Cloud,
    FolderOption,
    JsonOption,
    ago,
    answer,
    moment,
    print_list,
    reached,
    reporting,
    say,
)
from edgegpu_cloud.errors import ForbiddenError
from edgegpu_cloud.numbers import LARGEST
from edgegpu_cloud.store.alerts.tables import THAT_FIRE, AlertFilter

HELP = """\
Alerts: what is wrong in the fleet for longer than a moment, by itself known and by itself over.

\b
  offline          a box was not heard for alerts.offline_minutes
  drift            somebody on a box writes back what was requested
  not-applied      a request was refused, or failed
  unhealthy        a box reports that a card, the plugin or another part is bad
  cluster          a box reports another cluster than before, or several say that they apply one cluster's limits
  box-certificate  a box has not renewed its certificate, which ends soon
  own-certificate  a certificate of this controller ends soon
  alarm            an alarm that nobody has seen: `edgegpu-cloud alarms`

\b
docs/cloud/alerts.md has the message that a webhook gets.
"""
LIST_HELP = """\
List the alerts that fire, newest first: of one box, or of all.

\b
--json prints [{"alert": {"number", "kind", "device", "about", "text", "since_s", "firing_at_s", "resolved_at_s",
  "silenced_until_s", "silenced_by", ...}, "box"}]
"""
SILENCE_HELP = """\
Let nobody be told of an alert for a while; --for 0s ends the silence. The alert is listed as before.

\b
Example:
  edgegpu-cloud alerts silence 17 --for 2d

\b
--json prints {"number", "until_s"}
"""
TEST_HELP = """\
Send a test message to each receiver of alerts.webhook. A running controller sends it within half a minute.

\b
--json prints {"urls", "waiting": NUMBER of messages, "error": TEXT of the last try}; with --server the URLs are their
hosts alone.
"""

OverOption = Annotated[bool, typer.Option("--all", help="Those too that are over.")]
ForOption = Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 2h, 3d.")]
NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", min=1, max=LARGEST, help="As `alerts list` has it.")]

_EVERY = AlertFilter(over=None)
_HEADS = ("NUMBER", "KIND", "BOX", "SINCE", "STATE", "WHAT")


def list_alerts(
    name: FilterBoxArgument = "",
    *,
    folder: FolderOption = DEFAULT,
    over: OverOption = False,
    json: JsonOption = False,
) -> None:
    """List the alerts."""
    with reporting(as_json=json), reached(folder) as cloud:
        found = cloud.alerts.list(name, where=_EVERY if over else THAT_FIRE)
        print_list(found, _HEADS, _row, none="nothing fires", as_json=json)
        if not json:
            _tell_of_webhook(cloud)


def _tell_of_webhook(cloud: Cloud) -> None:
    """Print how many messages wait for the webhook, where the person may see that."""
    try:
        count, error = cloud.alerts.waiting()
    except ForbiddenError:
        return
    if count:
        say(f"{counted(count, 'message')} for the webhook not delivered yet: {error or 'not tried yet'}")


def _row(one: AlertView) -> tuple[str, ...]:
    alert, now_s = one.alert, time.time()
    what = f"{alert.about}: {alert.text}" if alert.about else alert.text
    return (str(alert.number), alert.kind, one.box or "-", ago(alert.since_s, now_s), _state(one, now_s), what)


def _state(one: AlertView, now_s: float) -> str:
    if one.alert.resolved_at_s is not None:
        return f"over, {ago(one.alert.resolved_at_s, now_s)}"
    if one.alert.is_silenced(now_s):
        return f"silenced until {moment(one.alert.silenced_until_s)} by {one.alert.silenced_by}"
    return "firing"


def silence(
    number: NumberArgument, *, for_: ForOption = "1h", folder: FolderOption = DEFAULT, json: JsonOption = False
) -> None:
    """Let nobody be told of an alert for a while."""
    for_s = seconds(for_, option="--for") if for_ not in {"0", "0s"} else 0
    with reporting(as_json=json), reached(folder) as cloud:
        cloud.alerts.silence(number, for_s=for_s)
        until_s = time.time() + for_s
        until = f"silent until {moment(until_s)}" if for_s else "not silent any more"
        answer({"number": number, "until_s": until_s}, f"alert {number} is {until}", as_json=json)


def send_test(*, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Send a test message to each receiver."""
    with reporting(as_json=json), reached(folder) as cloud:
        urls = cloud.alerts.test()
        count, error = cloud.alerts.waiting()
        text = f"{counted(len(urls), 'message')} queued; `edgegpu-cloud alerts list` says whether they were delivered"
        answer({"urls": list(urls), "waiting": count, "error": error}, text, as_json=json)


app = command_group(HELP)
put(app, "list", list_alerts, LIST_HELP, "List the alerts.")
put(app, "silence", silence, SILENCE_HELP, "Let nobody be told of an alert for a while.")
put(app, "test", send_test, TEST_HELP, "Send a test message to the webhook.")
