"""The status of the box's identity in its cloud, as a state and as sentences for people, and its file."""

import json
import logging
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import write_if_changed

_LOG = logging.getLogger(__name__)

STATUS_FILE = "agent-identity.json"
"""The file in the run folder with the identity's status, for the command line."""


class EnrolmentState(StrEnum):
    """The state of a box's enrolment in the cloud."""

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
    """The status that `edgegpu agent status` shows: `text` is why, `remedy` what to do, `warning` of enrolled boxes."""

    stand: EnrolmentState
    text: str = ""
    remedy: str = ""
    code: str = ""
    device: str = ""
    name: str = ""
    """The box's name in the cloud at its enrolment."""
    token_sha256: str = ""
    """The hash of the token that this status is about, by which a waiting command knows its answer."""
    enrolment: int = 0
    not_after_s: int = 0
    warning: str = ""
    failures: int = 0
    """How many times the renewal has failed since it was due."""

    def beside(self, trouble: str) -> "IdentityStatus":
        """Return the status of an enrolled box with another trouble of its link; any other status stays as it is."""
        if self.stand is not EnrolmentState.ENROLLED:
            return self
        return replace(self, warning="; ".join(part for part in (self.warning, trouble) if part))

    def document(self) -> dict[str, object]:
        """Return the status as JSON for the command line."""
        return {**asdict(self), "stand": self.stand.value}

    @property
    def line(self) -> str:
        """The status as one line for a log."""
        parts = [self.stand.value, self.text, self.warning, self.remedy and f"do: {self.remedy}"]
        return "; ".join(part for part in parts if part)


def write_status(path: Path, status: IdentityStatus) -> None:
    """Write the identity's status if the file differs; log an error of the disk, and go on.

    A boot empties the folder. The file can differ because another agent, which was started beside this one and could
    not go on the link, has written it.
    """
    try:
        write_if_changed(path, json.dumps(status.document()), mode=0o600)
    except EdgegpuError as error:
        _LOG.warning("%s", error)


RENEW_LEAST_S, RENEW_MOST_S = 60.0, 86_400.0
_TRIES_LEFT = 30


def renew_retry_s(left_s: float) -> float:
    """Return the seconds until a failed renewal is retried: about 30 tries in the time left, then once a minute."""
    return min(RENEW_MOST_S, max(RENEW_LEAST_S, left_s / _TRIES_LEFT))


ENROL_LEAST_S, ENROL_MOST_S = 5.0, 300.0


def enrol_retry_s(failures: int, jitter: float) -> float:
    """Return the seconds until an unanswered enrolment is retried; `jitter` (0 to 1) spreads the boxes of a fleet."""
    return min(ENROL_MOST_S, ENROL_LEAST_S * 2.0 ** min(failures, 10)) * (0.5 + jitter / 2)
