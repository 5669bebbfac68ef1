"""One-time tokens: how they are made and used, why a request is refused, and a throttle for wrong tries."""

import hashlib
import secrets
from dataclasses import dataclass, replace
from enum import StrEnum

from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.records import ONLY_FOR, Token

TEXT_LENGTH = 32
"""Characters of a token: 160 random bits in the alphabet below, which nobody guesses."""
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


class RefusalCode(StrEnum):
    """Why an enrolment or a renewal was refused: the `code` of the answer."""

    TOKEN_UNKNOWN = "TOKEN_UNKNOWN"  # noqa: S105  (the name of a code)
    TOKEN_USED = "TOKEN_USED"  # noqa: S105
    TOKEN_EXPIRED = "TOKEN_EXPIRED"  # noqa: S105
    TOKEN_EXHAUSTED = "TOKEN_EXHAUSTED"  # noqa: S105
    BAD_REQUEST = "BAD_REQUEST"
    REFUSED = "REFUSED"
    TOO_MANY = "TOO_MANY"


_WORDS = {
    RefusalCode.TOKEN_UNKNOWN: (
        phrase("this token is not known here"),
        "paste the line again, whole; or get a new one with `edgegpu-cloud enrol`",
    ),
    RefusalCode.TOKEN_USED: (
        phrase("this token was used already, for another box or another try"),
        "get a new one with `edgegpu-cloud enrol`; if nobody of yours used it, look at `edgegpu-cloud boxes` first",
    ),
    RefusalCode.TOKEN_EXPIRED: (phrase("this token is too old"), "get a new one with `edgegpu-cloud enrol`"),
    RefusalCode.TOKEN_EXHAUSTED: (
        phrase("this token was used as often as it may be"),
        "get a new one with `edgegpu-cloud enrol --count N`",
    ),
}


class RequestRefusedError(Exception):
    """A request of a box that is refused: `code`, `text`, `remedy` go into the answer.

    `alarm`: people must know. `device`: the box that the alarm is of; empty for none.
    """

    def __init__(
        self, code: RefusalCode, text: str = "", remedy: str = "", *, alarm: bool = False, device: str = ""
    ) -> None:
        words = _WORDS.get(code, ("", ""))
        self.code, self.text, self.remedy = code, text or words[0], remedy or words[1]
        self.alarm, self.device = alarm, device
        super().__init__(f"{code}: {self.text}")


def spend(token: Token, now_s: float) -> Token:
    """Return a token after one more use.

    Raises:
        RequestRefusedError: TOKEN_USED, TOKEN_EXHAUSTED or TOKEN_EXPIRED, each with an alarm: somebody else may have
            the token, and whoever pasted it waits for a box that does not come.
    """
    if token.used >= token.uses:
        raise RequestRefusedError(
            RefusalCode.TOKEN_USED if token.uses == 1 else RefusalCode.TOKEN_EXHAUSTED, alarm=True
        )
    if token.revoked:
        raise RequestRefusedError(RefusalCode.TOKEN_EXPIRED, phrase("this token was taken back"), alarm=True)
    if now_s >= token.expires_at_s:
        raise RequestRefusedError(RefusalCode.TOKEN_EXPIRED, alarm=True)
    return replace(token, used=token.used + 1)


def box_name(token: Token) -> str:
    """Return the name for the box of a token's last use; empty where the token has none."""
    return f"{token.name}-{token.used}" if token.name and token.uses > 1 else token.name


def only_for(token: Token) -> str:
    """Return the device id of the one box that a token enrols anew; empty where any box may use it."""
    return token.labels.get(ONLY_FOR, "")


def mint() -> str:
    """Return a new token's text: 32 of `a-z2-7`."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(TEXT_LENGTH))


def digest(text: str) -> str:
    """Return what is stored of a token: the SHA-256 of its text, 64 hexadecimal digits.

    There is no salt and no slow hash: a text has 160 random bits, which nobody tries out.
    """
    return hashlib.sha256(text.strip().encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class _Tries:
    since_s: float
    count: int


class Throttle:
    """A count of wrong tries by address; after too many it waits, right or wrong, until the period is over."""

    def __init__(self, *, most: int = 20, period_s: float = 600.0, addresses: int = 4_096) -> None:
        self._most, self._period_s, self._addresses = most, period_s, addresses
        self._tries: dict[str, _Tries] = {}

    def wait_s(self, address: str, now_s: float) -> float:
        """Return for how many more seconds this address has to wait; usually 0."""
        tries = self._tries.get(address)
        if tries is None or tries.count < self._most:
            return 0.0
        return max(0.0, tries.since_s + self._period_s - now_s)

    def wrong(self, address: str, now_s: float) -> None:
        """Count a wrong try; when there are too many addresses the first is forgotten."""
        tries = self._tries.pop(address, None)
        if tries is None or now_s >= tries.since_s + self._period_s:
            tries = _Tries(now_s, 0)
        self._tries[address] = _Tries(tries.since_s, tries.count + 1)
        while len(self._tries) > self._addresses:
            del self._tries[next(iter(self._tries))]
