"""What the controller is asked for, and the record that is kept of it beside the controller's own."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from edgegpu_cloud.errors import CloudError
from edgegpu_sync.ids import CommandId
from edgegpu_sync.spec import Exclusions, PolicyItem, Spec

if TYPE_CHECKING:
    from chaos.machine import Machine
    from chaos.site import Site

DAY_S = 86_400
SHORT_S = 3
MOST_OPEN = 16
"""So many of one box's commands are under way at once."""

_DESIRED = "desired"
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


@dataclass(frozen=True, slots=True)
class Asked:
    """A command, or a revision of the desired document where `id` is empty."""

    id: str
    op: str
    box: str
    at_s: float
    wait_s: int = DAY_S
    rev: int = 0


class Load:
    """Asks for so many things, some at a time; `asked` is what came back with an id or a number."""

    def __init__(self, site: Site, rng: random.Random) -> None:
        self._fleet, self._store, self._boxes, self._rng = site.fleet, site.store, site.boxes, rng
        self._url = site.uploads.url
        self._record = (site.place / "asked.jsonl").open("a", buffering=1)
        self.asked: list[Asked] = []
        self._open: dict[str, set[CommandId]] = defaultdict(set)
        self._installed = dict.fromkeys((box.name for box in site.boxes), True)
        self._looked_s = 0.0
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
        for box in self._rng.sample(self._boxes, len(self._boxes)):
            if len(self.asked) < most and len(self._open[box.name]) < MOST_OPEN:
                self._ask(box)

    def look(self) -> None:
        """See what has ended."""
        with self._store.read() as tx:
            for name, ids in self._open.items():
                found = tx.commands.get([*ids])
                gone = {id_ for id_, one in found.items() if one.tracked.ended}
                self.ended += len(gone)
                self._open[name] = ids - gone

    def _ask(self, box: Machine) -> None:
        op = self._rng.choices([*_WEIGHTS], weights=[*_WEIGHTS.values()])[0]
        wait_s = SHORT_S if self._rng.random() < 0.04 else DAY_S
        now_s = time.time()
        if op == _DESIRED:
            self._note(Asked("", op, box.name, now_s, rev=self._fleet.set_spec(box.device, self._edited)))
            return
        if op == "sharing":
            installed = self._installed[box.name] = not self._installed[box.name] or self._rng.random() < 0.5
            id_ = (self._fleet.install if installed else self._fleet.uninstall)(box.device, wait_s=wait_s)
            op = f"sharing.{'install' if installed else 'uninstall'}"
        else:
            args = {"url": self._url} if op == "logs.collect" else {}
            id_ = self._fleet.command(box.device, op, args, wait_s=wait_s)
        self._open[box.name].add(id_)
        self._note(Asked(id_, op, box.name, now_s, wait_s))
        if self._rng.random() < 0.02:
            self._cancel(id_)

    def _cancel(self, id_: str) -> None:
        try:
            self._fleet.cancel(id_)
        except CloudError:
            return

    def _edited(self, spec: Spec) -> Spec:
        if self._rng.random() < 0.7:
            now = spec.policy.policy if spec.policy is not None else ""
            policy = self._rng.choice([one for one in _POLICIES if one != now])
            return spec.model_copy(update={"policy": PolicyItem(rev=0, policy=policy)})
        cards = self._rng.choice([("0",), ("0", "1"), ()])
        return spec.model_copy(update={"exclusions": Exclusions(rev=0, cards=cards)})

    def _note(self, one: Asked) -> None:
        self.asked.append(one)
        self._record.write(json.dumps(asdict(one)) + "\n")
