"""People: who may come in, as what. The CLI, the API and the console's pages use it and nothing else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from edgegpu_cloud.errors import CloudError, ConflictError, ForbiddenError, NotFoundError
from edgegpu_cloud.fleet.access import Access, Permission, read_scope
from edgegpu_cloud.fleet.audit.entries import NOTHING, REFUSED, AuditedChange, Author
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.people import accounts, api_tokens
from edgegpu_cloud.people.accounts import find, is_whole_admin, make_link
from edgegpu_cloud.people.errors import (
    HashQueueFullError,
    LastAdminError,
    LinkRefusedError,
    LockedOutError,
    SignInRefusedError,
)
from edgegpu_cloud.people.lockout import OF_ACCOUNT, change_key, locked_for_s, of_account
from edgegpu_cloud.people.names import check_account_name, normal_name
from edgegpu_cloud.people.passwords import Passwords, check_password
from edgegpu_cloud.people.secret_texts import API_TOKEN_BEGIN, digest_of
from edgegpu_cloud.people.sessions import Session, SessionRules, SignedIn, session_of
from edgegpu_cloud.people.sign_in_audit import note_signed_out
from edgegpu_cloud.people.signin import SignIns, sweep
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.people.records import ApiToken, LinkKind, OneTimeLink, Role, UserAccount, WebSession
from edgegpu_cloud.store.store import ControllerStore, Transaction

FIRST_ADMIN_S = 24 * 3_600.0
"""How long the first admin's link is valid."""

PASSWORD_LINK_S = 72 * 3_600.0
"""How long a link for a password is valid."""

LANGUAGES = ("", "en", "zh")
_SESSION_REVOKED = AuditKind.PERSON_SESSION_REVOKED


