"""`edgegpu-cloud audit`: who changed what, before and after, and what came of it."""

import json as jsonlib
from typing import Annotated

import typer

from edgegpu_cloud.cli.arguments import SinceOption, complete_boxes
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    moment,
    print_list,
    reached,
    reporting,
    since_of,
)
from edgegpu_cloud.fleet.audit.documents import shown_values
from edgegpu_cloud.fleet.audit.views import AuditView
from edgegpu_cloud.store.records import AuditFilter, Json

HELP = """\
Print who changed what, newest first: before, after, and what came of it by now. With --server this is for admins.

\b
Examples:
  edgegpu-cloud audit --box hall-1 --since 7d
  edgegpu-cloud audit --by anna --what rollout --json
  edgegpu-cloud audit --app default/asr --since 1d

\b
--json prints [{"number", "at_s", "by", "what", "device", "box", "before": {...}, "after": {...}, "detail": {...},
  "result": {"state", "text", "at_s"}}]; docs/cloud/people.md has the states.
"""

ByOption = Annotated[str, typer.Option("--by", metavar="PERSON", help="What a person did, also by API tokens.")]
BoxOption = Annotated[
    str,
    typer.Option(
        "--box",
        metavar="BOX",
        help="What concerns a box: its name, or its device id, also of a forgotten one.",
        autocompletion=complete_boxes,
    ),
]
WhatOption = Annotated[
    str, typer.Option("--what", metavar="KIND", help="One kind, or the beginning of several: box, box.spec.")
]
AppOption = Annotated[
    str, typer.Option("--app", metavar="APP", help="What concerns an app: default/asr, or asr of any namespace.")
]
PartOption = Annotated[
    str, typer.Option("--part-of", metavar="CHANGE", help="What an operation (its id) or rollout/NUMBER has changed.")
]
LimitOption = Annotated[int, typer.Option("--limit", metavar="NUMBER", min=1, max=10_000, help="How many.")]

_HEADS = ("TIME", "BY", "WHAT", "BOX", "BEFORE", "AFTER", "RESULT")


def audit(  # noqa: PLR0913  (one for each option)
    *,
    by: ByOption = "",
    box: BoxOption = "",
    what: WhatOption = "",
    app: AppOption = "",
    part_of: PartOption = "",
    limit: LimitOption = 20,
    since: SinceOption = "",
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Print entries of the audit."""
    since_s = since_of(since)
    with reporting(as_json=json), reached(folder) as cloud:
        where = AuditFilter(by=by, device=box, what=what, app=app, part_of=part_of, since_s=since_s)
        found = cloud.fleet.audit(where, limit=limit)
        print_list([one for one in found if one.at_s >= since_s], _HEADS, _row, none="no changes", as_json=json)


def _row(one: AuditView) -> tuple[str, ...]:
    state = one.result.state.value.replace("_", " ")
    result = f"{state}: {one.result.text}" if one.result.text else state
    box = one.box or one.device or "-"
    return (moment(one.at_s), one.by, one.what, box, _text(one.before), _text(one.after), result)


def _text(values: Json | None) -> str:
    return jsonlib.dumps(shown_values(values), ensure_ascii=False, sort_keys=True) if values else "-"
