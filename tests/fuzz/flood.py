"""Lies to a real agent over a real broker, with commands in earnest among them; then the reckoning."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from chaos import machine, site
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fuzz import cloudside, retained
from fuzz.account import Asked, Sent, Stand, effects, undone, unwell
from fuzz.bugs import BUGS
from fuzz.drawing import drawn
from fuzz.lies import Lie
from fuzz.material import Heard, Material
from fuzz.mouth import Mouth

from edgegpu_agent.worker.answers import JournalAnswer, StatusAnswer
from edgegpu_base.http_unix import get
from edgegpu_cloud.enrolment.key_files import load_signing_key
from edgegpu_cloud.layout import CloudLayout
from edgegpu_sync.messages.downlink import Keys
from edgegpu_sync.messages.spec import PolicyItem, Spec
from edgegpu_sync.signing import Signer, bare
from edgegpu_sync.topics import PlainTopic, TopicKind
from edgegpu_sync.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.machine import Machine
    from chaos.site import Site

WAVE = 250
"""So many lies are under way at once; then it is waited until the box has counted them."""

ANSWER_S = 60.0
"""So long the agent may take for an answer on its socket, on a machine with much else to do."""

_DOES = {
    "inventory.refresh": "",
    "doctor.run": "doctor",
    "plugin.restart": "edgegpu-plugin.service",
    "k3s.restart": "k3s.service",
}
_LEDGERS = ("doctor", "edgegpu-plugin.service", "k3s.service", "changes")
_KINDS = {TopicKind.DESIRED, TopicKind.RECEIPT, TopicKind.COMMAND}
"""The keys come with the enrolment, and are not sent to a box that has them."""

_UNFORESEEN = ("see the log", "cannot take what came", "cannot read what the broker sends", "Traceback")


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of a flood; `wrong` is why it has failed, empty when all is well."""

    sent: Sent
    upward: int
    refused: Counter[str]
    effects: list[str]
    wrong: list[str]
    asked: list[Asked]
    before: Stand
    after: Stand
    seconds: float


