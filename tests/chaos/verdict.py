"""Compares the ledgers: what was asked and told, what each box's journal says, what each box really did. Pure.

How a restart is known to be one command's though nothing tells systemd its id: each start of a unit has an InvocationID
of its own, and the result of a restart names the start that it saw. Restarts run one at a time. So every start in the
ledger must be named by exactly one command that SUCCEEDED, or be an installer's, a boot's, or systemd's own. A start
that nobody names was done twice, or for a command that says that it was not done; a start that two name was done once
for both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from chaos.load import Asked

RESTARTS = {"plugin.restart": "edgegpu-plugin.service", "k3s.restart": "k3s.service"}
_TERMINAL = frozenset({"SUCCEEDED", "FAILED", "ROLLED_BACK", "REJECTED", "EXPIRED", "UNKNOWN"})
MOST_ATTEMPTS = 3
_TRIES_OF_ONE = 5
"""How often one attempt puts its archive where its answer is lost."""

LEAST_BOOTED, JUDGED_FROM = 0.30, 200
"""The share of everything asked that booted boxes must have had, in a run of so many at least: a third is meant."""

KILLED, WIPED, DATABASE_RESTARTED = "kill controller", "broker lost its persistence", "restart database"
STOPPED_LONG = "controller stopped for 30 s, then continued"
OF_CONTROLLERS = (KILLED, STOPPED_LONG, DATABASE_RESTARTED, WIPED)
"""The faults that a run with several controllers is about: such a run shows nothing where one of them never came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the controller's store holds of a command."""

    state: str | None
    code: str = ""
    text: str = ""
    data: Mapping[str, Any] | None = None
    history: Sequence[str] = ()
    seq: int | None = None


