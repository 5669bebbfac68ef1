"""The alerts in the store: the look at the fleet, what people see and silence, and the messages to webhooks."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgegpu_cloud.alerts.findings import OwnCertificate, about_of, findings
from edgegpu_cloud.alerts.rollout_ends import over_reason, rollout_of
from edgegpu_cloud.alerts.rules import PATIENCE, Alert, AlertEvent, AlertKind, Patience, step
from edgegpu_cloud.alerts.webhook import TIMEOUT_S, WebhookError, WebhookTarget, host_of, message, post
from edgegpu_cloud.alerts.webhooks import Webhooks, receiver_urls, target_of
from edgegpu_cloud.errors import CloudError, NotFoundError
from edgegpu_cloud.fleet.access import Access, Permission
from edgegpu_cloud.fleet.audit.entries import Author, audit, difference
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.changes import see_alarm
from edgegpu_cloud.fleet.names import find_box
from edgegpu_cloud.layout import AlertConfig
from edgegpu_cloud.outage_log import OutageLog
from edgegpu_cloud.phrases import phrase, phrase_json, read_phrase
from edgegpu_cloud.store.alerts.tables import THAT_FIRE, AlertFilter, StoredDelivery
from edgegpu_cloud.store.controllers.leadership import Leadership, LeasesLostError, SoleLeader
from edgegpu_cloud.store.controllers.next_turn import tried_next_turn
from edgegpu_cloud.store.convert import record_of
from edgegpu_cloud.store.store import ControllerStore, StoreError, Transaction

_LOG = logging.getLogger(__name__)

LOOK_S = 15.0
"""How often the fleet is looked at, and due messages are sent."""

GIVEN_UP_S = 86_400.0
"""A message that no receiver has taken for so long is dropped."""

_LOOK = "look for alerts"

LONGEST_SILENCE_S = 30 * 86_400

_AT_ONCE, _CLAIM_S = 20, 120.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 15.0, 1_800.0


MOST_OF_A_CAUSE = 10_000
"""Alerts that are looked at together."""
_MOST_AT_ONCE = 200
"""Alerts that are silenced in one write."""


@dataclass(frozen=True, slots=True)
class AlertCause:
    """What several alerts have in common: their kind, and what they are about.

    `number`: how many fire; `silenced`: how many of these are silenced.
    """

    kind: AlertKind
    about: str
    number: int
    silenced: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertView:
    """An alert and the name of its box, which is empty where it is no box's."""

    alert: Alert
    box: str


