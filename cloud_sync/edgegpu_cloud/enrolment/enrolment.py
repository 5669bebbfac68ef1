"""Enrolment and renewal: tokens become identities, worn certificates new ones; a repeat gets the same answer."""

import hashlib
import json
import secrets
import string
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from edgegpu_cloud.enrolment import ca, tokens
from edgegpu_cloud.enrolment.bodies import (
    ApprovalPending,
    BrokerAddress,
    EnrolAsk,
    EnrolmentGranted,
    RenewalAnswer,
    RenewAsk,
)
from edgegpu_cloud.enrolment.ca import Authority, RequestError
from edgegpu_cloud.enrolment.issuing import Issuer
from edgegpu_cloud.enrolment.manager import token_id
from edgegpu_cloud.enrolment.tokens import RefusalCode, RequestRefusedError
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box, next_enrolment
from edgegpu_cloud.fleet.views import is_present
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.notes import Refusal
from edgegpu_cloud.store.records import (
    ONLY_FOR,
    BoxRecord,
    BoxState,
    EnrolledBox,
    EnrolmentAttempt,
    RequestState,
    Token,
)
from edgegpu_cloud.store.store import ControllerStore, Transaction
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.keys import is_signed_by

RENEW_DOMAIN = b"edgegpu renew 1\n"
"""The prefix of the body of `/v1/renew` under the box's signature."""

_ALPHABET = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentTerms:
    """The terms of enrolment: what every box receives, and how long its certificate lasts."""

    broker: BrokerAddress
    broker_ca: str
    root: str
    box_days: int


def mint_device() -> DeviceId:
    """Return a new device id: 16 of `a-z0-9`, never derived from anything of the box."""
    return DeviceId("".join(secrets.choice(_ALPHABET) for _ in range(16)))