OURS = "systemctl"


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a unit: its InvocationID, and by whom: `systemctl`, `boot`, `systemd`, or an installer."""

    id: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a box did, by its ledgers; and what its agent's journal says of each id.

    `starts`: by unit. `changes`: the installer's transactions that changed the machine, by the item and revision that
    each was for. `stands`: how things stand at the end, by item. `repeated`: what was done more than once, in words.
    `doctor`: how often it ran; None where nothing tells. `forgotten`: up to which seq its journal has let go of ids
    that were settled long ago. `unasked`: ids of which it has told and that the controller does not know. `restored`:
    it was found ahead of the controller: it must not be.
    """

    starts: Mapping[str, Sequence[Start]]
    changes: Mapping[str, Sequence[str]]
    stands: Mapping[str, str]
    doctor: int | None
    journal: Mapping[str, str]
    rev: int
    applied_rev: int
    forgotten: int = 0
    unasked: Sequence[str] = ()
    restored: bool = False
    repeated: Sequence[str] = ()
    items: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class Verdict:
    """What is wrong, in words, by kind; `clean` when nothing is."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    two_ends: list[str] = field(default_factory=list)
    unshown: list[str] = field(default_factory=list)
    """What the run was to show and has not: nothing of it is a fault of the product."""

    ends: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    """Ends that are neither success nor refusal, by op and code: none is wrong, each wants a look."""

    @property
    def clean(self) -> bool:
        return not self.words

    @property
    def words(self) -> list[str]:
        return [*self.lost, *self.twice, *self.stuck, *self.unknown, *self.two_ends, *self.unshown]


_REAL = {
    **dict.fromkeys(("plugin.restart", "k3s.restart"), "systemd"),
    **dict.fromkeys(("sharing.install", "sharing.uninstall", "desired"), "installer"),
    "limits": "audit",
}


STAND_INS_CANNOT_SHOW = (
    "that systemd restarts a unit once: a start is a line that their systemctl writes",
    "that k3s comes up and the node is Ready: there is no cluster, so app limits are asked of booted boxes alone",
    "that a change of the machine is whole or undone: their installer has the journal and the lock, and changes lines",
    "that what the box runs follows: no plugin, no kubelet, no pod with a share that could stand in the way",
    "that a power cut loses nothing: theirs are kills, and a file system keeps what was written",
    "what doctor and logs.collect find: the doctor has nothing to examine, and there is no journal to collect",
)
"""Goes into the report: a run without booted boxes says nothing of these."""


def ledger_of(op: str, *, booted: bool) -> str:
    """Return by which ledger of a box it is known what one of these did; `none`: it changes nothing."""
    if op in {"logs.collect", "inventory.refresh", "identity.rotate"}:
        return "uploads" if op == "logs.collect" else "none"
    return _REAL.get(op, "none") if booted else "stand-in"


def judge(
    asked: Collection[Asked],
    told: Mapping[str, Told],
    boxes: Mapping[str, Done],
    uploads: Mapping[str, int],
    *,
    booted: Collection[str],
) -> Verdict:
    """Compare.

    Args:
        asked: as the submitting side has written it down.
        told: by id, from the controller's store.
        boxes: by name.
        uploads: how often each id's archive came.
        booted: the names of those boxes that have systemd and k3s.
    """
    verdict, by_box = Verdict(), defaultdict[str, list[tuple["Asked", Told]]](list)
    _share(verdict, asked, booted)
    for one in asked:
        if not one.id:
            continue
        if (known := told.get(one.id)) is None:
            verdict.lost.append(f"{one.op} {one.id} on {one.box}: the controller knows nothing of it")
            continue
        by_box[one.box].append((one, known))
        verdict.ends[str(known.state)] += 1
        if known.state in {"FAILED", "ROLLED_BACK", "UNKNOWN"}:
            verdict.failed[f"{one.op} {known.state} {known.code}"] += 1
        _ends(verdict, one, known, boxes[one.box])
        if one.op == "logs.collect":
            _uploaded(verdict, one, known, uploads.get(one.id, 0))
    for name, done in boxes.items():
        for op, unit in RESTARTS.items():
            of = [(one, known) for one, known in by_box[name] if one.op == op]
            _starts(verdict, f"{name} {unit}", of, done.starts[unit])
        _changes(verdict, name, done)
        looked = sum(known.state == "SUCCEEDED" for one, known in by_box[name] if one.op == "doctor.run")
        if done.doctor is not None and looked > done.doctor:
            verdict.lost.append(f"{name}: {looked} doctor.run SUCCEEDED, the doctor ran {done.doctor} times")
    return verdict


def _share(verdict: Verdict, asked: Collection[Asked], booted: Collection[str]) -> None:
    """Hold that booted boxes had their part, where there are any: what stand-ins cannot show, they alone do."""
    theirs = sum(one.box in booted for one in asked)
    if booted and len(asked) >= JUDGED_FROM and theirs < LEAST_BOOTED * len(asked):
        verdict.unshown.append(f"booted boxes had {theirs} of {len(asked)}: {LEAST_BOOTED:.0%} at least is meant")


def judge_faults(verdict: Verdict, faults: Mapping[str, int], *, asked: int, partitions_taken: int) -> None:
    """Hold that a run with several controllers had each of the faults that it is about.

    Args:
        verdict: `unshown` gets what did not happen.
        faults: how often each kind came.
        asked: of how many commands; a run of fewer than `JUDGED_FROM` need not have all.
        partitions_taken: how often others took the partitions of a controller that was away.
    """
    if asked < JUDGED_FROM:
        return
    verdict.unshown += [f"never happened: {kind}" for kind in OF_CONTROLLERS if not faults.get(kind)]
    if not partitions_taken:
        verdict.unshown.append("never happened: others took the partitions of a controller that was away")


def _ends(verdict: Verdict, one: Asked, told: Told, done: Done) -> None:
    name, box = f"{one.op} {one.id} on {one.box}", done.journal.get(one.id)
    if told.state not in _TERMINAL:
        verdict.stuck.append(f"{name}: {told.state} at the controller, {box} on the box")
        return
    heard = [state for state in told.history if state in _TERMINAL]
    if heard != [told.state]:
        verdict.two_ends.append(f"{name}: {told.state}, and its history holds {heard}")
    if box is None and (told.seq is None or told.seq > done.forgotten):
        verdict.lost.append(f"{name}: {told.state} at the controller, and the box knows nothing of it")
    elif box not in {None, told.state}:
        verdict.two_ends.append(f"{name}: {told.state} at the controller, {box} on the box")
    if told.state == "UNKNOWN":
        verdict.unknown.append(f"{name}: {told.code} {told.text}")


def _uploaded(verdict: Verdict, one: Asked, told: Told, times: int) -> None:
    if told.state == "SUCCEEDED" and not times:
        verdict.lost.append(f"{one.op} {one.id} on {one.box}: SUCCEEDED, and no archive has come")
    if times > MOST_ATTEMPTS * _TRIES_OF_ONE:
        verdict.twice.append(f"{one.op} {one.id} on {one.box}: its archive came {times} times")


def _starts(verdict: Verdict, name: str, commands: Iterable[tuple[Asked, Told]], found: Sequence[Start]) -> None:
    """See the module's text.

    A restart that the power was cut in is ended by the boot, and names its start: the one before that was its own.
    """
    named, maybe = defaultdict[str, list[str]](list), 0
    for one, told in commands:
        if told.state == "SUCCEEDED":
            named[str((told.data or {}).get("invocation", ""))].append(one.id)
        maybe += told.state in {"FAILED", "UNKNOWN"}
    by = {one.id: one.by for one in found}
    for id_, ids in named.items():
        if by.get(id_) not in {OURS, "boot"}:
            whose = by.get(id_, "is not in the ledger")
            verdict.lost.append(f"{name}: {', '.join(ids)} SUCCEEDED by start {id_}, which was none of ours: {whose}")
        elif len(ids) > 1:
            verdict.lost.append(f"{name}: start {id_} is named by {', '.join(ids)}")
    cut = {before.id for before, one in pairwise(found) if one.by == "boot" and one.id in named}
    unnamed = [one.id for one in found if one.by == OURS and one.id not in named.keys() | cut]
    if len(unnamed) > maybe:
        words = ", ".join(unnamed)
        verdict.twice.append(f"{name}: starts {words} are no command's ({maybe} may have been of those that failed)")


def _changes(verdict: Verdict, name: str, done: Done) -> None:
    """Hold that an item is tried once for its revision: so its transactions change the machine once at most."""
    for item, ids in done.changes.items():
        if len(ids) > 1:
            verdict.twice.append(f"{name}: {item} changed the machine {len(ids)} times: {', '.join(ids)}")
    verdict.twice += [f"{name}: {words}" for words in done.repeated]
    for id_ in done.unasked:
        verdict.twice.append(f"{name}: {id_} was done, and nobody has asked for it")
    if done.restored:
        verdict.stuck.append(f"{name}: it was found ahead of its controller, which signs nothing for it")
    if done.applied_rev != done.rev:
        verdict.stuck.append(f"{name}: revision {done.rev} is desired, {done.applied_rev} is applied")
        return
    for item, report in done.items.items():
        wanted = report["wanted"]
        if report["state"] == "Applied" and done.stands.get(item, "") != wanted:
            verdict.lost.append(f"{name}: {item} is Applied as {wanted}, and stands as {done.stands.get(item)}")
