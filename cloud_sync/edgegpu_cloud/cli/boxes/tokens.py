"""`edgegpu-cloud tokens`: lists the tokens that are still valid, and takes one back."""

import time
from dataclasses import replace
from typing import Annotated

import typer

from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    moment,
    opened,
    operator,
    print_list,
    reporting,
)
from edgegpu_cloud.enrolment.tokens import only_for
from edgegpu_cloud.errors import NotFoundError
from edgegpu_cloud.store.records import AuditEntry, Token

HELP = """\
List the tokens that a box may still come with. Their texts are stored nowhere: ID is the beginning of a hash.

\b
--take-back ID makes one worthless at once; what is left is listed.
--json prints [{"id", "name", "uses", "used", "expires_at", "approval", "only_for", "by"}]
"""

BackOption = Annotated[str | None, typer.Option("--take-back", metavar="ID", help="Make this one worthless.")]


def tokens(*, folder: FolderOption = DEFAULT, take_back: BackOption = None, json: JsonOption = False) -> None:
    """List the tokens that are still good."""
    with reporting(as_json=json), opened(folder) as cloud:
        now_s = time.time()
        with cloud.store.write() as tx:
            good = [one for one in tx.enrolments.tokens() if _good(one, now_s)]
            if take_back is not None:
                token = _the_one(good, take_back)
                tx.enrolments.put_token(replace(token, revoked=True))
                detail = {"token": token.digest[:12]}
                tx.notes.audit(AuditEntry(at_s=now_s, by=operator(), what="token.taken_back", detail=detail))
                good.remove(token)
        print_list(good, _HEADS, _row, none="no tokens", as_json=json, shown=_shown)


_HEADS = ("ID", "NAME", "USED", "UNTIL", "APPROVAL", "ONLY FOR", "BY")


def _row(one: Token) -> tuple[str, ...]:
    used, until = f"{one.used} of {one.uses}", moment(one.expires_at_s)
    approval = "asked for" if one.approval else "-"
    return one.digest[:12], one.name or "-", used, until, approval, only_for(one) or "-", one.by


def _good(token: Token, now_s: float) -> bool:
    return not token.revoked and token.used < token.uses and now_s < token.expires_at_s


def _shown(token: Token) -> dict[str, object]:
    return {
        "id": token.digest[:12],
        "name": token.name,
        "uses": token.uses,
        "used": token.used,
        "expires_at": int(token.expires_at_s),
        "approval": token.approval,
        "only_for": only_for(token),
        "by": token.by,
    }


def _the_one(good: list[Token], id_: str) -> Token:
    found = [one for one in good if one.digest.startswith(id_)]
    if len(found) != 1 or not id_:
        text = f"cannot tell which token {id_!r} is: {len(found)} begin so"
        raise NotFoundError(text, remedy="`edgegpu-cloud tokens` lists them")
    return found[0]
