"""A fleet for pictures of the console: boxes of all states, an app that was refused, a rollout that came back."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kits.console import ConsoleSite
from kits.details import box, card, pod, reported, saying
from kits.enrol import Box, office
from kits.people import LOCAL, PASSWORD
from kits.rolloutbed import RolloutBed

from edgegpu_cloud.alerts.service import AlertTask
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.fleet.summaries import refresh
from edgegpu_cloud.rollouts.strategy import Gate, RolloutStrategy, WaveSize
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import BoxEvent, StoredCommand
from edgegpu_sync.ids import DeviceId, command_id, op_name
from edgegpu_sync.messages.evidence import ContainerEvidence, SeenCards
from edgegpu_sync.messages.spec import LIMITER
from edgegpu_sync.messages.telemetry import TRANSACTION, TransactionReport
from edgegpu_sync.rules.ops import OPS
from edgegpu_sync.rules.tracking import TrackedCommand
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from edgegpu_cloud.fleet.views import BoxDetails

NAMESPACE = "baetyl-edge"
P4, TITAN, GTX = ("Tesla P4", 29, 7_611), ("TITAN RTX", 94, 24_259), ("GeForce GTX 1650", 16, 4_096)
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Of which Kubernetes makes the ends of pods' names."""
VERSIONS = {"agent": "0.2.0", "plugin": "0.2.0", "k3s": "v1.33.3+k3s1", "driver": "560.35.03"}


@dataclass(frozen=True)
class PicturedBox:
    """A box: its cards, and its apps with units, core and the card that they are on."""

    name: str
    cards: Sequence[tuple[str, int, int]]
    apps: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    line: str = "1"
    online: bool = True
    state: str = "ok"
    agent: str = "0.2.0"
    live: Mapping[str, int] | None = None
    """The units that apps are held to by the limiter; None: nothing holds them. Who is not named may use all."""

    def held(self, app: str, made: dict[str, Any]) -> dict[str, Any]:
        """Return a pod as the box reports it: what holds it, and to how much."""
        if self.live is None:
            return made
        pieces = [{**piece, "live_units": self.live.get(app)} for piece in made["pieces"]]
        return {**made, "enforced": "enforced", "pieces": pieces}


BOXES = (
    PicturedBox("gate-1", (P4,), {"detector": (20, 30, 0)}),
    PicturedBox("gate-2", (P4,), {"detector": (24, 30, 0)}, line="2"),
    PicturedBox("gate-3", (P4,), {"detector": (20, 30, 0)}, line="2", online=False),
    PicturedBox("hall-1", (TITAN,), {"detector": (50, 40, 0), "tracker": (40, 30, 0), "counter": (1, 1, 0)}),
    PicturedBox(
        "hall-2",
        (P4, P4),
        {"counter": (4, 1, 0), "detector": (20, 30, 0), "tracker": (20, 30, 1)},
        live={"tracker": 16},
    ),
    PicturedBox("hall-3", (P4, P4), {"counter": (4, 1, 0), "tracker": (12, 20, 0)}, line="2", state="bad"),
    PicturedBox("hall-4", (TITAN,), {"detector": (50, 40, 0), "counter": (4, 1, 0)}, line="2"),
    PicturedBox("press-1", (GTX, GTX), {"reader": (8, 10, 0), "writer": (8, 10, 1)}, state="warn", agent="0.1.0"),
    PicturedBox("press-2", (GTX, GTX), {"reader": (8, 10, 0), "writer": (8, 10, 0)}, line="2", agent="0.1.0"),
    PicturedBox("yard-1", (GTX, GTX), {"reader": (8, 10, 0), "writer": (8, 10, 1)}),
    PicturedBox("yard-2", (GTX,), line="2"),
)
"""The first letters of their names say their sites; hall-1 and hall-2 are those of `make demo`."""


