"""The task of the identity: it enrols the box, renews its certificate, and keeps a copied disk off the link."""

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from edgegpu_agent.identity import enrolment, renewal
from edgegpu_agent.identity.clock_floor import ClockFloor
from edgegpu_agent.identity.enrolment import BoxEnrolment, token_hash
from edgegpu_agent.identity.enrolment_client import CloudClient, PendingAnswer
from edgegpu_agent.identity.errors import DeniedError, IdentityError
from edgegpu_agent.identity.identity_files import BoxIdentity, CloudAddress, load_identity
from edgegpu_agent.identity.machine_id import instance
from edgegpu_agent.identity.renewal import LIFE, Renewal
from edgegpu_agent.identity.status import EnrolmentState, IdentityStatus, enrol_retry_s, renew_retry_s, write_status

_LOG = logging.getLogger(__name__)

_LEAST_WAIT_S, _MOST_WAIT_S = 0.5, 300.0

_AGAIN_S = 86_400.0
"""A new certificate that seems due at once (the time is wrong) is renewed after this, or a tenth of its life."""

LOOK_S = 5.0
"""Seconds between checks of the token's file and the certificate's age."""

ENROL = "edgegpu agent enrol --url URL --ca-sha256 HEX --token-file FILE, as your cloud prints it"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitySettings:
    """The paths and addresses of the identity's task; paths are those that this process opens."""

    folder: Path
    token: Path
    standing: Path
    """The status file for the command line."""
    root: Path
    cloud: CloudAddress
    host: str
    agent: str