class EnrolmentService:
    """The service behind `/v1/enrol` and `/v1/renew`; each answer is in the store before it is given."""

    def __init__(
        self,
        store: ControllerStore,
        *,
        authority: Authority,
        terms: EnrolmentTerms,
        revoked: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """Build the service; `revoked` is called after certificates were revoked: the CRL has to be written."""
        self._store, self._terms = store, terms
        self._issuer = Issuer(authority, terms.box_days)
        self._revoked, self._clock = revoked, clock
        self._lock = threading.Lock()
        self._throttled = 0
        self._last_throttled: tuple[EnrolAsk, str] | None = None

    # checks of the sender

    def knows(self, ask: EnrolAsk) -> bool:
        """Whether the store has this token, valid or not; one that retention has deleted is a stranger's.

        Raises:
            CloudError: the store does not answer.
        """
        with self._store.read() as tx:
            return tx.enrolments.token(tokens.digest(ask.token)) is not None

    def signed(self, ask: RenewAsk, *, signed: bytes, signature: str) -> bool:
        """Whether the key of this box has signed a renewal.

        Raises:
            CloudError: the store does not answer.
        """
        with self._store.read() as tx:
            box = tx.boxes.get([DeviceId(ask.device)]).get(DeviceId(ask.device))
        return box is not None and is_signed_by(box.public, signature, RENEW_DOMAIN + signed)

    def refusal(self, ask: EnrolAsk) -> RequestRefusedError | None:
        """Return why `enrol` would refuse this now, None where it would not; nothing is stored, and no alarm is raised.

        Raises:
            CloudError: the store does not answer.
        """
        now_s = self._clock()
        try:
            csr = _read(ask.csr)
            with self._store.read() as tx:
                request, _ = _checked(tx, ask, csr, now_s=now_s)
                if request is not None and request.state is RequestState.REFUSED:
                    raise _refused_by_person()
        except RequestRefusedError as error:
            return error
        return None

    # requests beyond the throttle of their token

    def throttled(self, ask: EnrolAsk, *, address: str) -> None:
        """Count a request that was not decided about, because its token was refused too often; nothing is stored."""
        with self._lock:
            self._throttled += 1
            self._last_throttled = ask, address

    def tell_throttled(self) -> None:
        """Store how many requests were counted since the last call: one alarm has them all. Raises CloudError."""
        with self._lock:
            number, last = self._throttled, self._last_throttled
            self._throttled, self._last_throttled = 0, None
        if last is None:
            return
        text = phrase(
            "%(who)s: too many refused requests with this token, the last ones were only counted",
            who=self._sender(*last),
        )
        with self._store.write() as tx:
            tx.notes.refused(Refusal.THROTTLED, number)
            tx.notes.alarm(f"enrol.{RefusalCode.TOO_MANY}", device="", text=text, now_s=self._clock(), times=number)

    # enrol

    def enrol(self, ask: EnrolAsk, *, address: str) -> EnrolmentGranted | ApprovalPending:
        """Exchange a token for an identity. The same request with the same keys gets the same answer, again and again.

        Args:
            ask: the request.
            address: of the sender, for people.

        Raises:
            RequestRefusedError: the request is refused; an alarm is in the store where the error asks for one.
            CloudError: the store does not answer.
        """
        now_s, csr = self._clock(), _read(ask.csr)
        try:
            with self._store.write() as tx:
                answer, anew = self._decide(tx, ask, csr, address=address, now_s=now_s)
        except RequestRefusedError as error:
            if error.alarm:
                self._alarm(error, "enrol", self._sender(ask, address), device=error.device)
            raise
        if anew:
            self._revoked()
        return answer

    def _sender(self, ask: EnrolAsk, address: str) -> str:
        """Return who has asked, for an alarm: host, address, and whose token it was."""
        with self._store.read() as tx:
            token = tx.enrolments.token(tokens.digest(ask.token))
        host = ask.host or phrase("a box")
        if token is None:
            return phrase("%(host)s at %(address)s", host=host, address=address)
        return phrase(
            "%(host)s at %(address)s, with the token %(token)s of %(by)s",
            host=host,
            address=address,
            token=token_id(token),
            by=token.by,
        )

    def _decide(
        self, tx: Transaction, ask: EnrolAsk, csr: ca.CertificateRequest, *, address: str, now_s: float
    ) -> tuple[EnrolmentGranted | ApprovalPending, bool]:
        request, token = _checked(tx, ask, csr, now_s=now_s)
        if request is None:
            asked = ask.model_dump(mode="json", exclude={"token"}) | {
                "address": address,
                "name": tokens.box_name(token),
            }
            state = RequestState.WAITING if token.approval else RequestState.APPROVED
            request = EnrolmentAttempt(
                id=_attempt_id(ask), token=token.digest, digest=_bound(ask, csr), asked=asked, at_s=now_s
            )
            tx.enrolments.put_token(token)
            tx.enrolments.add_request(request)
            request = replace(request, state=state)
        return self._by_state(tx, request, token, csr, now_s=now_s)

    def _by_state(
        self, tx: Transaction, request: EnrolmentAttempt, token: Token, csr: ca.CertificateRequest, *, now_s: float
    ) -> tuple[EnrolmentGranted | ApprovalPending, bool]:
        match request.state:
            case RequestState.WAITING:
                return ApprovalPending(), False
            case RequestState.REFUSED:
                raise _refused_by_person()
            case RequestState.APPROVED:
                return self._grant(tx, request, token, csr, now_s=now_s)
            case RequestState.DONE:
                return self._again(tx, request, now_s), False

    def _grant(
        self, tx: Transaction, request: EnrolmentAttempt, token: Token, csr: ca.CertificateRequest, *, now_s: float
    ) -> tuple[EnrolmentGranted, bool]:
        asked = request.asked
        home = _home(tx, token, asked["instance"], now_s)  # again: what was approved may be long ago
        device = home.device if home else mint_device()
        enrolled = EnrolledBox(
            device=device,
            enrolment=next_enrolment(tx, device),
            public=asked["sign_key"],
            instance=asked["instance"],
            name=home.name if home else _free_name(tx, asked["name"] or asked["host"], device),
            labels={key: value for key, value in token.labels.items() if key != ONLY_FOR},
            host=asked["host"],
        )
        add_box(tx, enrolled, Author(token.by, now_s))
        if home:
            tx.enrolments.revoke_certificates(device, now_s=now_s, below_enrolment=enrolled.enrolment)
        certificate = self._issuer.issue(tx, csr, device=device, enrolment=enrolled.enrolment, now_s=now_s)
        answer = {"device": device, "enrolment": enrolled.enrolment, "certificate": certificate}
        done = replace(request, state=RequestState.DONE, answer=answer, device=device)
        tx.enrolments.put_request(done)
        return self._answer(tx, done, now_s), home is not None

    def _again(self, tx: Transaction, request: EnrolmentAttempt, now_s: float) -> EnrolmentGranted:
        device = request.device
        box = tx.boxes.get([device]).get(device) if device else None
        if (
            box is None
            or box.state is not BoxState.ENROLLED
            or box.sequence.enrolment != (request.answer or {})["enrolment"]
        ):
            text = phrase(
                "what this request was answered is no longer valid: the box was revoked, forgotten, or enrolled anew"
            )
            raise RequestRefusedError(RefusalCode.REFUSED, text, "enrol it with a new token", alarm=True)
        return self._answer(tx, request, now_s)

    def _answer(self, tx: Transaction, request: EnrolmentAttempt, now_s: float) -> EnrolmentGranted:
        answer = request.answer or {}
        device = answer["device"]
        return EnrolmentGranted(
            **answer,
            name=tx.boxes.get([device])[device].name,
            broker=self._terms.broker,
            broker_ca=self._terms.broker_ca,
            root=self._terms.root,
            keys=tx.notes.chain(),
            server_time=tx.leases.server_times([device], now_s)[device],
        )

    # renew

    def renew(self, ask: RenewAsk, *, signed: bytes, signature: str, address: str) -> RenewalAnswer:
        """Give a box a new certificate; the same request gets the same one, while a third of its life is left.

        Args:
            ask: what `signed` says.
            signed: the body, byte for byte.
            signature: base64url of the Ed25519 signature by the box's key over `RENEW_DOMAIN` and the body.
            address: of the sender, for people.

        Raises:
            RequestRefusedError: the request is refused; an alarm is in the store where the error asks for one.
            CloudError: the store does not answer.
        """
        now_s, device = self._clock(), DeviceId(ask.device)
        try:
            with self._store.write() as tx:
                _check_signer(tx.boxes.get([device]).get(device), ask, signed=signed, signature=signature)
                csr = _read(ask.csr)
                certificate = self._issuer.issue(tx, csr, device=device, enrolment=ask.enrolment, now_s=now_s)
                server_time = tx.leases.server_times([device], now_s)[device]
                return RenewalAnswer(certificate=certificate, server_time=server_time)
        except RequestRefusedError as error:
            if error.alarm:
                who = phrase("%(host)s at %(address)s", host=ask.device, address=address)
                self._alarm(error, "renew", who, device=ask.device)
            raise

    def _alarm(self, error: RequestRefusedError, kind: str, who: str, *, device: str) -> None:
        with self._store.write() as tx:
            if kind == "enrol":
                tx.notes.refused(Refusal.ALARMED)
            tx.notes.alarm(
                f"{kind}.{error.code}",
                device=device,
                text=phrase("%(who)s: %(text)s", who=who, text=error.text),
                now_s=self._clock(),
            )


def _read(csr: str) -> ca.CertificateRequest:
    try:
        return ca.read_request(csr)
    except RequestError as error:
        raise RequestRefusedError(
            RefusalCode.BAD_REQUEST, error.text, "check that this cloud knows the agent's version"
        ) from error


def _checked(
    tx: Transaction, ask: EnrolAsk, csr: ca.CertificateRequest, *, now_s: float
) -> tuple[EnrolmentAttempt | None, Token]:
    """Return the attempt that a request repeats and its token; for a new attempt None and the token after its use.

    Nothing is stored: a request that is refused uses no token, and nobody is asked to approve it.
    """
    token = tx.enrolments.token(tokens.digest(ask.token))
    if token is None:
        raise RequestRefusedError(RefusalCode.TOKEN_UNKNOWN)
    request = tx.enrolments.request(_attempt_id(ask))
    if request is None:
        token = tokens.spend(token, now_s)
        _home(tx, token, ask.instance, now_s)
    elif request.digest != _bound(ask, csr):
        raise RequestRefusedError(RefusalCode.TOKEN_USED, alarm=True)
    return request, token


def _attempt_id(ask: EnrolAsk) -> str:
    return tokens.digest(f"{tokens.digest(ask.token)} {ask.request}")[:32]


def _refused_by_person() -> RequestRefusedError:
    return RequestRefusedError(RefusalCode.REFUSED, "a person has refused this box", "ask who runs the cloud")


def _bound(ask: EnrolAsk, csr: ca.CertificateRequest) -> str:
    """Return a hash of the keys and the machine that an answer belongs to.

    A thief who has seen token and request id, but not the keys, gets no answer.
    """
    value = json.dumps([csr.digest, ask.sign_key, ask.instance])
    return hashlib.sha256(value.encode()).hexdigest()


def _home(tx: Transaction, token: Token, instance: str, now_s: float) -> BoxRecord | None:
    """Return the box that a token is for; None where the token makes a new one.

    A machine says itself which one it is, and a hash of its ids is no secret. So only a token that was made for a box
    makes a machine that box; any other one, for another box too, is refused to a machine that is a box already.
    """
    same = tx.boxes.with_instance(instance)
    if only := tokens.only_for(token):
        box = tx.boxes.get([DeviceId(only)]).get(DeviceId(only))
        if box is None:
            raise RequestRefusedError(RefusalCode.REFUSED, "the box that this token is for is gone", "get a new token")
        _check_not_aside(box)
        if same and box.device not in same:
            raise _another_box(tx.boxes.get(same)[same[-1]], box)
        return box
    if same:
        box = tx.boxes.get(same)[same[-1]]
        _check_not_aside(box)
        raise _not_for_it(box, now_s)
    return None


def _not_for_it(box: BoxRecord, now_s: float) -> RequestRefusedError:
    """Return why a machine that says it is this box is refused: its token is not for the box."""
    remedy = f"if it is that box indeed: `edgegpu-cloud enrol --for {box.name}` gives a token for it alone"
    if box.state is BoxState.REVOKED:
        text = phrase("this machine is the box %(box)s, which is revoked", box=box.name)
    else:
        standing = phrase("enrolled already, and this token is not for that box")
        if is_present(box, now_s=now_s):
            standing = phrase("online")
        text = phrase(
            "this machine has the machine id of the box %(box)s, which is %(standing)s", box=box.name, standing=standing
        )
        remedy = f"{remedy}; a copy of its disk needs a machine id of its own first (`systemd-machine-id-setup`)"
    return RequestRefusedError(RefusalCode.REFUSED, text, remedy, alarm=True, device=box.device)


def _another_box(box: BoxRecord, wanted: BoxRecord) -> RequestRefusedError:
    """Return why a machine that says it is a box is refused to become another: both would have its ids from then on."""
    text = phrase(
        "this machine has the machine id of the box %(box)s, and this token is for the box %(wanted)s",
        box=box.name,
        wanted=wanted.name,
    )
    remedy = (
        f"if it shall stay {box.name}: `edgegpu-cloud enrol --for {box.name}` gives the token; if it shall be "
        f"{wanted.name}: `edgegpu-cloud boxes forget {box.name}` first, then this line again; a copy of its disk needs "
        "a machine id of its own first (`systemd-machine-id-setup`)"
    )
    return RequestRefusedError(RefusalCode.REFUSED, text, remedy, alarm=True, device=wanted.device)


def _check_not_aside(box: BoxRecord) -> None:
    """Refuse a box whose numbers cannot be followed: they would be the same under the next enrolment."""
    if box.state is BoxState.SET_ASIDE:
        text = phrase(
            "this machine is the box %(box)s, which is set aside: its numbers cannot be followed", box=box.name
        )
        remedy = f"`edgegpu-cloud boxes forget {box.name}`, then enrol it with a new token: it becomes another box"
        raise RequestRefusedError(RefusalCode.REFUSED, text, remedy, alarm=True, device=box.device)


def _free_name(tx: Transaction, wanted: str, device: DeviceId) -> str:
    """Return a name that no other box has and that is safe in shells and tables."""
    clean = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in wanted).strip("-.")[:60]
    clean = clean or f"box-{device[:6]}"
    return f"{clean}-{device[:6]}" if tx.boxes.with_exact_name(clean) else clean


def _check_signer(box: BoxRecord | None, ask: RenewAsk, *, signed: bytes, signature: str) -> None:
    if box is None:
        raise RequestRefusedError(RefusalCode.REFUSED, "this box is not known here", "enrol it with a new token")
    if not is_signed_by(box.public, signature, RENEW_DOMAIN + signed):
        text = "the signature is not that of this box's present enrolment"
        raise RequestRefusedError(RefusalCode.REFUSED, text, f"enrol it anew: `edgegpu-cloud enrol --for {box.name}`")
    _check_not_aside(box)
    if box.state is BoxState.REVOKED:
        raise RequestRefusedError(RefusalCode.REFUSED, "this box is revoked", f"`edgegpu-cloud enrol --for {box.name}`")
    if ask.enrolment != box.sequence.enrolment:
        text = f"it is enrolment {ask.enrolment}, the box has {box.sequence.enrolment}"
        raise RequestRefusedError(RefusalCode.REFUSED, text, "enrol it anew")
    if ask.instance != box.sequence.instance:
        text = phrase("another machine than the one that was enrolled: a copy of its disk")
        remedy = "give the copy a machine id of its own, and enrol it as a box of its own"
        raise RequestRefusedError(RefusalCode.REFUSED, text, remedy, alarm=True)
