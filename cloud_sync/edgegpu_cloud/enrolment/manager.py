"""Tokens and waiting boxes for people: the command line, the console and the API use this and nothing else."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from edgegpu_cloud.enrolment import tokens
from edgegpu_cloud.errors import CloudError, ConflictError, NotFoundError
from edgegpu_cloud.fleet.access import Access, Permission
from edgegpu_cloud.fleet.audit.entries import AuditedChange, Author, audit
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.names import check_name, find_box
from edgegpu_cloud.layout import TokenConfig
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.enrolments import AttemptFilter, EnrolmentPlace, TokenFilter
from edgegpu_cloud.store.records import ONLY_FOR, EnrolmentAttempt, Json, RequestState, Token
from edgegpu_cloud.store.store import ControllerStore, Transaction

MOST_USES, MOST_TOKENS = 100_000, 1_000
"""Boxes that one token may enrol, and tokens that are made at once."""

SHORTEST_S, LONGEST_S = 1, 31_536_000
"""How long a token may last."""

DEFAULT_TOKENS = TokenConfig()

_SHOWN = ("uses", "approval", "name", "expires_at_s")
"""What the audit has of a new token, beside its labels."""

ID_LENGTH = 12
"""Characters of a token's digest by which people name it."""

PAGE, MOST_LISTED = 50, 10_000
"""How many tokens or attempts a page has, and how many a command lists at most."""

