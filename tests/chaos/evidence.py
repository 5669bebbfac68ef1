"""Reads the ledgers at the end: the controller's store, the boxes' journals, and what the boxes did."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chaos import ledgers
from chaos.booted import Booted
from chaos.verdict import RESTARTS, Done, Start, Told

from edgegpu_agent.identity.identity_files import load_identity
from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_sync.ids import command_id
from edgegpu_sync.messages.spec import item_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from chaos.load import Asked
    from chaos.machine import Machine
    from chaos.site import Site

    from edgegpu_cloud.fleet.fleet import Fleet

_CHUNK = 500


def told(site: Site, asked: Iterable[Asked]) -> dict[str, Told]:
    """Return what the controller knows of each command."""
    found: dict[str, Told] = {}
    with site.store.read() as tx:
        ids = [command_id(one.id) for one in asked if one.id]
        for at in range(0, len(ids), _CHUNK):
            for id_, one in tx.commands.get(ids[at : at + _CHUNK]).items():
                tracked = one.tracked
                found[id_] = Told(
                    state=tracked.state,
                    code=tracked.code,
                    text=tracked.text,
                    data=one.data,
                    seq=tracked.seq,
                    history=[line.state for line in tx.commands.history(id_)],
                )
    return found


def done(site: Site, box: Machine | Booted, asked: Iterable[Asked], told: Mapping[str, Told]) -> Done:
    """Return what a box did; its agent must not run, for its journal is opened."""
    details = site.fleet.details(box.device)
    view = details.box
    folder = box.kept if isinstance(box, Booted) else box.folder
    states, forgotten = journal(folder, (one.id for one in asked if one.id and one.box == box.name))
    named = {str((one.data or {}).get("invocation", "")) for one in told.values()}
    did = _booted(box, named) if isinstance(box, Booted) else _stand_in(box)
    return Done(
        starts=did.starts,
        changes=did.changes,
        stands=did.stands,
        doctor=did.doctor,
        repeated=did.repeated,
        journal=states,
        forgotten=forgotten,
        unasked=[one.id for one in details.orphans],
        restored=view.restored,
        rev=view.rev,
        applied_rev=view.applied_rev,
        items=_items(site.fleet, box.device),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Did:
    """The part of `Done` that the ledgers of a box say by themselves."""

    starts: Mapping[str, Sequence[Start]]
    changes: Mapping[str, Sequence[str]]
    stands: Mapping[str, str]
    doctor: int | None
    repeated: Sequence[str] = ()


def _stand_in(box: Machine) -> _Did:
    changes = [words for words in box.lines("changes") if words[1] != "boot"]
    return _Did(
        starts={
            unit: [
                Start(f"{number:032x}", "before" if words[1] == "boot" else words[1])
                for number, words in enumerate(box.lines(unit), 1)
            ]
            for unit in RESTARTS.values()
        },
        changes=_by_item((id_.rpartition("-")[0], id_) for id_ in dict.fromkeys(words[1] for words in changes)),
        stands=_standing(box.lines("changes")),
        doctor=len(box.lines("doctor")),
    )


def _standing(lines: Iterable[Sequence[str]]) -> dict[str, str]:
    """Return how things stand after all changes: settings go with sharing."""
    stands: dict[str, str] = {}
    for _, _, what, value in lines:
        if (what, value) == ("sharing", "off"):
            stands.clear()
        stands[what] = value
    return stands


def _booted(box: Booted, named: Collection[str]) -> _Did:
    at_work = ledgers.transactions(box.history.lines)
    entries = sorted(box.entries, key=lambda entry: int(entry["__REALTIME_TIMESTAMP"]))  # a boot's may be read late
    starts = ledgers.starts(entries, at_work, since_s=box.since_s, named=named)
    committed = [one for one in at_work if "COMMITTED" in one.states]
    apps = {f"app_limits/default/{app}/main": ledgers.amounts_of(one) for app, one in box.limits().items()}
    return _Did(
        starts={unit: starts.get(unit, []) for unit in RESTARTS.values()},
        changes=_by_item((one.item, one.id) for one in committed if one.item),
        stands={**box.settings(), **{name: f"{units} {core}" for name, (units, core) in apps.items()}},
        doctor=None,
        repeated=[*ledgers.too_often(ledgers.written(box.audit.lines)), *ledgers.restarted_twice(starts, committed)],
    )


def _by_item(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for item, id_ in pairs:
        found[item].append(id_)
    return found


def journal(folder: Path, ids: Iterable[str]) -> tuple[dict[str, str], int]:
    """Return the state of each command in the journal of a box, and up to which seq it has forgotten them."""
    state = folder / "var/lib/edgegpu"
    identity = load_identity(state / "identity")
    assert identity is not None
    opened = BoxJournal(state / f"agent/{identity.id}.db", wall_s=time.time)
    try:
        held = opened.load(enrolment=identity.device.enrolment, root=identity.device.root)
        found = {id_: held.records.get(command_id(id_)) or opened.recall(command_id(id_)) for id_ in ids}
        states: dict[str, str] = {id_: record.state for id_, record in found.items() if record is not None}
        return states, held.replay_guard.forgotten
    finally:
        opened.close()


def _items(fleet: Fleet, device: str) -> dict[str, dict[str, Any]]:
    """Return how the items of the desired document stand, with what is wanted as the ledger has it."""
    spec, items = fleet.spec(device), fleet.box(device).items
    wanted: dict[str, str] = {}
    if spec.sharing is not None:
        wanted["sharing"] = "on" if spec.sharing.installed else "off"
    if spec.policy is not None:
        wanted["policy"] = spec.policy.policy
    if spec.exclusions is not None:
        wanted["exclusions"] = ",".join(spec.exclusions.cards or ("none",))
    wanted |= {item_name(one): f"{one.memory_units} {one.core}" for one in spec.app_limits}
    return {name: {"state": items[name].state, "wanted": value} for name, value in wanted.items() if name in items}
