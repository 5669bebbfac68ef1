"""Requests that a client may send again: the change is made once, and its answer is given each time."""

import base64
import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from edgegpu_cloud.errors import CloudError, ConflictError
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.idempotency.tables import IdempotencyKey
from edgegpu_cloud.store.store import ControllerStore, Transaction, in_same_transaction

LASTS_S = 86_400.0
"""After so long a key is a new one."""
TAKEN_OVER_S = 60.0
"""A try that has neither changed anything nor ended after so long is given up: its process has died, or hangs."""
_NONCE_BYTES = 12


class KeyReusedError(CloudError):
    """Another request was sent under this key."""


class InFlightError(ConflictError):
    """The request under this key is being done at this moment."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The answer of a request: the status of HTTP, and the body as JSON text."""

    status: int
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatableRequest:
    """A request under a key: who sends it, the key, and the SHA-256 of all that says what is asked for."""

    by: str
    key: str
    digest: str


class IdempotentRequests:
    """Makes the change of a request once.

    `done` is written in the transaction of the change itself. Where a process dies between the change and its answer,
    the change is not made again, and who asks again hears that the answer is lost.
    """

    def __init__(self, store: ControllerStore, *, clock: Callable[[], float]) -> None:
        """Take a store; `clock` returns seconds since 1970."""
        self._store, self._clock = store, clock

    def once(self, request: RepeatableRequest, change: Callable[[], StoredAnswer]) -> tuple[StoredAnswer, bool]:
        """Return the answer of a change, made now or before, and whether it was made before.

        A change that raises has made nothing: the key is free again.

        Raises:
            KeyReusedError: another request was sent under this key.
            InFlightError: this request is being done at this moment.
            ConflictError: it was done, and its answer is lost.
        """
        claimed = self._claim(request)
        if isinstance(claimed, StoredAnswer):
            return claimed, True
        try:
            with in_same_transaction(partial(_mark_done, claimed)):
                answer = change()
        except BaseException:
            with self._store.write() as tx:
                tx.idempotency.release(claimed)
            raise
        with self._store.write() as tx:
            tx.idempotency.put_answer(claimed, _sealed(request, answer))
        return answer, False

    def _claim(self, request: RepeatableRequest) -> IdempotencyKey | StoredAnswer:
        now_s, claim = self._clock(), secrets.token_hex(16)
        new = IdempotencyKey(by=request.by, key=_hashed(request.key), request=request.digest, claim=claim, at_s=now_s)
        with self._store.write() as tx:
            tx.idempotency.forget(now_s - LASTS_S)
            held = tx.idempotency.get(new.by, new.key)
            if held is None:
                if not tx.idempotency.add(new):
                    raise _in_flight()
                return new
            if held.request != new.request:
                text = phrase("cannot do this under its Idempotency-Key: another request was sent under it")
                raise KeyReusedError(text, remedy=phrase("choose another key for another request"))
            if held.answer is not None:
                return _opened(request, held.answer)
            if held.done and now_s - held.at_s >= TAKEN_OVER_S:
                text = phrase("cannot answer under this Idempotency-Key: the change was made, and its answer is lost")
                raise ConflictError(text, remedy=phrase("read what there is now; do not send it under another key"))
            if held.done or now_s - held.at_s < TAKEN_OVER_S:
                raise _in_flight()
            tx.idempotency.take_over(held, claim=claim, now_s=now_s)
            return new


def _in_flight() -> InFlightError:
    text = phrase("cannot do this under its Idempotency-Key: the same request is being done at this moment")
    return InFlightError(text, remedy=phrase("send it again in a few seconds, under the same key"))


def _mark_done(claimed: IdempotencyKey, tx: Transaction) -> None:
    """Note the change in its own transaction; one that another try has taken over is rolled back."""
    if not tx.idempotency.mark_done(claimed):
        raise _in_flight()


def _hashed(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _cipher(request: RepeatableRequest) -> AESGCM:
    """Return the cipher of an answer: an answer may hold a secret, and whoever reads the store has no key."""
    return AESGCM(hashlib.sha256(b"answer of an idempotent request\0" + request.key.encode()).digest())


def _sealed(request: RepeatableRequest, answer: StoredAnswer) -> str:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    text = _cipher(request).encrypt(nonce, json.dumps(asdict(answer)).encode(), request.by.encode())
    return base64.b64encode(nonce + text).decode()


def _opened(request: RepeatableRequest, sealed: str) -> StoredAnswer:
    data = base64.b64decode(sealed)
    text = _cipher(request).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], request.by.encode())
    return StoredAnswer(**json.loads(text))
