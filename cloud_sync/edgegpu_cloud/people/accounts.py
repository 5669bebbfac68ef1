"""Changes of accounts, each in a transaction of the caller's; each is audited, and none takes the last admin away."""

from dataclasses import replace

from edgegpu_cloud.errors import ConflictError, NotFoundError
from edgegpu_cloud.fleet.audit.entries import DONE, AuditedChange, Author, difference, entry_of
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.people.errors import LastAdminError
from edgegpu_cloud.people.lockout import of_account
from edgegpu_cloud.people.names import normal_name
from edgegpu_cloud.people.secret_texts import digest_of, new_secret
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.people.records import LinkKind, OneTimeLink, Role, UserAccount
from edgegpu_cloud.store.records import Json
from edgegpu_cloud.store.store import Transaction


def note(
    tx: Transaction, who: Author, what: AuditKind, person: str, change: AuditedChange, *, result: str = DONE
) -> None:
    """Add a change of a person to the audit: what was before and after, never a secret or its hash."""
    tx.notes.audit(entry_of(who, what, change, detail={"person": person}, result=result))


def is_whole_admin(account: UserAccount) -> bool:
    """Whether an account can manage people: an enabled admin with a password, and with all boxes in scope."""
    return account.role is Role.ADMIN and not account.scope and not account.disabled and bool(account.password)


def find(tx: Transaction, name: str) -> UserAccount:
    """Return an account.

    Raises:
        NotFoundError: there is none.
    """
    found = tx.people.account(normal_name(name) or "")
    if found is None:
        raise NotFoundError(
            phrase("cannot find a person %(name)r", name=name[:80]),
            remedy=phrase("`edgegpu-cloud people list` lists them"),
        )
    return found


def add(tx: Transaction, account: UserAccount, who: Author) -> None:
    """Write a new account.

    Raises:
        ConflictError: there is one of this name.
    """
    if tx.people.account(account.name) is not None:
        raise ConflictError(
            phrase("cannot add %(account)s: there is an account of this name", account=account.name),
            remedy=phrase("choose another"),
        )
    tx.people.add_account(account)
    note(tx, who, AuditKind.PERSON_ADDED, account.name, AuditedChange({}, _shown(account)))


def change(tx: Transaction, after: UserAccount, who: Author, what: AuditKind) -> None:
    """Write an account whose role, scope, state or language is another one; nothing where nothing changes.

    Raises:
        LastAdminError: nobody could manage people any more.
    """
    before = find(tx, after.name)
    if before == after:
        return
    _keep_an_admin(tx, before, after)
    tx.people.put_account(after)
    if after.disabled:
        tx.people.end_sessions(after.name)
        tx.people.drop_links(after.name)
    note(tx, who, what, after.name, difference(_shown(before), _shown(after)))


def remove(tx: Transaction, name: str, who: Author) -> None:
    """Drop an account with its sessions and tokens; its changes stay in the audit.

    Raises:
        LastAdminError: nobody could manage people any more.
    """
    before = find(tx, name)
    _keep_an_admin(tx, before, None)
    tx.people.remove_account(before.name)
    tx.people.failures.forget_all(of_account(before.name))
    note(tx, who, AuditKind.PERSON_REMOVED, before.name, AuditedChange(_shown(before), {}))


def _keep_an_admin(tx: Transaction, before: UserAccount, after: UserAccount | None) -> None:
    """Refuse to take the last admin away; the caller holds all accounts: of two such changes at once one waits."""
    if not is_whole_admin(before) or (after is not None and is_whole_admin(after)):
        return
    if not any(is_whole_admin(one) for one in tx.people.accounts() if one.name != before.name):
        raise LastAdminError(before.name)


def put_password(tx: Transaction, name: str, hash_: str, who: Author, *, keep_session: str = "") -> None:
    """Give an account another password: its sessions end but the one with this digest, its links are void, no lock."""
    account = find(tx, name)
    tx.people.put_account(replace(account, password=hash_, password_at_s=who.now_s))
    ended = tx.people.end_sessions(account.name, but=keep_session)
    tx.people.drop_links(account.name)
    tx.people.failures.forget_all(of_account(account.name))
    change = AuditedChange(
        {"password_at_s": account.password_at_s}, {"password_at_s": who.now_s, "sessions_ended": ended}
    )
    note(tx, who, AuditKind.PERSON_PASSWORD, account.name, change)


def make_link(tx: Transaction, account: str, who: Author, *, kind: LinkKind, lasts_s: float) -> str:
    """Return the secret of a new one-time link; an earlier one for the same account is void."""
    secret = new_secret()
    tx.people.put_link(
        OneTimeLink(
            digest=digest_of(secret),
            kind=kind,
            account=account,
            by=who.by,
            created_at_s=who.now_s,
            expires_at_s=who.now_s + lasts_s,
        )
    )
    note(tx, who, AuditKind.PERSON_LINK, account, AuditedChange({}, {"kind": kind.value, "lasts_s": int(lasts_s)}))
    return secret


def _shown(account: UserAccount) -> Json:
    """Return what the audit has of an account."""
    return {
        "role": account.role.value,
        "scope": account.scope,
        "disabled": account.disabled,
        "language": account.language,
    }