class Gallery:
    """The fleet, on a store with a certificate authority: boxes can wait for approval there."""

    def __init__(self, folder: Path) -> None:
        self.cloud = office(folder)
        self.site = ConsoleSite(self.cloud.store)
        self.fleet = Fleet(self.cloud.store, clock=self.site.clock, by="anna")
        self.devices: dict[str, DeviceId] = {}
        for number, one in enumerate(BOXES, 1):
            self._add(number, one)
        self.site.add(len(BOXES) + 1, "yard-3", site="yard", line="1")
        self._requests()
        self._commands()
        self._changes()
        self._operation()
        self._use()
        self._people()
        self._waiting()
        self._alerts()

    def close(self) -> None:
        self.cloud.store.close()

    def _add(self, number: int, one: PicturedBox) -> None:
        site = self.site
        device = site.add(number, one.name, site=one.name.partition("-")[0], line=one.line)
        self.devices[one.name] = device
        site.report(device, self.details(one))
        heard_s = site.now_s - (40 if one.online else 5 * 3_600) - number
        self._stands(one.name, online=one.online, seen_at_s=heard_s)

    def details(self, one: PicturedBox, *, rev: int = 0, **items: Any) -> BoxDetails:  # noqa: ANN401  (what came of requests)
        """Return what a box has said."""
        cards = tuple(
            card(str(index), units, uuid=uuid(one.name, index), name=f"NVIDIA {name}", memory_mib=mib)
            for index, (name, units, mib) in enumerate(one.cards)
        )
        if one.state == "bad":
            cards = (*cards[:-1], {**cards[-1], "healthy": False, "text": "XID 79: the card has fallen off the bus"})
        pods = {f"u-{app}": one.held(app, pod_of(one.name, app, of)) for app, of in one.apps.items()}
        sharing = one.name != "yard-2"
        made = box(one.name, cards, pods, sharing=sharing, mode="none" if one.live is None else "limiter")
        made = reported(made, cluster=hashlib.sha256(one.name.encode()).hexdigest()[:8], rev=rev, **items)
        text = {"ok": "", "warn": "the driver is older than the cards want", "bad": "card 1 is out of order"}[one.state]
        parts = [
            {"name": "k3s", "state": "ok", "text": "running for 12 days"},
            {"name": "plugin", "state": one.state, "text": text or "registered with kubelet"},
            {"name": "extender", "state": "ok", "text": "asked 2 minutes ago"},
        ]
        made = saying(made, TopicKind.HEALTH, state=one.state, parts=parts)
        versions = {**VERSIONS, "agent": one.agent}
        made = saying(made, TopicKind.STATUS, versions=versions, state="birth", capabilities=[*OPS, LIMITER])
        return saying(made, TopicKind.METRICS, period_s=60, samples=self._samples(one))

    def _samples(self, one: PicturedBox) -> list[dict[str, Any]]:
        found = []
        for minute in range(60):
            at = int(self.site.now_s) - (60 - minute) * 60
            used = [
                {
                    "uuid": uuid(one.name, index),
                    "core_used": round(35 + 22 * math.sin(minute / 6 + index) + 8 * math.sin(minute / 1.7), 1),
                    "memory_used_mib": int(mib * (0.55 + 0.06 * math.sin(minute / 9 + index))),
                    "temperature_c": 58 + index * 3,
                    "power_w": 48.0 + index,
                }
                for index, (_, _, mib) in enumerate(one.cards)
            ]
            found.append({"at": at, "cards": used, "memory_use": self._memory_use(one)})
        return found

    def _memory_use(self, one: PicturedBox) -> list[dict[str, Any]]:
        """Return what the pods use: three quarters of what they were given."""
        return [
            {
                "card": uuid(one.name, index),
                "uid": f"u-{app}",
                "container": "main",
                "processes": 1,
                "memory_mib": units * 192,
            }
            for app, (units, _, index) in one.apps.items()
        ]

    def _changes(self) -> None:
        """Let a person have upgraded hall-2 on the box itself, and a change have been put back there before."""
        upgrade = {"op": "upgrade", "before": "0.1.0", "version": "0.2.0", "result": "COMMITTED"}
        undone = {"op": "change", "result": "ROLLED_BACK", "why": "k3s did not become ready within 900 s"}
        for ago_s, told in ((7_200, undone), (3_600, upgrade)):
            report = TransactionReport.model_validate(
                {"id": f"picture-{ago_s}", "author": "person", "user": "root", **told}
            )
            event = BoxEvent(
                device=self.devices["hall-2"],
                kind=TRANSACTION,
                level="info",
                text=report.op,
                about=report.id,
                box_at=0,
                at_s=self.site.now_s - ago_s,
                transaction=report.model_dump(mode="json"),
            )
            with self.cloud.store.write() as tx:
                tx.notes.add_events([event])

    def _requests(self) -> None:
        """Ask for limits: applied on hall-2, refused on gate-2, not yet heard by gate-3."""
        self.site.now_s -= 600
        rev = self._ask("hall-2", "counter", 4)
        done = {"state": "Applied", "rev": rev}
        self._report("hall-2", rev, app_limits__baetyl_edge__counter__main=done)
        rev = self._ask("gate-2", "detector", 40)
        card_0 = {"node": "gate-2", "card": "0", "free_units": 29, "free_core": 100, "held_by_app_units": 24}
        numbers = {"need_units": 40, "need_core": 30, "verdict": "never_fits", "cards": [card_0]}
        text = "needs 40 vcuda-memory on one card; card 0 has 29 free"
        refused = {"state": "Rejected", "rev": rev, "code": "NO_ROOM", "text": text, "numbers": numbers}
        self._report("gate-2", rev, app_limits__baetyl_edge__detector__main=refused)
        self._ask("gate-3", "detector", 24)
        self.site.now_s += 600

    def _ask(self, name: str, app: str, units: int) -> int:
        core = next(one for one in BOXES if one.name == name).apps[app][1]
        limits = ContainerLimits(namespace=NAMESPACE, app=app, container="main", memory_units=units, core=core)
        return self.fleet.set_limits(self.devices[name], limits).rev

    def _report(self, name: str, rev: int, **items: dict[str, Any]) -> None:
        named = {key.replace("baetyl_edge", NAMESPACE): item for key, item in items.items()}
        shown = next(one for one in BOXES if one.name == name)
        self.site.report(self.devices[name], self.details(shown, rev=rev, **named))
        self._stands(name, observed_rev=rev, applied_rev=rev)

    def _stands(self, name: str, **numbers: Any) -> None:  # noqa: ANN401  (fields of a record)
        device = self.devices[name]
        with self.cloud.store.write() as tx:
            tx.boxes.put([replace(tx.boxes.get([device])[device], **numbers)])
            refresh(tx, tx.boxes.get([device]).values())

    def _commands(self) -> None:
        """Put the evidence of hall-2 and a doctor's finding there."""
        device, now_s = self.devices["hall-2"], self.site.now_s
        seen = [
            ContainerEvidence(
                uid=f"u-{app}",
                namespace=NAMESPACE,
                pod=pod_name("hall-2", app),
                container="main",
                verdict=SeenCards.OWN,
                held=(uuid("hall-2", of[2]),),
                seen=(uuid("hall-2", of[2]),),
                lines=f"GPU 0: NVIDIA Tesla P4 (UUID: {uuid('hall-2', of[2])})",
            )
            for app, of in next(one for one in BOXES if one.name == "hall-2").apps.items()
        ]
        with self.cloud.store.write() as tx:
            tx.telemetry.put_evidence(device, seen, now_s=now_s - 1_200)
        for op, data, ago_s in (
            ("doctor.run", {"level": "ok"}, 3_500),
            ("evidence.check", {"containers": []}, 1_200),
        ):
            tracked = TrackedCommand(
                id=command_id(f"picture-{op.replace('.', '-')}"),
                op=op_name(op),
                args={},
                due_at_s=now_s,
                seq=1,
                state=CommandState.SUCCEEDED,
            )
            command = StoredCommand(
                device=device,
                tracked=tracked,
                by="otto",
                at_s=now_s - ago_s,
                data=data,
                attempts=1,
                ended_at_s=now_s - ago_s + 2,
            )
            with self.cloud.store.write() as tx:
                tx.commands.add(command)

    def _operation(self) -> None:
        """Change the boxes together that have said what cards they have."""
        args = {"namespace": NAMESPACE, "app": "reader", "container": "main", "memory_units": 6, "core": 10}
        self.site.operations().start(OperationKind.LIMITS, args, where=BoxFilter(connected=True))
        OperationRunner(self.cloud.store, clock=self.site.clock).step()

    def _use(self) -> None:
        """Let the cards of hall-2 have been used for a day, most by day."""
        for index in range(2):
            quarters = [
                (ago, 30 + 25 * math.sin((96 - ago) / 15 + index), int(3_800 + 900 * math.sin((96 - ago) / 22 + index)))
                for ago in range(96)
            ]
            self.site.measure(self.devices["hall-2"], *quarters, card=uuid("hall-2", index))

    def _alerts(self) -> None:
        """Look at the fleet as it was 40 minutes ago, and now: what lasts fires."""
        task = AlertTask(self.cloud.store, self.site.alert_config, controller="controller-1", clock=self.site.clock)
        self.site.now_s -= 2_400
        task.look()
        self.site.now_s += 2_400
        task.look()

    def _people(self) -> None:
        people = self.site.people
        for name, role, scope in (
            ("anna", Role.ADMIN, ""),
            ("otto", Role.OPERATOR, "site=hall"),
            ("vera", Role.VIEWER, ""),
        ):
            people.redeem(people.create(name, role=role, scope=scope, by=LOCAL), "", PASSWORD)
        people.create("li", role=Role.OPERATOR, scope="site=yard", by=LOCAL)

    def _waiting(self) -> None:
        """Let two boxes wait for approval."""
        token = self.cloud.token(approval=True, uses=4, name="dock")
        for host in ("dock-line-3", "dock-line-4"):
            Box(token, host=host).enrol(self.cloud.desk)