_TOLD = 10
"""So many are looked at where the beginning of an id names several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """A token as a person asks for it.

    `lasts_s`: seconds. It, `uses` and `approval` are None for what the configuration of the controller has. `name` is
    the box's, for several boxes how their names begin. `only_for`: name or id of the box that is enrolled anew with it,
    and no other.
    """

    lasts_s: int | None = None
    uses: int | None = None
    approval: bool | None = None
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    only_for: str = ""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made. `text` is the secret: it is stored nowhere and shown once."""

    token: Token
    text: str = field(repr=False)

    @property
    def id(self) -> str:
        """Return the id by which people name the token."""
        return token_id(self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """An attempt of a box to enrol. `made_by`: who made its token. `box`: the name of the box that came of it."""

    attempt: EnrolmentAttempt
    made_by: str
    box: str = ""

    @property
    def name(self) -> str:
        """Return what the box shall be called: by its token, else by its host's name."""
        return str(self.attempt.asked.get("name") or self.attempt.asked.get("host") or self.attempt.id[:ID_LENGTH])


def token_id(token: Token) -> str:
    """Return the id by which people name a token: the beginning of the hash of its text."""
    return token.digest[:ID_LENGTH]


def is_valid(token: Token, now_s: float) -> bool:
    """Whether a box may still come with a token."""
    return not token.revoked and token.used < token.uses and now_s < token.expires_at_s


class EnrolmentManager:
    """One person's view of enrolment; every method may raise StoreError, every change is audited under their name.

    Who sees a part of the boxes sees the tokens, and the attempts with them, whose labels put a box into that part.
    Each method that changes something raises ForbiddenError where the person may not enrol boxes.
    """

    def __init__(
        self,
        store: ControllerStore,
        *,
        clock: Callable[[], float],
        access: Access,
        defaults: TokenConfig = DEFAULT_TOKENS,
    ) -> None:
        """Take a store; `clock` returns seconds since 1970, `defaults` are those of tokens."""
        self._store, self._clock, self._access = store, clock, access
        self._scope = access.scope
        self.defaults = defaults
        """What a token gets where its request says nothing: on the command line, in the API and in the console."""

    # tokens

    def make(self, wanted: TokenRequest) -> NewToken:
        """Make a token.

        Raises:
            CloudError: a value is out of bounds, or its boxes would be outside of the person's scope.
            ForbiddenError: or its labels would take a box out of the scope of a person who is no admin.
            NotFoundError: there is no such box as `only_for`.
        """
        return self.make_many(wanted, 1)[0]

    def make_many(self, wanted: TokenRequest, number: int) -> list[NewToken]:
        """Make several tokens at once; where each is for one box, the names are `name`-1, `name`-2 and so on.

        Raises:
            CloudError: as `make`, or the number is out of bounds.
        """
        self._access.require(Permission.ENROL)
        if not 1 <= number <= MOST_TOKENS:
            text = phrase("cannot make %(number)s tokens", number=number)
            raise CloudError(text, remedy=phrase("give %(least)s to %(most)s tokens", least=1, most=MOST_TOKENS))
        made = []
        with self._store.write() as tx:
            for at in range(1, number + 1):
                name = f"{wanted.name}-{at}" if wanted.name and number > 1 else wanted.name
                made.append(self._made(tx, replace(wanted, name=name)))
        return made

    def _made(self, tx: Transaction, wanted: TokenRequest) -> NewToken:
        held = self.defaults
        lasts_s = held.lasts_s if wanted.lasts_s is None else wanted.lasts_s
        uses = held.uses if wanted.uses is None else wanted.uses
        _check(wanted, uses=uses, lasts_s=lasts_s)
        device = find_box(tx, wanted.only_for, self._scope).device if wanted.only_for else None
        if not self._scope.matches(wanted.labels) and (device is None or wanted.labels):
            if device is not None:  # its labels become those of the token
                self._access.require(Permission.MOVE)
            else:
                text = phrase("cannot make this token: its box would be outside of the boxes that you may see")
                raise CloudError(text, remedy=phrase("give it the labels of your scope"))
        secret, now_s = tokens.mint(), self._clock()
        token = Token(
            digest=tokens.digest(secret),
            by=self._access.by,
            at_s=now_s,
            expires_at_s=now_s + lasts_s,
            uses=1 if device else uses,
            approval=held.approval if wanted.approval is None else wanted.approval,
            name=wanted.name,
            labels=dict(wanted.labels) | ({ONLY_FOR: device} if device else {}),
        )
        tx.enrolments.add_token(token)
        made = AuditedChange({}, {name: getattr(token, name) for name in _SHOWN} | {"labels": dict(token.labels)})
        self._audit(tx, AuditKind.TOKEN_MADE, made, {"token": token_id(token)}, device=device or "")
        return NewToken(token, secret)

    def tokens(self, search: str = "", *, after: str = "", limit: int = PAGE) -> list[Token]:
        """Return tokens that a box may still come with, oldest first.

        Args:
            search: looked for in ids, names, labels and people; empty: all.
            after: `place_of` the last one of the page before; empty: from the first one.
            limit: how many at most.

        Raises:
            CloudError: `after` is no place.
        """
        where, place = self._valid(search), _place(after)
        with self._store.read() as tx:
            return tx.enrolments.tokens(where, after=place, limit=limit)

    def token_count(self, search: str = "") -> int:
        """Return how many tokens there are that a box may still come with."""
        with self._store.read() as tx:
            return tx.enrolments.token_count(self._valid(search))

    def _valid(self, search: str = "", *, begins: str = "") -> TokenFilter:
        terms = self._scope.terms
        return TokenFilter(scope=terms, begins=begins, search=_text(search), valid_at_s=self._clock())

    def token(self, id_: str) -> Token:
        """Return a token, valid or not, by the beginning of its hash.

        Raises:
            NotFoundError: none, or more than one.
        """
        with self._store.read() as tx:
            return _the_token(tx, TokenFilter(scope=self._scope.terms, begins=_text(id_)), id_)

    def take_back(self, id_: str) -> Token:
        """Make a valid token worthless at once.

        Raises:
            NotFoundError: none of this id is valid, or more than one.
        """
        self._access.require(Permission.ENROL)
        with self._store.write() as tx:
            token = replace(_the_token(tx, self._valid(begins=_text(id_)), id_), revoked=True)
            tx.enrolments.put_token(token)
            change = AuditedChange({"revoked": False}, {"revoked": True})
            self._audit(tx, AuditKind.TOKEN_TAKEN_BACK, change, {"token": token_id(token), "used": token.used})
        return token

    # boxes that wait

    def attempts(
        self,
        state: RequestState | None = None,
        *,
        token: str = "",
        search: str = "",
        after: str = "",
        newest_first: bool = False,
        limit: int = PAGE,
    ) -> list[AttemptView]:
        """Return attempts of boxes to enrol: those in a state, those with a token, or all.

        Args:
            state: None for every state.
            token: the beginning of a token's hash; empty for every token.
            search: looked for in names, hosts, addresses, ids and the tokens' makers; empty: all.
            after: `place_of` the last one of the page before; empty: from the first one.
            newest_first: the order; else the oldest ones come first.
            limit: how many at most.

        Raises:
            CloudError: `after` is no place.
        """
        where, place = self._asked(state, token=token, search=search), _place(after)
        with self._store.read() as tx:
            found = tx.enrolments.requests(where, after=place, newest_first=newest_first, limit=limit)
            made = tx.enrolments.tokens_of({one.token for one in found})
            known = tx.boxes.get([one.device for one in found if one.device])
            names = {device: box.name for device, box in known.items() if self._scope.matches(box.labels)}
        return [
            AttemptView(
                attempt=one,
                made_by=made[one.token].by if one.token in made else "",
                box=names.get(one.device, "") if one.device else "",
            )
            for one in found
        ]

    def attempt_count(self, state: RequestState | None = None, *, token: str = "", search: str = "") -> int:
        """Return how many attempts there are, as `attempts` takes them."""
        with self._store.read() as tx:
            return tx.enrolments.request_count(self._asked(state, token=token, search=search))

    def _asked(self, state: RequestState | None, *, token: str, search: str) -> AttemptFilter:
        return AttemptFilter(scope=self._scope.terms, state=state, token=_text(token), search=_text(search))

    def decide(self, id_: str, state: RequestState) -> AttemptView:
        """Approve or refuse a box that waits; the HTTPS process issues its certificate when the box asks again.

        Args:
            id_: the beginning of the attempt's id.
            state: APPROVED or REFUSED.

        Raises:
            NotFoundError: there is no such attempt.
            ConflictError: somebody has decided already.
        """
        self._access.require(Permission.ENROL)
        with self._store.write() as tx:
            before = _the_attempt(tx, AttemptFilter(scope=self._scope.terms, begins=_text(id_)), id_)
            if before.state is not RequestState.WAITING:
                text = phrase(
                    "cannot decide about %(id)s: it is %(state)s already",
                    id=before.id[:8],
                    state=before.state.value,
                )
                raise ConflictError(text, remedy=phrase("`edgegpu-cloud pending` lists those that wait"))
            after = replace(before, state=state)
            tx.enrolments.put_request(after)
            detail: Json = {"request": after.id, "host": after.asked.get("host", "")}
            change = AuditedChange({"state": before.state.value}, {"state": state.value})
            self._audit(tx, AuditKind(f"enrolment.{state.value.lower()}"), change, detail)
        with self._store.read() as tx:  # a write would lock it after the attempt: a box that asks locks it before
            token = tx.enrolments.token(after.token)
        return AttemptView(attempt=after, made_by=token.by if token else "")

    def _audit(
        self, tx: Transaction, what: AuditKind, change: AuditedChange, detail: Json, *, device: str = ""
    ) -> None:
        audit(tx, Author(self._access.by, self._clock()), what, change, device=device, detail=detail)


def _check(wanted: TokenRequest, *, uses: int, lasts_s: int) -> None:
    if wanted.name:
        check_name(wanted.name)
    if not 1 <= uses <= MOST_USES:
        text = phrase("cannot use a token for %(number)s boxes", number=uses)
        raise CloudError(text, remedy=phrase("give %(least)s to %(most)s boxes", least=1, most=MOST_USES))
    if not SHORTEST_S <= lasts_s <= LONGEST_S:
        text = phrase("cannot let a token last %(seconds)s s", seconds=lasts_s)
        raise CloudError(text, remedy=phrase("give %(least)s to %(most)s s", least=SHORTEST_S, most=LONGEST_S))
    if ONLY_FOR in wanted.labels:
        raise CloudError(
            phrase("cannot give a box the label %(only_for)s", only_for=ONLY_FOR),
            remedy=phrase("choose another label"),
        )


def _the_token(tx: Transaction, where: TokenFilter, id_: str) -> Token:
    named = tx.enrolments.tokens(where, limit=_TOLD) if where.begins else []
    if len(named) != 1:
        text = phrase("cannot tell which token %(id)r is: %(num)s begin so", id=id_[:80], num=len(named))
        raise NotFoundError(text, remedy=phrase("`edgegpu-cloud tokens` lists them"))
    return named[0]


def _the_attempt(tx: Transaction, where: AttemptFilter, id_: str) -> EnrolmentAttempt:
    named = tx.enrolments.requests(where, limit=_TOLD) if where.begins else []
    if not named:
        raise NotFoundError(
            phrase("cannot find a box that waits as %(id)r", id=id_[:80]),
            remedy=phrase("`edgegpu-cloud pending` lists them"),
        )
    if len(named) > 1:
        raise CloudError(
            phrase("cannot tell which box %(id)r is: %(num)s begin so", id=id_[:80], num=len(named)),
            remedy=phrase("give more letters of its id"),
        )
    return named[0]


def place_of(one: Token | EnrolmentAttempt) -> str:
    """Return the place of a token or an attempt in its list, after which the next page begins."""
    return f"{one.at_s!r} {one.digest if isinstance(one, Token) else one.id}"


def _place(text: str) -> EnrolmentPlace | None:
    if not text:
        return None
    at_s, _, key = _text(text).partition(" ")
    try:
        place = EnrolmentPlace(float(at_s), key)
    except ValueError:
        place = EnrolmentPlace(math.inf, "")
    if not math.isfinite(place.at_s):
        raise CloudError(
            phrase("cannot show this page: its cursor belongs to no page of this list"),
            remedy=phrase("open the first page"),
        )
    return place


def _text(words: str) -> str:
    """Return a text without the one character that PostgreSQL has in no text."""
    return words.replace("\0", "").strip()
