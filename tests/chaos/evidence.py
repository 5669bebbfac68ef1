"""Reads the ledgers at the end: the controller's store, the boxes' journals, and what the boxes did."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from chaos.verdict import RESTARTS, Done, Told

from edgegpu_agent.identity.device import load_identity
from edgegpu_agent.journal.journal import Journal
from edgegpu_sync.ids import command_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.load import Asked
    from chaos.machine import Machine
    from chaos.site import Site

    from edgegpu_cloud.fleet import Fleet

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


def done(site: Site, box: Machine, asked: Iterable[Asked]) -> Done:
    """Return what a box did; its agent must not run, for its journal is opened."""
    details = site.fleet.details(box.device)
    view = details.box
    states, forgotten = journal(box, (one.id for one in asked if one.id and one.box == box.name))
    return Done(
        starts={unit: box.lines(unit) for unit in RESTARTS.values()},
        changes=box.lines("changes"),
        doctor=len(box.lines("doctor")),
        journal=states,
        forgotten=forgotten,
        unasked=[one.id for one in details.orphans],
        restored=view.restored,
        rev=view.rev,
        applied_rev=view.applied_rev,
        items=_items(site.fleet, box),
    )


def journal(box: Machine, ids: Iterable[str]) -> tuple[dict[str, str], int]:
    """Return the state of each command in the journal of a box, and up to which seq it has forgotten them."""
    state = box.folder / "var/lib/edgegpu"
    identity = load_identity(state / "identity")
    assert identity is not None
    opened = Journal(state / f"agent/{identity.id}.db", wall_s=time.time)
    try:
        held = opened.load(enrolment=identity.device.enrolment, root=identity.device.root)
        found = {id_: held.records.get(command_id(id_)) or opened.recall(command_id(id_)) for id_ in ids}
        states: dict[str, str] = {id_: record.state for id_, record in found.items() if record is not None}
        return states, held.gate.forgotten
    finally:
        opened.close()


def _items(fleet: Fleet, box: Machine) -> dict[str, dict[str, Any]]:
    """Return how the items of the desired document stand, with what is wanted as the ledger has it."""
    spec, items = fleet.spec(box.device), fleet.box(box.device).items
    wanted: dict[str, str] = {}
    if spec.sharing is not None:
        wanted["sharing"] = "on" if spec.sharing.installed else "off"
    if spec.policy is not None:
        wanted["policy"] = spec.policy.policy
    if spec.exclusions is not None:
        wanted["exclusions"] = ",".join(spec.exclusions.cards or ("none",))
    return {name: {"state": items[name].state, "wanted": value} for name, value in wanted.items() if name in items}
