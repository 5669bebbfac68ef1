"""`edgegpu-cloud tokens`: lists the tokens that are still valid, and takes one back."""

from typing import Annotated

import typer

from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    moment,
    print_list,
    reached,
    reporting,
)
from edgegpu_cloud.enrolment.manager import MOST_LISTED, token_id
from edgegpu_cloud.enrolment.tokens import only_for
from edgegpu_cloud.store.records import Token

HELP = """\
List the tokens that a box may still come with. Their texts are stored nowhere: ID is the beginning of a hash.

\b
--take-back ID makes one worthless at once; what is left is listed.
--json prints [{"id", "name", "uses", "used", "expires_at", "approval", "only_for", "by"}]
"""

BackOption = Annotated[str | None, typer.Option("--take-back", metavar="ID", help="Make this one worthless.")]


def tokens(*, folder: FolderOption = DEFAULT, take_back: BackOption = None, json: JsonOption = False) -> None:
    """List the tokens that are still good."""
    with reporting(as_json=json), reached(folder) as cloud:
        if take_back is not None:
            cloud.enrolment.take_back(take_back)
        good = cloud.enrolment.tokens(limit=MOST_LISTED)
        print_list(good, _HEADS, _row, none="no tokens", as_json=json, shown=_shown)


_HEADS = ("ID", "NAME", "USED", "UNTIL", "APPROVAL", "ONLY FOR", "BY")


def _row(one: Token) -> tuple[str, ...]:
    used, until = f"{one.used} of {one.uses}", moment(one.expires_at_s)
    approval = "asked for" if one.approval else "-"
    return token_id(one), one.name or "-", used, until, approval, only_for(one) or "-", one.by


def _shown(token: Token) -> dict[str, object]:
    return {
        "id": token_id(token),
        "name": token.name,
        "uses": token.uses,
        "used": token.used,
        "expires_at": int(token.expires_at_s),
        "approval": token.approval,
        "only_for": only_for(token),
        "by": token.by,
    }