class IdentityKeeper:
    """The loop of the identity's task; any thread may read `identity` and `standing`, and call `renew`."""

    def __init__(
        self,
        settings: IdentitySettings,
        *,
        clock: ClockFloor,
        client: Callable[[bytes], CloudClient],
        rng: random.Random,
        changed: Callable[[], None] = lambda: None,
        renewed: Callable[[], None] = lambda: None,
        look_s: float = LOOK_S,
    ) -> None:
        """Build the identity keeper.

        Args:
            settings: paths and addresses.
            clock: the clock for checks of certificates.
            client: returns a client for the cloud that trusts a CA.
            rng: spreads the retries of a fleet.
            changed: called from the loop when `identity` has changed.
            renewed: called when a new certificate is in place, on the thread of `renew`.
            look_s: seconds between two checks.
        """
        self._settings = settings
        self._clock = clock
        self._client = client
        self._rng = rng
        self._changed, self._renewed = changed, renewed
        self._look_s = look_s
        self._wake = threading.Event()
        self._stopping = False
        self._identity: BoxIdentity | None = None
        self.looked = False
        """Whether the identity was read, or is known to be missing."""
        self._instance = ""
        self._standing = self._told = IdentityStatus(stand=EnrolmentState.STARTING)
        self._denied = self._tried = ""
        self._failures = 0
        self._renewal: Renewal | None = None
        self._renew_failures = 0
        self._renew_after_s = 0.0
        self._renew_trouble: IdentityError | None = None
        self._token_trouble = ""
        self._trouble = ""

    @property
    def identity(self) -> BoxIdentity | None:
        """The identity of this box; None while it is not enrolled, or is a copy of another box."""
        return self._identity

    @property
    def standing(self) -> IdentityStatus:
        """The status of the box's identity."""
        return self._standing.beside(self._trouble)

    @property
    def instance(self) -> str:
        """The hash of this machine; empty before it was read."""
        return self._instance

    def run(self) -> None:
        """Check, enrol and renew, until `stop`."""
        wait_s = 0.0
        while not self._stopping:
            self._wake.wait(wait_s)
            self._wake.clear()
            if not self._stopping:
                wait_s = self._round()

    def stop(self) -> None:
        """Let `run` end."""
        self._stopping = True
        self._wake.set()

    def trouble(self, words: str) -> None:
        """Add another trouble of the link to the status of the enrolment; an empty text removes it."""
        if words != self._trouble:
            self._trouble = words
            self._wake.set()

    def renew(self, cause: str) -> None:
        """Get a new certificate for a cause, a command's id, once for each.

        Raises:
            IdentityError: the renewal failed; UnreachableError where another try may succeed.
        """
        renewing = self._renewal
        if renewing is None:
            raise IdentityError("cannot renew the certificate: this box is not enrolled", ENROL)
        if server_time := renewing.renew(cause):
            self._clock.learn_signed(server_time)
        self._wake.set()
        self._renewed()

    def _round(self) -> float:
        """Do one round, and return the seconds until the next one."""
        try:
            wait_s = self._look()
        except IdentityError as error:
            self._take(None)
            self._say(IdentityStatus(stand=EnrolmentState.BROKEN, text=error.text, remedy=error.remedy))
            wait_s = self._look_s
        return wait_s

    def _look(self) -> float:
        folder = self._settings.folder
        enrolment.settle(folder)
        renewal.settle(folder)
        self._instance = instance(self._settings.root)
        identity, token = load_identity(folder), self._token()
        if token and identity is not None and token_hash(token) == identity.device.token_sha256:
            self._spent()
            token = ""
        if identity is None or identity.device.instance != self._instance:
            self._take(None)
        if token and token_hash(token) != self._denied:
            self._take(self._identity)
            return self._enrol(token, identity)
        if not token:
            self._denied, self._token_trouble = "", ""
        if identity is None:
            self._nobody(token)
            return self._look_s
        return self._enrolled(identity)

    def _nobody(self, token: str) -> None:
        if not token:
            text = f"this box is not enrolled, and there is no token in {self._settings.token}"
            self._say(IdentityStatus(stand=EnrolmentState.NO_TOKEN, text=text, remedy=ENROL))

    def _enrolled(self, identity: BoxIdentity) -> float:
        if identity.device.instance != self._instance:
            text = "the identity on this disk is that of another machine: this one stays off the link"
            self._say(
                IdentityStatus(stand=EnrolmentState.CLONED, text=text, remedy=ENROL, device=identity.device.device)
            )
            return self._look_s
        self._take(identity)
        self._renew_by_age(identity)
        trouble = self._renew_trouble
        self._say(
            IdentityStatus(
                stand=EnrolmentState.ENROLLED,
                text=f"the certificate cannot be renewed: {trouble.text}" if trouble else "",
                remedy=trouble.remedy if trouble else "",
                device=identity.device.device,
                name=identity.device.name,
                token_sha256=self._tried if self._token_trouble else identity.device.token_sha256,
                enrolment=identity.device.enrolment,
                not_after_s=identity.certificate().not_after_s,
                warning=self._token_trouble,
                failures=self._renew_failures,
            )
        )
        return self._look_s

    def _enrol(self, token: str, before: BoxIdentity | None) -> float:
        settings = self._settings
        self._tried = token_hash(token)
        asking = BoxEnrolment(
            folder=settings.folder,
            cloud=settings.cloud,
            instance=self._instance,
            host=settings.host,
            agent=settings.agent,
            client=self._client,
        )
        try:
            answer = asking.attempt(token)
        except DeniedError as error:
            return self._refused(error, token, before)
        except IdentityError as error:
            self._failures += 1
            self._beside(before, IdentityStatus(stand=EnrolmentState.ENROLLING, text=error.text, remedy=error.remedy))
            return enrol_retry_s(self._failures, self._rng.random())
        self._failures = 0
        if isinstance(answer, PendingAnswer):
            text = "a person has to approve this box in the cloud"
            self._beside(before, IdentityStatus(stand=EnrolmentState.WAITING, text=text))
            return min(_MOST_WAIT_S, max(_LEAST_WAIT_S, answer.retry_s))
        self._clock.begin(answer.device.enrolled_s)
        self._spent()
        return 0.0

    def _refused(self, error: DeniedError, token: str, before: BoxIdentity | None) -> float:
        """Record the refusal; the token is not sent again, since a second use of a token is an alarm in the cloud."""
        self._denied = token_hash(token)
        remedy = error.remedy or ENROL
        self._beside(
            before, IdentityStatus(stand=EnrolmentState.REFUSED, text=error.text, remedy=remedy, code=error.code)
        )
        return self._look_s

    def _beside(self, before: BoxIdentity | None, standing: IdentityStatus) -> None:
        """Publish the status of a new enrolment; while an earlier one is valid, the new one is only a warning."""
        if before is None or before.device.instance != self._instance:
            self._say(replace(standing, token_sha256=self._tried))
            return
        self._token_trouble = f"enrolling anew with the token in {self._settings.token}: {standing.line}"
        self._enrolled(before)

    def _renew_by_age(self, identity: BoxIdentity) -> None:
        certificate = identity.certificate()
        self._clock.raise_to(certificate.not_before_s)
        now_s = self._clock.now_s
        self._clock.set_own_expired(ended=now_s >= certificate.not_after_s)
        if now_s < certificate.renew_at_s:
            self._renew_failures, self._renew_after_s, self._renew_trouble = 0, 0.0, None
        elif now_s >= self._renew_after_s:
            self._renew(identity, certificate.not_after_s - now_s)

    def _renew(self, identity: BoxIdentity, left_s: float) -> None:
        try:
            self.renew(LIFE)
        except IdentityError as error:
            self._renew_failures += 1
            self._renew_trouble = error
            self._renew_after_s = self._clock.now_s + renew_retry_s(left_s)
            return
        self._renew_failures, self._renew_trouble = 0, None
        fresh = identity.certificate()
        self._renew_after_s = self._clock.now_s + min(_AGAIN_S, (fresh.not_after_s - fresh.not_before_s) / 10)
        _LOG.info("the certificate was renewed")

    def _take(self, identity: BoxIdentity | None) -> None:
        if identity == self._identity and self.looked:
            return
        self._identity, self.looked = identity, True
        self._renewal = None
        if identity is not None:
            self._renewal = Renewal(
                identity=identity, instance=self._instance, cloud=self._settings.cloud, client=self._client
            )
        self._changed()

    def _token(self) -> str:
        try:
            return self._settings.token.read_text(encoding="ascii", errors="replace").strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise IdentityError(f"cannot read {self._settings.token}: {error.strerror}", "run it as root") from error

    def _spent(self) -> None:
        try:
            self._settings.token.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("cannot remove the token that was used, %s: %s", self._settings.token, error.strerror)

    def _say(self, standing: IdentityStatus) -> None:
        """Log a status when it changes, and write it for the command line."""
        self._standing = standing
        before, self._told = self._told, self.standing
        if self._told.line != before.line:
            good = standing.stand is EnrolmentState.ENROLLED and not standing.text
            _LOG.log(logging.INFO if good else logging.WARNING, "identity: %s", self._told.line)
        write_status(self._settings.standing, self._told)
