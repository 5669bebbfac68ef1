"""API tokens: made once, shown once, never more than their owner may."""

from edgegpu_cloud.errors import CloudError, ConflictError, NotFoundError
from edgegpu_cloud.fleet.access import both_scopes, read_scope
from edgegpu_cloud.fleet.audit.entries import AuditedChange, Author
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.people.accounts import find, note
from edgegpu_cloud.people.names import check_token_name
from edgegpu_cloud.people.secret_texts import digest_of, new_api_token
from edgegpu_cloud.people.sessions import Session
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.people.records import ApiToken, Role, UserAccount
from edgegpu_cloud.store.store import Transaction

LONGEST_DAYS = 3_660
MOST_TOKENS = 100
"""Tokens of one account."""

_DAY_S = 86_400.0


def create(
    tx: Transaction, owner: str, who: Author, *, name: str, role: Role, scope: str, days: int
) -> tuple[str, ApiToken]:
    """Write a new token; return its text, which is stored nowhere, and its record.

    Raises:
        CloudError: no name, a role above the owner's, no selector, a time out of bounds, or too many tokens.
        ConflictError: the owner has a token of this name.
    """
    account = find(tx, owner)
    check_token_name(name)
    read_scope(scope)
    if role.rank > account.role.rank:
        text = phrase(
            "cannot make a token with the role %(role)s: %(account)s has the role %(least)s",
            role=role.value,
            account=account.name,
            least=account.role.value,
        )
        remedy = phrase("give the token the role %(role)s, or a lower one", role=account.role.value)
        raise CloudError(text, remedy=remedy)
    if not 1 <= days <= LONGEST_DAYS:
        text = phrase("cannot make a token for %(days)s days", days=days)
        raise CloudError(text, remedy=phrase("give 1 to %(longest_days)s days", longest_days=LONGEST_DAYS))
    there = tx.people.tokens(account.name)
    if any(one.name == name for one in there):
        text = phrase("cannot make a token %(name)s: there is one of this name", name=name)
        raise ConflictError(text, remedy=phrase("revoke it, or choose another"))
    if len(there) >= MOST_TOKENS:
        text = phrase("cannot make another token: %(account)s has %(num)s", account=account.name, num=len(there))
        raise CloudError(text, remedy=phrase("revoke some first"))
    secret = new_api_token()
    token = ApiToken(
        digest=digest_of(secret),
        account=account.name,
        name=name,
        role=role,
        scope=scope.strip(),
        created_at_s=who.now_s,
        expires_at_s=who.now_s + days * _DAY_S,
    )
    tx.people.add_token(token)
    after = {"name": name, "role": role.value, "scope": token.scope, "days": days}
    note(tx, who, AuditKind.PERSON_TOKEN_ADDED, account.name, AuditedChange({}, after))
    return secret, token


def revoke(tx: Transaction, token: ApiToken, who: Author) -> None:
    """Drop a token."""
    tx.people.remove_token(token.digest)
    before = {"name": token.name, "role": token.role.value, "scope": token.scope}
    note(tx, who, AuditKind.PERSON_TOKEN_REVOKED, token.account, AuditedChange(before, {}))


def find_token(tx: Transaction, owner: str | None, name_or_id: str) -> ApiToken:
    """Return a token by its name or its id; of one owner, or of anybody.

    Raises:
        NotFoundError: there is none, or more than one.
    """
    mine = tx.people.tokens(owner)
    found = [one for one in mine if name_or_id in {one.name, one.id}]
    if len(found) != 1:
        remedy = phrase("`edgegpu-cloud people tokens NAME` lists them")
        raise NotFoundError(
            phrase(
                "cannot tell which token %(name)r is: %(num)s are called so",
                name=name_or_id[:80],
                num=len(found),
            ),
            remedy=remedy,
        )
    return found[0]


def session_of_token(token: ApiToken, account: UserAccount) -> Session:
    """Return what a token may do: what both its own role and scope and its owner's allow now."""
    scope = both_scopes(account.scope, token.scope)
    return Session(
        account=account.name,
        by=f"{account.name}/{token.name}",
        role=min(token.role, account.role, key=lambda role: role.rank),
        scope=read_scope(scope),
        scope_text=scope,
        language=account.language,
        id=token.id,
    )
