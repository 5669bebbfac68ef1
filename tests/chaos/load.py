"""What the controller is asked for, and the record that is kept of it beside the controller's own."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from chaos.booted import APPS, Booted

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.store.store import ContendedError
from edgegpu_sync.ids import CommandId, command_id
from edgegpu_sync.messages.spec import Exclusions, PolicyItem, Spec
from edgegpu_sync.states import CommandState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chaos.machine import Machine
    from chaos.site import Site

T = TypeVar("T")

DAY_S = 86_400
SHORT_S = 3
MOST_OPEN = 16
"""So many of one box's commands are under way at once."""

_DESIRED, _LIMITS = "desired", "limits"
_POLICIES: tuple[Literal["first-fit", "best-fit", "spread"], ...] = ("first-fit", "best-fit", "spread")
_WEIGHTS = {
    "plugin.restart": 24,
    "k3s.restart": 10,
    "inventory.refresh": 26,
    "doctor.run": 24,
    "logs.collect": 2,
    "identity.rotate": 2,
    "sharing": 4,
    _DESIRED: 8,
}


REAL_SHARE = 1 / 3
"""How much of everything booted boxes are asked for."""

_REAL_OPEN = 8
_MOST_PRESSES = 3
_MOST_INSTALLS = 5
_REAL_WEIGHTS = {
    "plugin.restart": 18,
    "k3s.restart": 2,
    "inventory.refresh": 90,
    "doctor.run": 20,
    "logs.collect": 24,
    "identity.rotate": 6,
    "sharing": 1,
    _LIMITS: 150,
    _DESIRED: 10,
}
"""Of a booted box, which takes up to a minute for what is quick with stand-ins: so that of a thousand commands
its third takes not much longer than theirs. What it alone can show is asked for most."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A command, or a revision of the desired document where `id` is empty."""

    id: str
    op: str
    box: str
    at_s: float
    wait_s: int = DAY_S
    rev: int = 0


def amounts(rng: random.Random) -> Iterator[tuple[int, int]]:
    """Yield memory units and core for one app, no pair twice: so each write of them is known as one revision's."""
    pairs = [(units, core) for units in range(1, 25) for core in range(2, 34)]
    rng.shuffle(pairs)
    yield from pairs


def insistent(press: Callable[[], T]) -> T:
    """Press again, as the error says, where a controller that was stopped has the box's rows."""
    for _ in range(_MOST_PRESSES - 1):
        with contextlib.suppress(ContendedError):
            return press()
    return press()


