"""The run of one scenario on a cluster: deploys services, and checks each placement against the rules."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TypeVar

from edgegpu_agent.cli.clients.document import CardRow, PodRow, StatusDocument
from edgegpu_agent.demo.model import CONTAINER, Bed, DemoError, DemoRow, DemoService, Json, asked, uuids
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_core.podview import CARDS_ANNOTATION, read_cards

_T = TypeVar("_T")
_ONE_GPU = re.compile(r"GPU 0: [^\n]+ \(UUID: [^)\n]+\)(\n\s+MIG [^\n]+)?\s*")


@dataclass(slots=True, kw_only=True)
class DemoStage:
    """The run of one scenario: it deploys, waits, checks, and collects rows and failures."""

    bed: Bed
    scenario: str
    say: Callable[[str], None]
    clock: Callable[[], float]
    rows: list[DemoRow] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _running: dict[str, DemoRow] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    """The UIDs of all pods so far."""

    def expect(self, condition: object, otherwise: str) -> None:
        """Record and print a failure unless the condition holds."""
        if not condition:
            self.failures.append(f"{self.scenario}: {otherwise}")
            self.say(f"  WRONG: {otherwise}")

    def run(self, service: DemoService) -> DemoRow:
        """Deploy or change a service; its pod must run on one card, and all sources must name that card.

        Raises:
            DemoError: the service does not run in time.
        """
        before = self.bed.status()
        is_new, before_uids = not self.bed.pods(service.name), set(self._seen)
        self.bed.apply(self.bed.manifest(service))
        row = self.runs(service, before_uids)
        if is_new:
            self._check_first_fit(service, row, before)
        return row

    def runs(self, service: DemoService, before: Collection[str], *, command: str = "") -> DemoRow:
        """Wait until a service runs with these amounts; it must run on one card, and all sources must name that card.

        Args:
            service: the service with its new amounts.
            before: the UIDs of pods that were seen before the change, which must take one new pod.
            command: the command line that was typed for it.

        Raises:
            DemoError: the service does not run in time.
        """
        pod = self.wait(lambda: self._only_pod(service, "Running"), f"{service.name} to run", of=service.name)
        record = self.wait(lambda: self._record(pod), f"the plugin to name the card of {service.name}", of=service.name)
        listing = self.bed.sees(pod)
        row = self._note(service, pod, record, seen=uuids(listing), command=command)
        index = record.cards[0].index if record.cards else "?"
        self._tell(service, f"Running on card {index}  {row.pod}", details=listing)
        took = len(self._seen - set(before))
        self.expect(took == 1, f"{service.name} took {took} pods until one ran, one is right")
        self._check_card(row, record, listing, pod)
        self._running[service.name] = row
        self._check_sums()
        return row

    @property
    def seen(self) -> frozenset[str]:
        """The UIDs of all pods so far."""
        return frozenset(self._seen)

    def goes_on(self, service: DemoService, *, phase: str, reason: str, command: str) -> DemoRow:
        """Record a command that changed nothing: the service's pod must be the same, and see the same card.

        Args:
            service: the service with the requested amounts.
            phase: the phase for the row.
            reason: the reason for the row.
            command: the command line that was typed.
        """
        old = self._running[service.name]
        pods = [one for one in self.bed.pods(service.name) if one["metadata"]["name"] == old.pod]
        listing = self.bed.sees(pods[0]) if pods else ""
        is_same = bool(pods) and pods[0]["status"].get("phase") == "Running" and uuids(listing) == old.sees
        self.expect(is_same, f"{old.pod} does not run on as it was after {command!r}")
        self.say(f"  {service.name} runs on as it was: {old.pod}, card {old.card_index}")
        row = replace(old, units=service.units, core=service.core, phase=phase, reason=reason, command=command)
        if phase != old.phase:
            row = replace(row, card_index=None, card_uuid="", sees=())
        self.rows.append(row)
        return row

    def pend(self, service: DemoService, words: str) -> DemoRow:
        """Change a service to an amount that does not fit: its old pod ends, the new one waits, and an event says why.

        Raises:
            DemoError: the event does not come in time.
        """
        old = self._running.pop(service.name, None)
        self.bed.apply(self.bed.manifest(service))
        pod = self.wait(lambda: self._only_pod(service, "Pending"), f"a new pod of {service.name}", of=service.name)
        if old is not None:
            self.say(f"  {service.name} is changed to {service.units} units: {old.pod} is terminated")
        wanted = f"the event {words!r} of {service.name}"
        said = self.wait(lambda: [e for e in self.bed.events(pod) if words in e], wanted, of=service.name)[-1]
        reason = said.partition(": ")[2]
        self.say(
            f"  {service.name:<9} {service.units:>3} units  core {service.core}  Pending  {pod['metadata']['name']}"
        )
        self.say(f"      {reason}")
        record = self._record(pod)
        self.expect(record is None or not record.cards, f"{service.name} waits, but has a card in the plugin's status")
        self.expect(old is None or old.pod != pod["metadata"]["name"], f"{service.name} kept its old pod")
        row = DemoRow(
            scenario=self.scenario,
            pod=pod["metadata"]["name"],
            units=service.units,
            core=service.core,
            phase="Pending",
            reason=reason,
        )
        self.rows.append(row)
        return row

    def apart(self, one: DemoRow, other: DemoRow) -> None:
        """Check that two services are on two cards."""
        self.expect(one.card_uuid != other.card_uuid, f"{one.pod} and {other.pod} are on one card, two are right")

    def together(self, one: DemoRow, other: DemoRow) -> None:
        """Check that two services are on one card."""
        self.expect(one.card_uuid == other.card_uuid, f"{one.pod} and {other.pod} are on two cards, one is right")

    def clear(self) -> None:
        """Delete every service and wait until its units are free again.

        Raises:
            DemoError: the units are not free in time.
        """
        names = list(self._running)
        for name in names:
            self.bed.delete(name)
        self._running.clear()
        for name in names:
            self.wait(lambda name=name: not self.bed.pods(name), f"{name} to end", of=name)  # type: ignore[misc]
        self.wait(lambda: not self._mine(self.bed.status()), "the cards to be free again", of="")

    def wait(self, look: Callable[[], _T | None], what: str, *, of: str) -> _T:
        """Call `look` until it returns something true, and return that.

        Raises:
            DemoError: it did not in time; the text has the last state of the service `of`.
        """
        ends = self.clock() + self.bed.timeout_s
        while not (found := look()):
            if self.clock() > ends:
                seen = "; ".join(self._describe(pod) for pod in self.bed.pods(of)) if of else ""
                raise DemoError(
                    f"{self.scenario}: waited {self.bed.timeout_s:g} s for {what}; {seen or 'nothing there'}"
                )
            self.bed.pause()
        return found

    def _only_pod(self, service: DemoService, phase: str) -> Json | None:
        """Return the service's pod once it is the only one, asks for the right amount and is in the phase."""
        pods = self.bed.pods(service.name)
        self._seen |= {pod["metadata"]["uid"] for pod in pods}
        if len(pods) != 1 or pods[0]["metadata"].get("deletionTimestamp"):
            return None
        pod = pods[0]
        is_new = asked(pod, self.bed.memory_resource) == service.units
        return pod if is_new and pod["status"].get("phase", "Pending") == phase else None

    def _tell(self, service: DemoService, what: str, *, details: str) -> None:
        self.say(f"  {service.name:<9} {service.units:>3} units  core {service.core}  {what}")
        for line in details.strip().splitlines():
            self.say(f"      {line}")

    def _mine(self, status: StatusDocument) -> list[PodRow]:
        return [row for row in status.pods if row.namespace == self.bed.namespace or not row.pod]

    def _record(self, pod: Json) -> PodRow | None:
        """Return the plugin's row of a pod; None while the pod waits."""
        rows = self.bed.status().pods
        return next((row for row in rows if row.uid == pod["metadata"]["uid"] and row.state != "waiting"), None)

    def _note(self, service: DemoService, pod: Json, record: PodRow, *, seen: tuple[str, ...], command: str) -> DemoRow:
        card = record.cards[0] if record.cards else None
        row = DemoRow(
            scenario=self.scenario,
            pod=pod["metadata"]["name"],
            units=service.units,
            core=service.core,
            phase="Running",
            card_index=None if card is None else int(card.index.partition(":")[0]),
            card_uuid="" if card is None else card.uuid,
            sees=seen,
            reason=record.reason,
            command=command,
        )
        self.rows.append(row)
        return row

    def _check_card(self, row: DemoRow, record: PodRow, listing: str, pod: Json) -> None:
        """Check that all sources name the same one card of a pod: container, plugin, annotation, kubelet."""
        self.expect(record.state == "allocated", f"{row.pod} runs, and the plugin says {record.state}: {record.reason}")
        self.expect(len(record.cards) == 1, f"{row.pod} has {len(record.cards)} cards in `edgegpu pods`, one is right")
        self.expect(len(row.sees) == 1, f"{row.pod} sees {len(row.sees)} cards, one is right")
        self.expect(
            _ONE_GPU.fullmatch(listing), f"`nvidia-smi -L` in {row.pod} does not print one `GPU 0: … (UUID: …)`"
        )
        self.expect(row.sees == (row.card_uuid,), f"{row.pod} sees {row.sees}, `edgegpu pods` says {row.card_uuid}")
        annotations = pod["metadata"].get("annotations") or {}
        promised = read_cards(
            annotations.get(CARDS_ANNOTATION), pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        )
        text = f"the annotation of {row.pod} says {promised}, it is on {row.card_uuid}"
        self.expect(promised == {CONTAINER: (row.card_uuid,)}, text)
        booked = self.bed.kubelet_says(pod)
        text = f"kubelet's PodResources says {sorted(booked or ())} of {row.pod}, it is on {row.card_uuid}"
        self.expect(booked in {None, frozenset({row.card_uuid})}, text)

    def _check_first_fit(self, service: DemoService, row: DemoRow, before: StatusDocument) -> None:
        """Check that the card is the first with room, unless other pods came or went meanwhile."""
        now = self.bed.status()
        others = [{r.uid for r in status.pods if r.namespace != self.bed.namespace} for status in (before, now)]
        right = next((card for card in before.cards if _has_room(card, service)), None)
        if right is None or others[0] != others[1]:
            return
        text = f"{row.pod} is on card {row.card_index}, the first with room for {service.units} units is {right.index}"
        self.expect(right.uuid == row.card_uuid, text)

    def _check_sums(self) -> None:
        """Check that no card carries more than it has."""
        for card in self.bed.status().cards:
            rows = [row for row in self._running.values() if row.card_uuid == card.uuid]
            units, core = sum(row.units for row in rows), sum(row.core for row in rows)
            text = f"card {card.index} carries {units} of {card.units} units and core {core} of {CORE_PER_CARD}"
            self.expect(units <= card.units and core <= CORE_PER_CARD, text)

    def _describe(self, pod: Json) -> str:
        """Return a pod's state as one line, with its newest event."""
        events = self.bed.events(pod)
        phase = pod["status"].get("phase", "Pending")
        reason = pod["status"].get("reason", "")
        return " ".join(filter(None, [pod["metadata"]["name"], phase, reason, events[-1] if events else "(no event)"]))


def _has_room(card: CardRow, service: DemoService) -> bool:
    return card.healthy and card.units_free >= service.units and card.core_free >= service.core
