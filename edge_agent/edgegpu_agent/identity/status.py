"""How this box stands with its cloud, in a word and in sentences for people: pure, no I/O."""

from dataclasses import dataclass, replace
from enum import StrEnum

STANDING = "agent-identity.json"
"""In the run folder: how the identity stands, for the command line."""


class EnrolmentState(StrEnum):
    """Where a box is on its way into the cloud."""

    STARTING = "starting"
    NO_TOKEN = "no token"  # noqa: S105  (a word for people)
    ENROLLING = "enrolling"
    WAITING = "waiting for approval"
    REFUSED = "refused"
    ENROLLED = "enrolled"
    CLONED = "cloned"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityStatus:
    """What `edgegpu agent status` shows; `text` is why, `remedy` what to do. `warning` stands beside an enrolment."""

    stand: EnrolmentState
    text: str = ""
    remedy: str = ""
    code: str = ""
    device: str = ""
    name: str = ""
    """What people in the cloud called the box when it was enrolled."""
    token_sha256: str = ""
    """Of the token that this is about: who handed one in knows by it that this is the answer."""
    enrolment: int = 0
    not_after_s: int = 0
    warning: str = ""
    failures: int = 0
    """How often the renewal has failed since it was due."""

    def beside(self, trouble: str) -> "IdentityStatus":
        """Return it with what else keeps an enrolled box off the link; one that is not enrolled says why already."""
        if self.stand is not EnrolmentState.ENROLLED:
            return self
        return replace(self, warning="; ".join(part for part in (self.warning, trouble) if part))

    def document(self) -> dict[str, object]:
        """Return it as it is written for the command line."""
        return {
            "stand": self.stand.value,
            "text": self.text,
            "remedy": self.remedy,
            "code": self.code,
            "device": self.device,
            "name": self.name,
            "token_sha256": self.token_sha256,
            "enrolment": self.enrolment,
            "not_after_s": self.not_after_s,
            "warning": self.warning,
            "failures": self.failures,
        }

    @property
    def line(self) -> str:
        """One line for a log."""
        parts = [self.stand.value, self.text, self.warning, self.remedy and f"do: {self.remedy}"]
        return "; ".join(part for part in parts if part)


RENEW_LEAST_S, RENEW_MOST_S = 60.0, 86_400.0
_TRIES_LEFT = 30


def renew_retry_s(left_s: float) -> float:
    """Return how long a failed renewal waits: some thirty tries in what is left, once a minute when nothing is."""
    return min(RENEW_MOST_S, max(RENEW_LEAST_S, left_s / _TRIES_LEFT))


ENROL_LEAST_S, ENROL_MOST_S = 5.0, 300.0


def enrol_retry_s(failures: int, jitter: float) -> float:
    """Return how long an enrolment without an answer waits; `jitter`, 0 to 1, keeps a fleet from coming at once."""
    return min(ENROL_MOST_S, ENROL_LEAST_S * 2.0 ** min(failures, 10)) * (0.5 + jitter / 2)