class Load:
    """Asks for so many things, some at a time; `asked` is what came back with an id or a number."""

    def __init__(self, site: Site, rng: random.Random) -> None:
        self._fleet, self._store, self._rng = site.fleet, site.store, rng
        self._boxes: list[Machine | Booted] = [*site.boxes, *site.booted]
        self._real = {box.name for box in site.booted}
        self._amounts = {(box.name, app): amounts(rng) for box in site.booted for app in APPS}
        self._url = site.uploads.url
        self._record = (site.place / "asked.jsonl").open("a", buffering=1)
        self.asked: list[Asked] = []
        self._open: dict[str, set[CommandId]] = defaultdict(set)
        self._installed = dict.fromkeys((box.name for box in self._boxes), True)
        self._turns: dict[str, Iterator[None]] = {}
        self._looked_s = 0.0
        self._count = {False: 0, True: 0}
        self.real_done = 0.0
        """How much of what booted boxes are to be asked for was asked, 0 to 1."""

        self.ended = 0

    def close(self) -> None:
        self._record.close()

    @property
    def open(self) -> int:
        return sum(map(len, self._open.values()))

    def pump(self, most: int) -> None:
        """Ask for what there is room for, until there are `most` in all."""
        if time.monotonic() - self._looked_s > 0.25:
            self._looked_s = time.monotonic()
            self.look()
            self._turns = {name: turn for name, turn in self._turns.items() if next(turn, turn) is None}
        real = round(most * REAL_SHARE) if self._real else 0
        for box in self._rng.sample(self._boxes, len(self._boxes)):
            is_real = box.name in self._real
            if self._count[is_real] < (real if is_real else most - real) and self._has_room(box):
                self._ask(box)
        self.real_done = self._count[True] / max(real, 1)

    def _has_room(self, box: Machine | Booted) -> bool:
        return len(self._open[box.name]) < (_REAL_OPEN if isinstance(box, Booted) else MOST_OPEN)

    def look(self) -> None:
        """See what has ended."""
        with self._store.read() as tx:
            for name, ids in self._open.items():
                found = tx.commands.get([*ids])
                gone = {id_ for id_, one in found.items() if one.tracked.ended}
                self.ended += len(gone)
                self._open[name] = ids - gone

    def _ask(self, box: Machine | Booted) -> None:
        weights = _REAL_WEIGHTS if isinstance(box, Booted) else _WEIGHTS
        op = self._rng.choices([*weights], weights=[*weights.values()])[0]
        wait_s = SHORT_S if self._rng.random() < 0.04 else DAY_S
        now_s = time.time()
        if op in {_DESIRED, _LIMITS}:
            rev = self._limited(box) if op == _LIMITS else self._edit(box)
            if rev:
                self._note(Asked("", op, box.name, now_s, rev=rev))
            return
        if op == "sharing" and isinstance(box, Booted):
            self._turns.setdefault(box.name, self._turn(box))
            return
        if op == "sharing":
            installed = self._installed[box.name] = not self._installed[box.name] or self._rng.random() < 0.5
            id_ = self._sharing(box, installed=installed, wait_s=wait_s)
        else:
            args = {"url": self._url} if op == "logs.collect" else {}
            id_ = insistent(lambda: self._fleet.command(box.device, op, args, wait_s=wait_s))
            self._asked(Asked(id_, op, box.name, now_s, wait_s))
        if self._rng.random() < 0.02:
            self._cancel(id_)

    def _sharing(self, box: Machine | Booted, *, installed: bool, wait_s: int) -> CommandId:
        now_s = time.time()
        press = self._fleet.install if installed else self._fleet.uninstall
        id_ = insistent(lambda: press(box.device, wait_s=wait_s))
        op = f"sharing.{'install' if installed else 'uninstall'}"
        self._asked(Asked(id_, op, box.name, now_s, wait_s))
        return id_

    def _turn(self, box: Booted) -> Iterator[None]:
        """Let sharing go from a booted box and come back; half of the time its apps stand in the way, and it stays."""
        if away := self._rng.random() < 0.5:
            while not box.scale(0) or not box.is_empty():
                yield
        yield from self._ended(box, self._sharing(box, installed=False, wait_s=DAY_S))
        for _ in range(_MOST_INSTALLS):  # a fault undoes one now and then, and without sharing little can be asked for
            id_ = self._sharing(box, installed=True, wait_s=DAY_S)
            yield from self._ended(box, id_)
            if self._state(id_) is CommandState.SUCCEEDED:
                break
        while away and not box.scale(1):
            yield

    def _ended(self, box: Machine | Booted, id_: CommandId) -> Iterator[None]:
        """Wait for a command's end."""
        while id_ in self._open[box.name]:
            yield

    def _state(self, id_: CommandId) -> CommandState | None:
        with self._store.read() as tx:
            return tx.commands.get([id_])[id_].tracked.state

    def _asked(self, one: Asked) -> None:
        self._open[one.box].add(command_id(one.id))
        self._note(one)

    def _limited(self, box: Machine | Booted) -> int:
        """Return the revision; 0 where the box has not told of its cluster since its last birth."""
        app = self._rng.choice(APPS)
        units, core = next(self._amounts[box.name, app])
        limits = ContainerLimits(namespace="default", app=app, container="main", memory_units=units, core=core)
        try:
            return self._fleet.set_limits(box.device, limits).rev
        except CloudError:
            return 0

    def _cancel(self, id_: str) -> None:
        try:
            self._fleet.cancel(id_)
        except CloudError:
            return

    def _edit(self, box: Machine | Booted) -> int:
        return insistent(lambda: self._fleet.set_spec(box.device, self._edited))

    def _edited(self, spec: Spec) -> Spec:
        if self._rng.random() < 0.7:
            now = spec.policy.policy if spec.policy is not None else ""
            policy = self._rng.choice([one for one in _POLICIES if one != now])
            return spec.model_copy(update={"policy": PolicyItem(rev=0, policy=policy)})
        cards = self._rng.choice([("0",), ("1",), ()])
        return spec.model_copy(update={"exclusions": Exclusions(rev=0, cards=cards)})

    def _note(self, one: Asked) -> None:
        self.asked.append(one)
        self._count[one.box in self._real] += 1
        self._record.write(json.dumps(asdict(one)) + "\n")
