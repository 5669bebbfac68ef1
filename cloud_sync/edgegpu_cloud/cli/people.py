"""`edgegpu-cloud people`: accounts, roles and scopes, one-time links, sessions and API tokens, on this machine."""

import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from edgegpu_base.cli.helptext import command_group, put
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    YesOption,
    ago,
    answer,
    confirm,
    moment,
    opened,
    print_json,
    print_list,
    reporting,
    say,
)
from edgegpu_cloud.cli.local_cloud import LocalCloud
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.http.urls import link_url
from edgegpu_cloud.people.people import FIRST_ADMIN_S, PASSWORD_LINK_S, People
from edgegpu_cloud.store.people.records import ApiToken, Role, UserAccount, WebSession

HELP = """\
People who may use the console and the API: accounts, their roles and scopes.

\b
  viewer      sees boxes, apps, commands
  operator    changes them, and enrols boxes
  admin       takes boxes away, sees the audit; with all boxes in scope manages people

\b
A scope is a selector over labels of boxes, as -l takes it: only these boxes exist for the person.
Commands on this machine have no scope: who can read the controller's folder may do everything.
"""
LIST_HELP = """\
List the accounts.

\b
--json prints [{"name", "role", "scope", "state": "active", "invited" or "disabled", "language", "created_at"}]
"""
ADD_HELP = """\
Add a person, and print the one-time link by which they set their password. It is valid for 72 hours.

\b
Examples:
  edgegpu-cloud people add bea --role operator --scope site=hall
  edgegpu-cloud people add anna@example.com --role admin --language zh

\b
--json prints {"name", "role", "scope", "link": URL, "expires_at"}
"""
ROLE_HELP = """\
Give a person another role. It counts from their next request on. The last admin keeps the role.

\b
--json prints {"name", "role"}
"""
SCOPE_HELP = """\
Give a person another scope: a selector as site=hall, or '' for all boxes. It counts from their next request on.

\b
--json prints {"name", "scope"}
"""
DISABLE_HELP = """\
Shut a person out: their sessions end, their tokens are refused, until `people enable`.

\b
--json prints {"name", "disabled": true}
"""
ENABLE_HELP = """\
Let a person in again who was disabled.

\b
--json prints {"name", "disabled": false}
"""
REMOVE_HELP = """\
Remove a person with their sessions and tokens. What they changed stays in the audit.

\b
--json needs --yes, and prints {"name", "removed": true}
"""
RESET_HELP = """\
Print a one-time link by which a person sets a new password, and lift the lock that failed sign-ins have brought.

The present password is valid until the link is used, for 72 hours at most. --stdin sets the password at once instead,
to the first line of its input; the person's sessions end.

\b
Examples:
  edgegpu-cloud people reset-password anna
  edgegpu-cloud people reset-password anna --stdin < password.txt

\b
--json prints {"name", "link": URL, "expires_at"}, with --stdin {"name", "password": "set"}
"""
LINK_HELP = """\
Print another one-time link for the first admin. It is valid for 24 hours; an earlier one is void.

\b
--json prints {"link": URL, "expires_at"}
"""
SESSIONS_HELP = """\
List the sessions of a person, and end them.

\b
--json prints [{"id", "created_at", "used_at", "ends_at", "address", "agent"}]
"""
TOKENS_HELP = """\
List the API tokens of a person, make one, or revoke one. The text of a token is shown once.

\b
Examples:
  edgegpu-cloud people tokens anna
  edgegpu-cloud people tokens anna --add backup --role viewer --days 365
  edgegpu-cloud people tokens anna --revoke backup

\b
--json prints [{"id", "name", "role", "scope", "created_at", "expires_at", "used_at"}];
with --add {"token", "id", "name", "role", "scope", "expires_at"}
"""

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the account.")]


