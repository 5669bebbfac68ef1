"""What a restore takes away again: a backup would give back what people have taken from anybody since."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from cryptography import x509

from edgegpu_cloud.cli.database.later import ALL_TOKENS, LaterController, LaterRecords, RevokedList
from edgegpu_cloud.enrolment.manager import is_valid, token_id
from edgegpu_cloud.fleet.access import both_scopes
from edgegpu_cloud.fleet.audit.entries import AuditedChange, Author, audit
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.changes import revoke_box
from edgegpu_cloud.layout import CloudLayout
from edgegpu_cloud.people import api_tokens
from edgegpu_cloud.people.accounts import note
from edgegpu_cloud.store.people.records import UserAccount
from edgegpu_cloud.store.records import Token
from edgegpu_cloud.store.store import ControllerStore, Transaction
from edgegpu_sync.ids import DeviceId


@dataclass(slots=True, kw_only=True)
class Withdrawal:
    """What was taken away. `certificates`: revoked ones that the backup does not know.

    `people`: a line for each change. `kept`: what stays as the backup has it, and may have been taken away since.
    """

    sessions: int = 0
    links: int = 0
    enrolment_tokens: list[str] = field(default_factory=list)
    api_tokens: list[str] = field(default_factory=list)
    boxes: list[str] = field(default_factory=list)
    certificates: int = 0
    people: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def withdraw(
    store: ControllerStore, later: LaterController, who: Author, *, new: CloudLayout, keep_api_tokens: bool
) -> Withdrawal:
    """Take away in a restored store, in one transaction, what nobody can vouch for, and what was taken away since.

    Sessions and one-time links end. What `later` knows to be revoked is revoked. Where it has no records, enrolment
    tokens and API tokens end, for nobody knows which are still valid; `keep_api_tokens` keeps the latter.
    """
    done = Withdrawal()
    with store.write() as tx:
        done.sessions, done.links = tx.people.end_everything()
        _enrolment_tokens(tx, later.records, who, done)
        if later.records is not None:
            _people(tx, later.records, who, done)
        _api_tokens(tx, later.records, who, done, keep=keep_api_tokens)
        _boxes(tx, later, who, done, new=new)
        if later.records is None:
            done.kept = list(_kept(tx))
    return done


def _enrolment_tokens(tx: Transaction, later: LaterRecords | None, who: Author, done: Withdrawal) -> None:
    for token in tx.enrolments.tokens(limit=ALL_TOKENS):
        if not is_valid(token, who.now_s):
            continue
        after = _token_now(token, None if later is None else later.tokens.get(token.digest))
        if after != token:
            tx.enrolments.put_token(after)
        if not is_valid(after, who.now_s):
            done.enrolment_tokens.append(token.name or token.label or token_id(token))
            change = AuditedChange({"revoked": False}, {"revoked": True})
            detail = {"token": token_id(token), "used": after.used}
            audit(tx, who, AuditKind.TOKEN_TAKEN_BACK, change, device="", detail=detail)


def _token_now(token: Token, last: Token | None) -> Token:
    """Return an enrolment token with what is left of it; none is, where nothing later is known of it."""
    if last is None:
        return replace(token, revoked=True)
    return replace(token, used=max(token.used, last.used), revoked=last.revoked or last.used >= last.uses)


def _people(tx: Transaction, later: LaterRecords, who: Author, done: Withdrawal) -> None:
    for account in tx.people.accounts():
        after = _less(account, later.accounts.get(account.name))
        if after == account:
            continue
        tx.people.put_account(after)
        for kind, before, then, words in _changes(account, after):
            done.people.append(f"{account.name}: {words}")
            note(tx, who, kind, account.name, AuditedChange(before, then))


def _less(account: UserAccount, last: UserAccount | None) -> UserAccount:
    """Return an account with no more than it had both in the backup and at the end."""
    if last is None:
        return replace(account, disabled=True)
    return replace(
        account,
        disabled=account.disabled or last.disabled,
        role=min(account.role, last.role, key=lambda role: role.rank),
        scope=account.scope if account.scope == last.scope else both_scopes(account.scope, last.scope),
        password=account.password if account.password == last.password else "",
    )


def _changes(
    before: UserAccount, after: UserAccount
) -> Iterator[tuple[AuditKind, dict[str, object], dict[str, object], str]]:
    if before.disabled != after.disabled:
        yield AuditKind.PERSON_DISABLED, {"disabled": False}, {"disabled": True}, "disabled"
    if before.role is not after.role:
        words = f"{after.role.value}, no longer {before.role.value}"
        yield AuditKind.PERSON_ROLE, {"role": before.role.value}, {"role": after.role.value}, words
    if before.scope != after.scope:
        words = f"boxes {after.scope}, no longer {before.scope or 'all'}"
        yield AuditKind.PERSON_SCOPE, {"scope": before.scope}, {"scope": after.scope}, words
    if before.password != after.password:
        yield (
            AuditKind.PERSON_PASSWORD,
            {},
            {},
            f"needs a new password: edgegpu-cloud people reset-password {after.name}",
        )


def _api_tokens(tx: Transaction, later: LaterRecords | None, who: Author, done: Withdrawal, *, keep: bool) -> None:
    for token in tx.people.tokens():
        is_kept = keep if later is None else token.digest in later.api_tokens
        if not is_kept:
            api_tokens.revoke(tx, token, who)
            done.api_tokens.append(f"{token.account}/{token.name}")


def _boxes(tx: Transaction, later: LaterController, who: Author, done: Withdrawal, *, new: CloudLayout) -> None:
    gone: set[DeviceId] = set()
    enrolled = tx.boxes.enrolled()
    boxes = tx.boxes.get(enrolled)
    if later.revoked is not None:
        found = tx.enrolments.revoke_serials(later.revoked.serials, now_s=who.now_s, until_s=_end_of_authority(new))
        done.certificates = found.unknown
        gone |= {
            record.device
            for record in found.certificates
            if record.device in boxes and record.enrolment == boxes[record.device].sequence.enrolment
        }
    if later.records is not None:
        gone |= set(enrolled) - later.records.enrolled
    for device in enrolled:
        if device in gone:
            revoke_box(tx, boxes[device], who)
            done.boxes.append(boxes[device].name)


def _end_of_authority(new: CloudLayout) -> float:
    return x509.load_pem_x509_certificate(new.ca_cert("boxes").read_bytes()).not_valid_after_utc.timestamp()


def _kept(tx: Transaction) -> Iterator[str]:
    for account in tx.people.accounts():
        if not account.disabled:
            yield f"{account.name}, {account.role.value}, boxes {account.scope or 'all'}, with the password of then"
    for token in tx.people.tokens():
        yield f"API token {token.account}/{token.name}, {token.role.value}"


def withdrawal_words(done: Withdrawal, later: LaterController, *, made: str) -> list[str]:
    """Return the lines for who is asked. `made`: when the backup was made."""
    lines = [f"the backup is of {made}. What was taken away since then would be given back; so this ends:"]
    lines.append(f"  {_number(done.sessions, 'session')} and {_number(done.links, 'one-time link')} of people")
    lines += [f"  enrolment token {name}" for name in done.enrolment_tokens]
    lines += [f"  API token {name}" for name in done.api_tokens]
    lines += [f"  box {name}: revoked" for name in done.boxes]
    lines += [f"  {line}" for line in done.people]
    if done.certificates:
        lines.append(f"  {_number(done.certificates, 'certificate')} of boxes that the backup does not know: revoked")
    lines.append(_source(later.revoked))
    if later.records is None:
        why = f" ({later.problem})" if later.problem else ""
        lines.append(f"nothing later is known of people and tokens{why}; compare what comes back as it was then:")
        lines += [f"  {line}" for line in done.kept] or ["  nobody"]
    return lines


def _source(revoked: RevokedList | None) -> str:
    if revoked is None:
        return "no later list of the revoked was found (--later): boxes that were revoked since come back"
    return f"the list of the revoked is {revoked.path}, number {revoked.number}"


def _number(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