class Alerts:
    """One person's way to the alerts: those of the boxes in the scope, and without a scope those of no box too.

    Every method may raise StoreError, and ForbiddenError where the person may not do this.
    """

    def __init__(
        self,
        store: ControllerStore,
        config: AlertConfig,
        *,
        access: Access,
        controller: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take a store; changes are audited under the person's name, `clock` returns seconds since 1970.

        `controller` is its name, for test messages.
        """
        self._store, self._config, self._access, self._clock = store, config, access, clock
        self._controller = controller

    def list(
        self, name_or_id: str = "", *, where: AlertFilter = THAT_FIRE, before: int = 0, limit: int = 500
    ) -> Sequence[AlertView]:
        """Return alerts, newest first: of all boxes, or of one; those with a lower number than `before`, if not 0.

        Raises:
            NotFoundError: no such box.
        """
        self._access.require(Permission.VIEW)
        scope = self._access.scope
        with self._store.read() as tx:
            device = find_box(tx, name_or_id, scope).device if name_or_id else None
            rows = tx.alerts.page(where, device=device, scope=scope.terms, before=before, limit=limit)
            found = [alert_of(row) for row in rows]
            names = tx.conditions.names(sorted({one.device for one in found}))
            return [AlertView(alert=one, box=names.get(one.device, "")) for one in found]

    def unsilenced(self) -> int:
        """Return how many alerts fire that nobody has silenced."""
        self._access.require(Permission.VIEW)
        with self._store.read() as tx:
            return tx.alerts.firing(self._access.scope.terms, unsilenced_at_s=self._clock())

    def causes(self) -> Sequence[AlertCause]:
        """Return what fires by its cause, the most frequent first: the same kind about the same thing on some boxes."""
        alerts = [one.alert for one in self.list(limit=MOST_OF_A_CAUSE)]
        now_s = self._clock()
        counts = Counter((one.kind, one.about) for one in alerts)
        silenced = Counter((one.kind, one.about) for one in alerts if one.is_silenced(now_s))
        return [AlertCause(*cause, number, silenced[cause]) for cause, number in counts.most_common()]

    def silence_cause(self, kind: AlertKind, about: str, *, for_s: float) -> int:
        """Let nobody be told of the alerts of one cause for a while; return how many they are.

        Raises:
            NotFoundError: none fires.
            CloudError: too long.
        """
        same = [one.alert for one in self.list(where=AlertFilter(over=False, kind=kind), limit=MOST_OF_A_CAUSE)]
        numbers = [one.number for one in same if one.about == about]
        if not numbers:
            raise NotFoundError(
                phrase("cannot silence these alerts: none fires any more"), remedy=phrase("look at the alerts again")
            )
        # In parts: a write of thousands would keep the controller waiting. What has ended meanwhile needs no silence.
        parts = [numbers[at : at + _MOST_AT_ONCE] for at in range(0, len(numbers), _MOST_AT_ONCE)]
        return sum(self._silence(part, for_s=for_s) for part in parts)

    def silence(self, number: int, *, for_s: float) -> None:
        """Let nobody be told of an alert for a while; 0: from now on again.

        Raises:
            NotFoundError: there is none of this number that is not over.
            CloudError: too long.
        """
        if not self._silence([number], for_s=for_s):
            raise NotFoundError(
                phrase("cannot silence alert %(number)s: none fires", number=number),
                remedy=phrase("edgegpu-cloud alerts list"),
            )

    def _silence(self, numbers: Sequence[int], *, for_s: float) -> int:
        """Silence alerts, and return how many of them fire still."""
        self._access.require(Permission.CHANGE)
        if not 0 <= for_s <= LONGEST_SILENCE_S:
            raise CloudError(
                phrase("cannot silence an alert for %(for_s)g s", for_s=for_s),
                remedy=phrase("give at most %(longest_silence_s)s s", longest_silence_s=LONGEST_SILENCE_S),
            )
        with self._store.write() as tx:
            return sum(self._silence_one(tx, number, until_s=self._clock() + for_s) for number in numbers)

    def _silence_one(self, tx: Transaction, number: int, *, until_s: float) -> bool:
        by, scope = self._access.by, self._access.scope.terms
        row = tx.alerts.get(number, scope) or {}
        if not tx.alerts.silence(number, until_s=until_s, by=by, scope=scope):
            return False
        held = {"until_s": row["silenced_until_s"], "silenced_by": row["silenced_by"]}
        change = difference(held, {"until_s": until_s, "silenced_by": by})
        detail = {"number": number, "kind": row["kind"]}
        audit(tx, Author(by, self._clock()), AuditKind.ALERT_SILENCED, change, device=row["device"], detail=detail)
        return True

    def alarm_seen(self, number: int) -> None:
        """Mark the alarm as seen that an alert of the kind `alarm` is about: the alert is over at the next look.

        Raises:
            NotFoundError: there is no such alert that is not over, or somebody has seen its alarm.
        """
        self._access.require(Permission.CHANGE)
        scope = self._access.scope.terms
        with self._store.write() as tx:
            row = tx.alerts.get(number, scope)
            alert = alert_of(row) if row is not None else None
            same = [
                one.number
                for one in (tx.notes.alarms(scope=scope) if alert is not None else ())
                if alert is not None and (one.device, about_of(one.kind)) == (alert.device, alert.about)
            ]
            if alert is None or alert.kind is not AlertKind.ALARM or alert.resolved_at_s is not None or not same:
                raise NotFoundError(
                    phrase("cannot find an unseen alarm of alert %(number)s", number=number),
                    remedy=phrase("look at the alerts again"),
                )
            for one in same:
                see_alarm(tx, one, Author(self._access.by, self._clock()), self._access)

    def receivers(self) -> Sequence[str]:
        """Return the hosts of the receivers: the rest of an address may be a secret."""
        self._access.require(Permission.SETTINGS)
        with self._store.read() as tx:
            return [host_of(url) for url in receiver_urls(tx, self._config)]

    @property
    def webhooks(self) -> Webhooks:
        """Return the webhooks."""
        return Webhooks(self._store, self._config, access=self._access, send_test=self._send_test, clock=self._clock)

    def _send_test(self, tx: Transaction, url: str) -> None:
        tell(tx, [url], AlertEvent.TEST, (), controller=self._controller, now_s=self._clock())

    def test(self) -> Sequence[str]:
        """Let a test message wait for each receiver; return their addresses.

        Raises:
            CloudError: there is no receiver.
        """
        self._access.require(Permission.SETTINGS)
        with self._store.write() as tx:
            urls = receiver_urls(tx, self._config)
            if not urls:
                raise CloudError(
                    phrase("cannot send a test: there is no webhook"),
                    remedy=phrase("make one on the console's page Alerts, or set alerts.webhook in controller.yaml"),
                )
            for url in urls:
                self._send_test(tx, url)
        return urls

    def waiting(self) -> tuple[int, str]:
        """Return how many messages wait for a receiver, and the last error of one that was tried."""
        self._access.require(Permission.SETTINGS)
        with self._store.read() as tx:
            return tx.alerts.waiting()


def alert_of(row: Mapping[str, Any]) -> Alert:
    """Return the alert of a row."""
    return record_of(Alert, row, kind=AlertKind(row["kind"]), text=read_phrase(row["text"], row["phrase"]))


def tell(
    tx: Transaction, urls: Sequence[str], event: AlertEvent, alerts: Sequence[Alert], *, controller: str, now_s: float
) -> None:
    """Let a message wait for each of these receivers."""
    names = tx.conditions.names([one.device for one in alerts])
    for url in urls:
        id_, body = message(event, alerts, names=names, controller=controller, now_s=now_s)
        dropped = tx.alerts.add_delivery(id_=id_, url=url, body=body, now_s=now_s)
        if dropped:
            _LOG.error("dropped %d messages about alerts: no receiver has taken them", dropped)


class AlertTask:
    """The task that looks at the fleet and sends messages, in the controller's process."""

    def __init__(
        self,
        store: ControllerStore,
        config: AlertConfig,
        *,
        controller: str,
        own: Callable[[], Sequence[OwnCertificate]] = tuple,
        leadership: Leadership | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Build the task.

        Args:
            store: the controller's.
            config: of alerts.
            controller: its name, for messages.
            own: returns this controller's own certificates.
            leadership: of this process among several, of which the leader alone looks and sends; None: it is alone.
            clock: seconds since 1970.
        """
        self._store, self._config, self._controller = store, config, controller
        self._own, self._clock = own, clock
        self._leadership = leadership or SoleLeader(store)
        self._stop = threading.Event()
        self._outages = OutageLog(_LOG)
        offline = Patience(config.offline_minutes * 60.0, PATIENCE[AlertKind.OFFLINE].clears_after_s)
        self._patience = {**PATIENCE, AlertKind.OFFLINE: offline}

    def run(self) -> None:
        """Work until `stop`, while this process leads; what fails is logged and tried again."""
        while not self._stop.wait(LOOK_S):
            if not self._leadership.leads:
                continue
            try:
                with tried_next_turn(_LOOK):
                    self.look()
                with tried_next_turn("send messages about alerts"):
                    self.send()
            except LeasesLostError:
                _LOG.warning("another controller looks for alerts by now")
            except StoreError as error:
                self._outages.failed(_LOOK, error)
            else:
                self._outages.worked(_LOOK)

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()

    def look(self) -> None:
        """Look at the fleet once: what begins and ends is stored, with the messages about it, all or nothing.

        Raises:
            LeasesLostError: another controller leads by now; nothing is written.
            StoreError: the database refuses.
        """
        now_s = self._clock()
        with self._store.read() as tx:  # it goes through all boxes: nobody shall wait for it
            found = findings(tx, now_s=now_s, certificate_days=self._config.certificate_days, own=self._own)
        with self._leadership.lead() as tx:
            before = [alert_of(row) for row in tx.alerts.open()]
            reasons = _ended_with_rollouts(tx, before)
            now = [one for one in found if one.key not in reasons]
            outcome = step(before, now, now_s=now_s, patience=self._patience, reasons=reasons)
            new = [one for one in outcome.changed if not one.number]
            numbers = dict(zip((one.key for one in new), tx.alerts.add(list(map(_values, new))), strict=True))
            held = [one for one in outcome.changed if one.number]
            tx.alerts.put({one.number: _values(one) for one in held})
            numbers |= {one.key: one.number for one in held}
            tx.alerts.drop([one.number for one in outcome.dropped])
            urls = receiver_urls(tx, self._config) if outcome.told else ()
            for event, alerts in outcome.told:
                numbered = [replace(one, number=numbers[one.key]) for one in alerts]
                tell(tx, urls, event, numbered, controller=self._controller, now_s=now_s)

    def send(self) -> None:
        """Send the messages that are due; those that are not taken wait longer each time, a day in all.

        What has come of a message that this process has sent is not written where another leads by then: that one
        sends it again under the same id.

        Raises:
            LeasesLostError: another controller leads by now.
            StoreError: the database refuses.
        """
        now_s = self._clock()
        with self._leadership.lead() as tx:
            due = tx.alerts.claim(now_s, until_s=now_s + _CLAIM_S + _AT_ONCE * 2 * TIMEOUT_S, limit=_AT_ONCE)
        for one in due:
            if self._stop.is_set():
                return
            self._send(one)

    def _send(self, one: StoredDelivery) -> None:
        error = ""
        try:
            post(self._target(one.url), one.id, one.body, now_s=self._clock())
        except WebhookError as caught:
            error = str(caught)
            _LOG.warning("the webhook has not taken a message: %s", error)
        now_s = self._clock()
        with self._leadership.lead() as tx:
            if not error or now_s - one.at_s >= GIVEN_UP_S:
                tx.alerts.delivered(one.number)
            else:
                wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(one.tries, 10))
                tx.alerts.failed(one.number, error=error, next_at_s=now_s + wait_s)

    def _target(self, url: str) -> WebhookTarget:
        with self._store.read() as tx:
            target = target_of(tx, self._config, url)
        if target is None:
            raise WebhookError("the receiver is not configured any more")
        return target


def _ended_with_rollouts(tx: Transaction, alerts: Sequence[Alert]) -> Mapping[str, str]:
    """Return by their keys what the alerts of rollouts say that are over, and count their alarms as seen.

    A new one is not among these: people hear of it first, however soon its rollout has ended.
    """
    found: dict[str, str] = {}
    for one in alerts:
        number = rollout_of(one.about) if one.kind is AlertKind.ALARM else None
        if number is not None and (why := over_reason(tx, number)):
            tx.notes.end_alarms(one.about, by=f"rollout {number}")
            found[one.key] = phrase("%(why)s. It was: %(text)s", why=why, text=one.text)
    return found


def _values(one: Alert) -> dict[str, Any]:
    """Return the row of an alert."""
    values = {name: getattr(one, name) for name in Alert.__dataclass_fields__ if name != "number"}
    open_key = None if one.resolved_at_s is not None else one.key[:400]
    if one.number:
        for name in ("silenced_until_s", "silenced_by"):  # a person may have changed them meanwhile
            del values[name]
    return {**values, "kind": one.kind.value, "open_key": open_key, "phrase": phrase_json(one.text)}