@dataclass(slots=True)
class Flood:
    """One box under fire, another one beside it, and the controller of both."""

    here: Site
    mouth: Mouth
    random: random.Random
    sent: Sent = field(default_factory=Sent)
    asked: list[Asked] = field(default_factory=list)
    upward: int = 0
    retained: set[str] = field(default_factory=set)
    """Topics under which the broker keeps a lie."""
    patience_s: float = 150.0

    @property
    def box(self) -> Machine:
        return self.here.boxes[0]

    # --- what there is

    def status(self) -> StatusAnswer:
        """Return the agent's own word."""
        _, body = get(self.box.folder / "run/edgegpu/agent.sock", "/v1/status", timeout_s=ANSWER_S)
        return StatusAnswer.model_validate_json(body)

    def stand(self) -> Stand:
        """Look at the box."""
        status = self.status()
        _, body = get(self.box.folder / "run/edgegpu/agent.sock", "/v1/journal?limit=2000", timeout_s=ANSWER_S)
        lines = JournalAnswer.model_validate_json(body).lines
        log = self.box.agent.log.read_text(errors="replace")
        memory = Path(f"/proc/{self.box.agent.pid}/status").read_text()
        return Stand(
            pid=self.box.agent.pid,
            resident_mib=_mib(memory, "VmRSS"),
            heap_mib=_mib(memory, "RssAnon"),
            epoch=status.epoch,
            enrolment=status.enrolment,
            key_set=status.key_set,
            rev=status.observed_rev,
            server_time=status.server_time,
            refused=status.refused,
            ledger={name: len(self.box.lines(name)) for name in _LEDGERS},
            commands={line.about for line in lines if line.kind == "command"},
            unforeseen=sum(log.count(words) for words in _UNFORESEEN),
        )

    def wait(self, probe: Callable[[], bool], what: str) -> None:
        self.here.wait(probe, what=what, timeout_s=self.patience_s)

    # --- in earnest

    def ask(self, op: str, box: Machine | None = None) -> None:
        """Ask for a command; it must succeed whatever else is said."""
        id_ = self.here.fleet.command((box or self.box).device, op, {})
        if box is None:
            self.asked.append(Asked(id_, op, _DOES[op]))

    def ended(self) -> bool:
        """Look how the commands stand; whether all have ended."""
        found = [self.here.fleet.one_command(one.id) for one in self.asked]
        self.asked = [replace(one, state=str(view.state)) for one, view in zip(self.asked, found, strict=True)]
        return all(view.ended for view in found)

    def edit(self) -> None:
        """Give both boxes a new revision, and wait until it is settled."""
        for box in self.here.boxes:
            self.here.fleet.set_spec(box.device, self._edited)
        self.wait(self._settled, "the new revisions are settled")

    def _edited(self, spec: Spec) -> Spec:
        spread = spec.policy is not None and spec.policy.policy == "spread"
        return spec.model_copy(update={"policy": PolicyItem(rev=0, policy="best-fit" if spread else "spread")})

    def _settled(self) -> bool:
        return all(box.rev and box.applied_rev == box.rev for box in self.here.fleet.boxes())

    def warm(self) -> None:
        """Let there be messages of every kind, of two births, and a newer revision than those."""
        for again in (False, True):
            self.edit()
            for op in _DOES:
                self.ask(op)
            self.ask("doctor.run", self.here.boxes[1])
            self.wait(self.ended, "the first commands have ended")
            if not again:
                self.anew()
        self.wait(lambda: {one.kind for one in self._down()} >= _KINDS, "all kinds were heard")
        self.mouth.deafen()
        self.edit()

    def anew(self) -> None:
        """Kill the agent and wait for its next birth: what was signed until now is stale."""
        epoch = self.status().epoch
        self.box.agent.kill(away_s=0)
        self.wait(lambda: self._epoch() > epoch, "the agent is back")

    def _epoch(self) -> int:
        try:
            status = self.status()
        except OSError:
            return 0
        return status.epoch if status.connected else 0

    def _down(self) -> list[Heard]:
        return [one for one in self.mouth.heard if one.topic.startswith(f"edgegpu/v1/{self.box.device}/down/")]

    def material(self, stranger: Signer) -> Material:
        """Return what was heard until `warm` was through."""
        status = self.status()
        with self.here.store.read() as tx:
            chain = tx.notes.chain()
        me = self._down()[0].device
        keys = Heard(str(PlainTopic(me, TopicKind.KEYS)), bare(encode(Keys(chain=chain))))
        births = [
            one.value["epoch"] for one in self.mouth.heard if one.device == self.box.device and "/up/" in one.topic
        ]
        now = next(epoch for epoch in reversed(births) if epoch["count"] == status.epoch)
        layout = CloudLayout(self.here.place / "cloud")
        other = self.here.boxes[1].device
        return Material(
            me=me,
            down=[*(one for one in self._down() if one.kind is not TopicKind.KEYS), keys],
            other_down=[one for one in self.mouth.heard if one.topic.startswith(f"edgegpu/v1/{other}/down/")],
            up=[one for one in self.mouth.heard if "/up/" in one.topic],
            controller=Signer.of(load_signing_key(layout.signing_key)),
            stranger=stranger,
            enrolment=status.enrolment,
            epoch=now,
            older_epochs=[epoch for epoch in births if epoch["count"] < status.epoch],
            rev=status.observed_rev,
            seq=max(one.value["seq"] for one in self._down() if one.kind is TopicKind.COMMAND),
            link=chain[-1],
        )

    # --- the flood

    def run(self, down: list[Lie], up: list[Lie], before: Stand) -> None:
        """Publish the lies, wave after wave, with a command in earnest in each, and those upward beside them."""
        waves = max(1, -(-len(down) // WAVE))
        share = -(-len(up) // waves)
        for number in range(waves):
            wave = down[number * WAVE : (number + 1) * WAVE]
            self._wave(wave, up[number * share : (number + 1) * share], before)

    def _wave(self, wave: list[Lie], upward: list[Lie], before: Stand) -> None:
        half = len(wave) // 2
        self.mouth.say(upward)
        self.upward += len(upward)
        self.mouth.say(wave[:half])
        self.ask(self.random.choice([*_DOES]))
        self.mouth.say(wave[half:])
        for lie in wave:
            self.sent.add(lie)
            if lie.retain:
                (self.retained.add if lie.payload else self.retained.discard)(lie.topic)
        due = self.sent.refusable + sum(before.refused.values())
        self._wait_counted(due)

    def _wait_counted(self, due: int) -> None:
        """Wait until so many are refused: patience is for a number that stands still, not for a slow machine."""
        while (counted := self.counted()) < due:

            def rises(so_far: int = counted) -> bool:
                return self.counted() > so_far

            self.wait(rises, f"{due} refusals are counted: {self.status().refused}")

    def counted(self) -> int:
        """Return how many the box has refused."""
        return sum(self.status().refused.values())


def _mib(memory: str, name: str) -> float:
    return int(memory.partition(f"{name}:")[2].split()[0]) / 1024


def flood(place: Path, *, messages: int, number: int, bug: str = "", patience_s: float = 150.0) -> Outcome:
    """Do it all in an empty folder; with a `bug` of BUGS, which has to be found."""
    began, rng, stranger = time.monotonic(), random.Random(number), Signer.of(Ed25519PrivateKey.generate())
    here = site.build(place, boxes=2, launcher=(str(machine.BIN / "edgegpu-agent"),), rng=rng)
    wrong: list[str] = []
    with ExitStack() as ends:
        ends.callback(here.close)
        mouth = Mouth(here.open_port)
        ends.callback(mouth.close)
        one = Flood(here, mouth, rng)
        if bug:
            BUGS[bug](here, stranger)
        one.warm()
        have = one.material(stranger)
        one.asked.clear()
        before, cloud = one.stand(), cloudside.look(here)
        try:
            one.patience_s = patience_s
            one.run(*drawn(have, messages=messages, number=number), before)
            one.wait(one.ended, "the commands in earnest have ended")
        except TimeoutError as error:
            wrong.append(str(error))
        one.ended()
        after = one.stand()
        if not wrong:
            wrong += retained.again(one)
        wrong += cloudside.changed(cloud, cloudside.look(here))
    return _outcome(one, before, after, wrong, seconds=time.monotonic() - began)


def _outcome(one: Flood, before: Stand, after: Stand, wrong: list[str], *, seconds: float) -> Outcome:
    refused = Counter(after.refused)
    refused.subtract(before.refused)
    found = effects(before, after, one.asked, now_s=time.time())
    wrong = [*wrong, *found, *unwell(before, after), *one.sent.miscounted(+refused), *undone(one.asked)]
    if one.mouth.drops:
        wrong.append(f"the broker has closed {one.mouth.drops} connections of ours: a lie was not one that it takes")
    return Outcome(
        sent=one.sent,
        upward=one.upward,
        refused=+refused,
        effects=found,
        wrong=wrong,
        asked=one.asked,
        before=before,
        after=after,
        seconds=seconds,
    )
