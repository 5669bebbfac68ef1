"""Web sessions: what a person may do while one lasts, and when it ends."""

from dataclasses import dataclass, field

from edgegpu_cloud.fleet.access import Access, read_scope
from edgegpu_cloud.fleet.selectors import BoxSelector
from edgegpu_cloud.people.secret_texts import csrf_of, digest_of, new_secret
from edgegpu_cloud.store.people.records import Role, UserAccount, WebSession
from edgegpu_cloud.store.store import Transaction

_MOST_ADDRESS, _MOST_AGENT = 64, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRules:
    """When sessions end, in seconds: after `idle_s` without use, and `lasts_s` after the sign-in in any case.

    The time of the last use is stored when the stored one is `touch_s` old. Of an account's sessions the newest
    `most` are kept.
    """

    idle_s: float = 12 * 3_600.0
    lasts_s: float = 7 * 86_400.0
    touch_s: float = 60.0
    most: int = 50

    def is_alive(self, session: WebSession, now_s: float) -> bool:
        """Whether a session has not ended."""
        return now_s < session.ends_at_s and now_s - session.used_at_s < self.idle_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The signed-in person of a request: by a browser's session, or by an API token.

    `by`: the name in the audit, `anna`, or `anna/backup` for her token of that name. `csrf` is empty for a token, as a
    browser does not send one by itself. `language`: `en`, `zh`, or empty for the browser's. `id` names it.
    """

    account: str
    by: str
    role: Role
    scope: BoxSelector
    scope_text: str
    csrf: str = field(default="", repr=False)
    language: str = ""
    id: str

    @property
    def access(self) -> Access:
        """Return what the person may do."""
        return Access(self.by, self.role, self.scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """A sign-in that succeeded: the token for the browser's cookie, which is kept nowhere else."""

    session_token: str = field(repr=False)
    account: UserAccount
    ends_at_s: float


def begin(
    tx: Transaction, account: UserAccount, rules: SessionRules, *, now_s: float, address: str, agent: str
) -> SignedIn:
    """Write a new session of an account; the oldest of too many end."""
    token = new_secret()
    ends_at_s = now_s + rules.lasts_s
    tx.people.add_session(
        WebSession(
            digest=digest_of(token),
            account=account.name,
            created_at_s=now_s,
            used_at_s=now_s,
            ends_at_s=ends_at_s,
            address=_printable(address)[:_MOST_ADDRESS],
            agent=_printable(agent)[:_MOST_AGENT],
        )
    )
    for old in tx.people.sessions(account.name)[: -rules.most]:
        tx.people.end_session(old.digest)
    return SignedIn(session_token=token, account=account, ends_at_s=ends_at_s)


def session_of(stored: WebSession, account: UserAccount, token: str) -> Session:
    """Return the session of a token, with role and scope as the account has them now."""
    return Session(
        account=account.name,
        by=account.name,
        role=account.role,
        scope=read_scope(account.scope),
        scope_text=account.scope,
        csrf=csrf_of(token),
        language=account.language,
        id=stored.id,
    )


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)