def uuid(name: str, index: int) -> str:
    """Return a card's UUID."""
    return f"GPU-{hashlib.sha256(name.encode()).hexdigest()[:8]}-0385-5501-ace6-71a18e0032{index:02d}"


def pod_name(box_name: str, app: str) -> str:
    """Return the name of an app's pod, as a Deployment makes it."""
    ending = "".join(
        _LETTERS[one % len(_LETTERS)] for one in hashlib.sha256(f"{app} {box_name}".encode()).digest()[:15]
    )
    return f"{app}-{ending[:10]}-{ending[10:]}"


def pod_of(box_name: str, app: str, of: tuple[int, int, int]) -> dict[str, Any]:
    """Return an app's pod with its piece of a card."""
    units, core, index = of
    made = pod(pod_name(box_name, app), ("main", "0", units, core), namespace=NAMESPACE)
    made["pieces"][0]["card"] = uuid(box_name, index)
    return made


def returned_rollout(folder: Path) -> RolloutBed:
    """Return a rollout of the placement policy over 20 boxes, of which one fails: it was stopped and returned."""
    bed = RolloutBed(folder)
    bed.connect_all()
    bed.book(11).fails = True
    strategy = RolloutStrategy(canary=2, sizes=(WaveSize(6),), gate=Gate(success_percent=100), retries=0, timeout_s=120)
    bed.to_the_end(bed.start(strategy))
    return bed