def _role(text: str) -> Role:
    """Read a role; as an argument it would be shown once more beside its name."""
    try:
        return Role(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is none of viewer, operator, admin") from error


RoleArgument = Annotated[str, typer.Argument(metavar="ROLE", help="viewer, operator or admin.")]
RoleOption = Annotated[Role, typer.Option("--role", metavar="ROLE", help="viewer, operator or admin.")]
ScopeArgument = Annotated[str, typer.Argument(metavar="SELECTOR", help="site=hall,rack!=3; '' for all boxes.")]
ScopeOption = Annotated[str, typer.Option("--scope", metavar="SELECTOR", help="Only boxes with these labels.")]
LanguageOption = Annotated[str, typer.Option("--language", metavar="en|zh", help="  [default: the browser's]")]
StdinOption = Annotated[bool, typer.Option("--stdin", help="Set the password that is the first line of the input.")]
EndOption = Annotated[str, typer.Option("--end", metavar="ID", help="End this session.")]
EndAllOption = Annotated[bool, typer.Option("--end-all", help="End all of them.")]
AddOption = Annotated[str, typer.Option("--add", metavar="TOKEN", help="Make a token of this name.")]
RevokeOption = Annotated[str, typer.Option("--revoke", metavar="TOKEN", help="Revoke the token of this name or id.")]
DaysOption = Annotated[int, typer.Option("--days", metavar="DAYS", help="How long the new token is valid.")]


def _opened(folder: Path) -> AbstractContextManager[LocalCloud]:
    """Open the controller of this machine: the API has no accounts."""
    why = "the API has no accounts, so that no API token can make another or raise a role"
    return opened(folder, why=why, instead="use the console's pages People and My account")


def _people(cloud: LocalCloud, *, with_link: bool = False) -> tuple[People, Access]:
    """Return the people, and this command's access to them; refuse to make a link that leads nowhere."""
    if with_link:
        link_url(cloud.config, "")
    return People(cloud.store, clock=time.time), Access(cloud.by)


def list_people(*, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """List the accounts."""
    with reporting(as_json=json), _opened(folder) as cloud:
        people, by = _people(cloud)
        found = people.all(by=by)
        heads = ("NAME", "ROLE", "SCOPE", "STATE", "SINCE")
        print_list(found, heads, _row, none="no people yet", as_json=json, shown=_shown)
        if not found and not json:
            say("edgegpu-cloud: `edgegpu-cloud people link` prints the link of the first admin")


def _state(one: UserAccount) -> str:
    if one.disabled:
        return "disabled"
    return "active" if one.password else "invited"


def _row(one: UserAccount) -> tuple[str, ...]:
    return one.name, one.role.value, one.scope or "all boxes", _state(one), moment(one.created_at_s)


def _shown(one: UserAccount) -> dict[str, object]:
    return {
        "name": one.name,
        "role": one.role.value,
        "scope": one.scope,
        "state": _state(one),
        "language": one.language,
        "created_at": int(one.created_at_s),
    }


def add(
    name: NameArgument,
    *,
    role: RoleOption = Role.VIEWER,
    scope: ScopeOption = "",
    language: LanguageOption = "",
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Add a person."""
    with reporting(as_json=json), _opened(folder) as cloud:
        people, by = _people(cloud, with_link=True)
        secret = people.create(name, role=role, scope=scope, language=language, by=by)
        account = people.account(name, by=by)
        head = {"name": account.name, "role": account.role.value, "scope": account.scope}
        _print_link(cloud, secret, PASSWORD_LINK_S, head, f"{account.name} sets a password here", as_json=json)


def _print_link(
    cloud: LocalCloud, secret: str, lasts_s: float, head: dict[str, str], text: str, *, as_json: bool
) -> None:
    url = link_url(cloud.config, secret)
    if as_json:
        print_json({**head, "link": url, "expires_at": int(time.time() + lasts_s)})
    else:
        typer.echo(f"{text}, once, within {int(lasts_s / 3_600)} hours:\n  {url}")


def role(name: NameArgument, role: RoleArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Give a person another role."""
    wanted = _role(role)
    with reporting(as_json=json), _opened(folder) as cloud:
        people, by = _people(cloud)
        people.set_role(name, wanted, by=by)
        name = people.account(name, by=by).name
        answer({"name": name, "role": wanted.value}, f"{name} is {wanted.value}", as_json=json)


def scope(
    name: NameArgument, selector: ScopeArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False
) -> None:
    """Give a person another scope."""
    with reporting(as_json=json), _opened(folder) as cloud:
        people, by = _people(cloud)
        people.set_scope(name, selector, by=by)
        account = people.account(name, by=by)
        text = (
            f"{account.name} sees the boxes with {account.scope}" if account.scope else f"{account.name} sees all boxes"
        )
        answer({"name": account.name, "scope": account.scope}, text, as_json=json)


def disable(name: NameArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Shut a person out."""
    with reporting(as_json=json), _opened(folder) as cloud:
        people, by = _people(cloud)
        people.disable(name, by=by)
        name = people.account(name, by=by).name
        answer({"name": name, "disabled": True}, f"{name} is disabled: no session, no token", as_json=json)


def enable(name: NameArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Let a person in again."""
    with reporting(as_json=json), _opened(folder) as cloud:
        people, by = _people(cloud)
        people.enable(name, by=by)
        name = people.account(name, by=by).name
        answer({"name": name, "disabled": False}, f"{name} may sign in again", as_json=json)


def remove(
    name: NameArgument, *, yes: YesOption = False, folder: FolderOption = DEFAULT, json: JsonOption = False
) -> None:
    """Remove a person."""
    with reporting(as_json=json), _opened(folder) as cloud:
        people, by = _people(cloud)
        name = people.account(name, by=by).name
        question = f"remove {name}, with all sessions and tokens?"
        confirm(question, cannot=f"cannot remove {name}", yes=yes, as_json=json)
        people.delete(name, by=by)
        answer({"name": name, "removed": True}, f"removed {name}", as_json=json)


def reset_password(
    name: NameArgument, *, stdin: StdinOption = False, folder: FolderOption = DEFAULT, json: JsonOption = False
) -> None:
    """Print a link for a new password, or set one."""
    with reporting(as_json=json), _opened(folder) as cloud:
        people, by = _people(cloud, with_link=not stdin)
        account = people.account(name, by=by)
        if stdin:
            people.set_password(account.name, sys.stdin.readline().rstrip("\r\n"), by=by)
            document = {"name": account.name, "password": "set"}
            answer(document, f"the password of {account.name} is set; all sessions have ended", as_json=json)
            return
        secret = people.reset_password(account.name, by=by)
        text = f"{account.name} sets a new password here"
        _print_link(cloud, secret, PASSWORD_LINK_S, {"name": account.name}, text, as_json=json)


def link(*, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Print the first admin's link."""
    with reporting(as_json=json), _opened(folder) as cloud:
        people, by = _people(cloud, with_link=True)
        secret = people.first_admin_link(by=by)
        _print_link(cloud, secret, FIRST_ADMIN_S, {}, "the first admin makes an account here", as_json=json)


def sessions(
    name: NameArgument,
    *,
    end: EndOption = "",
    end_all: EndAllOption = False,
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """List and end sessions."""
    with reporting(as_json=json), _opened(folder) as cloud:
        people, by = _people(cloud)
        if end:
            people.revoke_session(end, by=by)
        if end_all:
            people.revoke_sessions(name, by=by)
        now_s = time.time()

        def row(one: WebSession) -> tuple[str, ...]:
            return one.id, moment(one.created_at_s), ago(one.used_at_s, now_s), one.address, one.agent

        heads = ("ID", "SINCE", "LAST USED", "ADDRESS", "BROWSER")
        found = people.sessions(name, by=by)
        print_list(found, heads, row, none="no sessions", as_json=json, shown=_shown_session)


def _shown_session(one: WebSession) -> dict[str, object]:
    times = {"created_at": one.created_at_s, "used_at": one.used_at_s, "ends_at": one.ends_at_s}
    whole = {key: int(at_s) for key, at_s in times.items()}
    return {"id": one.id, **whole, "address": one.address, "agent": one.agent}


def tokens(
    name: NameArgument,
    *,
    add: AddOption = "",
    role: RoleOption = Role.VIEWER,
    scope: ScopeOption = "",
    days: DaysOption = 90,
    revoke: RevokeOption = "",
    folder: FolderOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """List, make and revoke API tokens."""
    with reporting(as_json=json), _opened(folder) as cloud:
        people, by = _people(cloud)
        if revoke:
            people.revoke_token(name, revoke, by=by)
        if add:
            text, token = people.create_token(name, add, role=role, scope=scope, days=days, by=by)
            keys = ("id", "name", "role", "scope", "expires_at")
            shown = {key: value for key, value in _shown_token(token).items() if key in keys}
            words = f"the token {token.name} of {token.account}, shown this once:\n  {text}"
            answer({"token": text, **shown}, words, as_json=json)
            return
        now_s = time.time()

        def row(one: ApiToken) -> tuple[str, ...]:
            until = "over" if one.expires_at_s <= now_s else moment(one.expires_at_s)
            return one.id, one.name, one.role.value, one.scope or "-", until, ago(one.used_at_s, now_s)

        heads = ("ID", "NAME", "ROLE", "SCOPE", "UNTIL", "LAST USED")
        found = people.tokens(name, by=by)
        print_list(found, heads, row, none="no tokens", as_json=json, shown=_shown_token)


def _shown_token(one: ApiToken) -> dict[str, object]:
    times = {"created_at": one.created_at_s, "expires_at": one.expires_at_s, "used_at": one.used_at_s}
    whole = {key: int(at_s) for key, at_s in times.items()}
    return {"id": one.id, "name": one.name, "role": one.role.value, "scope": one.scope, **whole}


app = command_group(HELP)
put(app, "list", list_people, LIST_HELP, "List the accounts.")
put(app, "add", add, ADD_HELP, "Add a person.")
put(app, "role", role, ROLE_HELP, "Give a person another role.")
put(app, "scope", scope, SCOPE_HELP, "Give a person another scope.")
put(app, "disable", disable, DISABLE_HELP, "Shut a person out.")
put(app, "enable", enable, ENABLE_HELP, "Let a person in again.")
put(app, "remove", remove, REMOVE_HELP, "Remove a person.")
put(app, "reset-password", reset_password, RESET_HELP, "Let a person set a new password.")
put(app, "link", link, LINK_HELP, "Another link for the first admin.")
put(app, "sessions", sessions, SESSIONS_HELP, "List a person's sessions, or end them.")
put(app, "tokens", tokens, TOKENS_HELP, "API tokens of a person.")