class People:
    """The people of a store. Methods that change something take `by`: who does so, and what they may.

    Every method may raise StoreError; every change is audited. Usable from any thread.
    """

    def __init__(
        self,
        store: ControllerStore,
        *,
        clock: Callable[[], float],
        passwords: Passwords | None = None,
        rules: SessionRules | None = None,
    ) -> None:
        """Take a store; `clock` returns seconds since 1970."""
        self._store, self._clock = store, clock
        self._passwords = passwords or Passwords()
        self._rules = rules or SessionRules()
        self._sign_ins = SignIns(store, clock=clock, passwords=self._passwords, rules=self._rules)

    # sign-in and sessions

    def sign_in(self, name: str, password: str, *, address: str, agent: str = "") -> SignedIn:
        """Begin a session of a browser at this address, which calls itself `agent`.

        Raises:
            SignInRefusedError: no such account, a wrong password, or a disabled account: the text does not say which.
            LockedOutError: too many failed tries; nothing was looked at.
            HashQueueFullError: too many sign-ins at once; nothing was looked at.
        """
        return self._sign_ins.sign_in(name, password, address=address, agent=agent)

    def session(self, token: str) -> Session | None:
        """Return the session of a token; None where there is none, it has ended, or its account is disabled."""
        now_s, digest = self._clock(), digest_of(token)
        with self._store.read() as tx:
            stored = tx.people.session(digest)
            account = tx.people.account(stored.account) if stored is not None else None
        if stored is None or account is None or account.disabled or not self._rules.is_alive(stored, now_s):
            return None
        if now_s - stored.used_at_s >= self._rules.touch_s:
            with self._store.write() as tx:
                tx.people.touch_session(digest, now_s)
        return session_of(stored, account, token)

    def sign_out(self, token: str) -> None:
        """End the session of a token; nothing where there is none."""
        with self._store.write() as tx:
            stored = tx.people.session(digest_of(token))
            if stored is not None:
                tx.people.end_session(stored.digest)
                note_signed_out(tx, stored.account, now_s=self._clock())

    def sessions(self, name: str, *, by: Access) -> list[WebSession]:
        """Return the sessions of a person that have not ended, oldest first.

        Raises:
            ForbiddenError: another's, without the right to manage people.
            NotFoundError: no such person.
        """
        _require_own(by, name)
        with self._store.read() as tx:
            found = tx.people.sessions(find(tx, name).name)
        return [one for one in found if self._rules.is_alive(one, self._clock())]

    def revoke_session(self, id_: str, *, by: Access) -> None:
        """End a session, wherever it is.

        Raises:
            NotFoundError: there is none, or it is another's and one may not manage people.
        """
        with self._store.write() as tx:
            found = tx.people.session_with_id(id_) if id_.isalnum() else None
            if found is None or found.id != id_ or not _is_own(by, found.account):
                raise NotFoundError(
                    phrase("cannot find this session: it has ended"), remedy=phrase("nothing needs to be done")
                )
            tx.people.end_session(found.digest)
            before = {"session": found.id, "address": found.address}
            accounts.note(tx, self._who(by), _SESSION_REVOKED, found.account, AuditedChange(before, {}))

    def revoke_sessions(self, name: str, *, by: Access, but: str = "") -> int:
        """End all sessions of a person but the one with this id; return how many.

        Raises:
            ForbiddenError, NotFoundError: as `sessions`.
        """
        ended = [one for one in self.sessions(name, by=by) if one.id != but]
        with self._store.write() as tx:
            done = [one for one in ended if tx.people.end_session(one.digest)]
            change = AuditedChange({"sessions": len(ended)}, {"sessions": len(ended) - len(done)})
            accounts.note(tx, self._who(by), _SESSION_REVOKED, normal_name(name), change)
        return len(done)

    # API tokens

    def api_token(self, text: str) -> Session | None:
        """Return what a token may do; None where there is none, it is too old, or its owner is disabled."""
        if not text.startswith(API_TOKEN_BEGIN):
            return None
        now_s, digest = self._clock(), digest_of(text)
        with self._store.read() as tx:
            token = tx.people.token(digest)
            account = tx.people.account(token.account) if token is not None else None
        if token is None or account is None or account.disabled or now_s >= token.expires_at_s:
            return None
        if now_s - token.used_at_s >= self._rules.touch_s:
            with self._store.write() as tx:
                tx.people.touch_token(digest, now_s)
        return api_tokens.session_of_token(token, account)

    def tokens(self, name: str | None = None, *, by: Access) -> list[ApiToken]:
        """Return the tokens of a person, or of all, oldest first.

        Raises:
            ForbiddenError: another's, without the right to manage people.
        """
        if name is None:
            by.require(Permission.PEOPLE)
        else:
            _require_own(by, name)
        with self._store.read() as tx:
            return tx.people.tokens(None if name is None else find(tx, name).name)

    def create_token(
        self, owner: str, name: str, *, role: Role, by: Access, scope: str = "", days: int = 90
    ) -> tuple[str, ApiToken]:
        """Make a token for a person; return its text, which is shown once, and its record.

        Raises:
            CloudError: no name, a role above the owner's, no selector, or a time out of bounds.
            ConflictError: there is one of this name.
            ForbiddenError: another's, without the right to manage people.
        """
        _require_own(by, owner)
        with self._store.write() as tx:
            return api_tokens.create(tx, owner, self._who(by), name=name, role=role, scope=scope, days=days)

    def revoke_token(self, owner: str, name_or_id: str, *, by: Access) -> None:
        """Make a token worthless at once.

        Raises:
            NotFoundError: there is none.
            ForbiddenError: another's, without the right to manage people.
        """
        _require_own(by, owner)
        with self._store.write() as tx:
            token = api_tokens.find_token(tx, find(tx, owner).name, name_or_id)
            api_tokens.revoke(tx, token, self._who(by))

    # accounts

    def all(self, *, by: Access) -> list[UserAccount]:
        """Return all accounts, by name.

        Raises:
            ForbiddenError: without the right to manage people.
        """
        by.require(Permission.PEOPLE)
        with self._store.read() as tx:
            return tx.people.accounts()

    def page(self, search: str = "", *, after: str = "", limit: int, by: Access) -> list[UserAccount]:
        """Return accounts by name, those after a name; `search` is looked for in names, scopes and roles.

        Raises:
            ForbiddenError: without the right to manage people.
        """
        by.require(Permission.PEOPLE)
        with self._store.read() as tx:
            return tx.people.page(search=search, after=after, limit=limit)

    def account(self, name: str, *, by: Access) -> UserAccount:
        """Return an account.

        Raises:
            NotFoundError: there is none.
            ForbiddenError: another's, without the right to manage people.
        """
        _require_own(by, name)
        with self._store.read() as tx:
            return find(tx, name)

    def create(self, name: str, *, role: Role, by: Access, scope: str = "", language: str = "") -> str:
        """Make an account without a password; return the secret of the one-time link that sets one.

        Raises:
            CloudError: nobody can be called so, or the scope is no selector.
            ConflictError: there is one of this name.
            ForbiddenError: without the right to manage people.
        """
        by.require(Permission.PEOPLE)
        account = UserAccount(
            name=check_account_name(name),
            role=role,
            scope=_checked_scope(scope),
            language=_checked_language(language),
            created_at_s=self._clock(),
        )
        with self._store.write() as tx:
            who = self._who(by)
            accounts.add(tx, account, who)
            return make_link(tx, account.name, who, kind=LinkKind.PASSWORD, lasts_s=PASSWORD_LINK_S)

    def set_role(self, name: str, role: Role, *, by: Access) -> None:
        """Give a person another role; it counts from the next request on.

        Raises:
            LastAdminError: nobody could manage people any more.
            NotFoundError, ForbiddenError: as `account`.
        """
        self._change(name, AuditKind.PERSON_ROLE, by, lambda account: replace(account, role=role))

    def set_scope(self, name: str, scope: str, *, by: Access) -> None:
        """Give a person another scope: a selector over labels, empty for all boxes.

        Raises:
            CloudError: no selector.
            LastAdminError, NotFoundError, ForbiddenError: as `set_role`.
        """
        text = _checked_scope(scope)
        self._change(name, AuditKind.PERSON_SCOPE, by, lambda account: replace(account, scope=text))

    def disable(self, name: str, *, by: Access) -> None:
        """Shut a person out: the sessions end, tokens and links are of no use until `enable`; raises as `set_role`."""
        self._change(name, AuditKind.PERSON_DISABLED, by, lambda account: replace(account, disabled=True))

    def enable(self, name: str, *, by: Access) -> None:
        """Let a person in again; raises as `set_role`."""
        self._change(name, AuditKind.PERSON_ENABLED, by, lambda account: replace(account, disabled=False))

    def delete(self, name: str, *, by: Access) -> None:
        """Drop an account with its sessions and tokens; what it changed stays in the audit. Raises as `set_role`."""
        with self._audited(by, AuditKind.PERSON_REMOVED, name), self._store.write() as tx:
            tx.people.hold_accounts()
            accounts.remove(tx, name, self._who(by))

    def set_language(self, name: str, language: str, *, by: Access) -> None:
        """Set a person's language: `en`, `zh`, or empty for the browser's.

        Raises:
            CloudError: another one.
            NotFoundError, ForbiddenError: as `account`.
        """
        _require_own(by, name)
        checked = _checked_language(language)
        with self._store.write() as tx:
            account = replace(find(tx, name), language=checked)
            accounts.change(tx, account, self._who(by), AuditKind.PERSON_LANGUAGE)

    def _change(self, name: str, what: AuditKind, by: Access, edit: Callable[[UserAccount], UserAccount]) -> None:
        with self._audited(by, what, name), self._store.write() as tx:
            tx.people.hold_accounts()
            accounts.change(tx, edit(find(tx, name)), self._who(by), what)

    @contextmanager
    def _audited(self, by: Access, what: AuditKind, name: str) -> Iterator[None]:
        """Require the right to manage people; a change that the last admin keeps from is audited as refused."""
        by.require(Permission.PEOPLE)
        try:
            yield
        except LastAdminError as error:
            with self._store.write() as tx:
                result = f"{REFUSED}: {error.text}"
                accounts.note(tx, self._who(by), what, normal_name(name), NOTHING, result=result)
            raise

    # passwords and links

    def set_password(
        self, name: str, password: str, *, by: Access, current: str | None = None, keep_session: str = ""
    ) -> None:
        """Give an account another password; its sessions end but the one whose token is `keep_session`.

        `current`: the present one, which a person needs for their own; None where an admin sets another's.

        Raises:
            SignInRefusedError: `current` is wrong.
            LockedOutError: too many wrong ones.
            WeakPasswordError: the new one is not accepted.
            NotFoundError, ForbiddenError: as `account`.
        """
        if current is None:
            by.require(Permission.PEOPLE)
        else:
            _require_own(by, name)
        with self._store.read() as tx:
            account = find(tx, name)
        check_password(password, name=account.name)
        if current is not None:
            self._check_current(account, current)
        hash_ = self._passwords.hash(password, known=True)
        kept = digest_of(keep_session) if keep_session else ""
        with self._store.write() as tx:
            accounts.put_password(tx, account.name, hash_, self._who(by), keep_session=kept)

    def _check_current(self, account: UserAccount, current: str) -> None:
        key = change_key(account.name)
        with self._store.write() as tx:
            held, now_s = tx.people.failures.hold([key]), self._clock()
            if (wait_s := locked_for_s(held, now_s)) > 0:
                raise LockedOutError(wait_s)
            tx.people.failures.put([OF_ACCOUNT.failed(held[key], now_s)])
        try:
            is_right = self._passwords.matches(account.password, current, known=True)
        except HashQueueFullError:
            with self._store.write() as tx:
                tx.people.failures.put(map(OF_ACCOUNT.given_back, tx.people.failures.hold([key]).values()))
            raise
        if not is_right:
            raise SignInRefusedError
        with self._store.write() as tx:
            tx.people.failures.forget([key])

    def reset_password(self, name: str, *, by: Access) -> str:
        """Return the secret of a one-time link that sets a new password, and lift a lock of the account.

        The present password is valid until the link is used.

        Raises:
            NotFoundError, ForbiddenError: as `account`.
        """
        by.require(Permission.PEOPLE)
        with self._store.write() as tx:
            account = find(tx, name)
            if account.disabled:
                text = phrase("cannot make a link for %(account)s: the account is disabled", account=account.name)
                raise ConflictError(
                    text, remedy=phrase("`edgegpu-cloud people enable %(account)s` first", account=account.name)
                )
            tx.people.failures.forget_all(of_account(account.name))
            return make_link(tx, account.name, self._who(by), kind=LinkKind.PASSWORD, lasts_s=PASSWORD_LINK_S)

    def first_admin_link(self, *, by: Access) -> str:
        """Return the secret of the one-time link by which the first admin makes an account; an earlier one is void.

        Raises:
            ConflictError: there is an admin.
            ForbiddenError: without the right to manage people.
        """
        by.require(Permission.PEOPLE)
        with self._store.write() as tx:
            tx.people.hold_accounts()
            if admins := [one.name for one in tx.people.accounts() if is_whole_admin(one)]:
                text = phrase("cannot make the first admin's link: there is an admin, %(admin)s", admin=admins[0])
                raise ConflictError(
                    text,
                    remedy=phrase(
                        "`edgegpu-cloud people reset-password %(admin)s` lets them in again", admin=admins[0]
                    ),
                )
            return make_link(tx, "", self._who(by), kind=LinkKind.FIRST_ADMIN, lasts_s=FIRST_ADMIN_S)

    def link(self, secret: str) -> OneTimeLink:
        """Return what a link is for, without using it.

        Raises:
            LinkRefusedError: unknown, used or too old.
        """
        with self._store.read() as tx:
            return self._usable(tx, secret)

    def redeem(self, link: str, name: str, password: str) -> UserAccount:
        """Set a password by a one-time link, which is used up; sessions of the account end.

        Args:
            link: the link's secret.
            name: the first admin chooses one; else it is the account's, or empty.
            password: the new one.

        Raises:
            LinkRefusedError: unknown, used or too old.
            WeakPasswordError: the password is not accepted; the link stays good.
            CloudError: no name of an account, or one that is taken; the link stays good.
        """
        with self._store.read() as tx:
            found = self._usable(tx, link)
        account = found.account or check_account_name(name)
        check_password(password, name=account)
        hash_ = self._passwords.hash(password, known=True)
        with self._store.write() as tx:
            tx.people.hold_accounts()
            self._usable(tx, link)
            if not tx.people.take_link(found.digest):
                raise LinkRefusedError
            who = Author(account, self._clock())
            if found.kind is LinkKind.FIRST_ADMIN:
                if any(map(is_whole_admin, tx.people.accounts())):
                    raise LinkRefusedError
                accounts.add(tx, UserAccount(name=account, role=Role.ADMIN, created_at_s=who.now_s), who)
            accounts.put_password(tx, account, hash_, who)
            sweep(tx, self._rules, who.now_s)
            return find(tx, account)

    def _usable(self, tx: Transaction, secret: str) -> OneTimeLink:
        found = tx.people.link(digest_of(secret))
        if found is None or self._clock() >= found.expires_at_s:
            raise LinkRefusedError
        return found

    def _who(self, by: Access) -> Author:
        return Author(by.by, self._clock())


def _is_own(by: Access, name: str) -> bool:
    """Whether an account is somebody's own, or they may manage people."""
    return by.by == normal_name(name) or by.may(Permission.PEOPLE)


def _require_own(by: Access, name: str) -> None:
    if not _is_own(by, name):
        raise ForbiddenError(
            phrase("cannot look at %(name)r: it is another's account", name=name[:80]), remedy=phrase("ask an admin")
        )


def _checked_scope(text: str) -> str:
    read_scope(text)
    return text.strip()


def _checked_language(text: str) -> str:
    if text not in LANGUAGES:
        raise CloudError(
            phrase("cannot set the language %(text)r", text=text[:20]),
            remedy=phrase("give en or zh, or nothing for the browser's"),
        )
    return text
