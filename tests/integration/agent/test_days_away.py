"""The real worker under the real controller over days: away while much is asked, and a controller from a backup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from kits.version import Pair
from kits.workercontroller import REFRESH, ROOT

from edgegpu_sync.keys import key_id, next_link, public_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY_S = 86_400.0


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def rotate(here: Pair, root: Ed25519PrivateKey, *, next_root: Ed25519PrivateKey) -> None:
    """Have the root sign the next set, with a new signing key alone, and name the root after it."""
    here.bed.signing = Ed25519PrivateKey.generate()
    with here.bed.store.write() as tx:
        chain = tx.notes.chain()
        keys = [public_text(here.bed.signing)]
        link = next_link(root, keys=keys, before=chain[-1], next_root=public_text(next_root))
        tx.notes.add_link(len(chain) + 1, link)
        tx.notes.changed()


def test_a_box_that_was_away_for_weeks_is_told_all_of_it_and_tells_all_of_it(here: Pair) -> None:
    fleet, roots = here.fleet, [ROOT, *(Ed25519PrivateKey.generate() for _ in range(3))]
    here.away()
    ids = []
    for day in range(21):
        here.bed.settle(DAY_S, step_s=DAY_S / 4)
        here.box.box.worker.send_event("card.hot", f"day {day}", level="alarm")
        here.box.work()
        (fleet.uninstall if day % 2 else fleet.install)("box", wait_s=30 * 86_400)
        if day % 3 == 0:
            ids += [fleet.command("box", op, {}, wait_s=30 * 86_400) for op in (REFRESH, "k3s.restart")]
        if day % 7 == 6:
            rotate(here, roots[day // 7], next_root=roots[day // 7 + 1])
    late = fleet.command("box", "k3s.restart", {}, wait_s=60)
    here.bed.settle(120, step_s=20)
    here.back()
    here.bed.until(lambda: all(one.ended for one in fleet.commands("box", 500)))
    world, view = here.box.box.world, fleet.box("box")
    assert {here.ends(id_) for id_ in ids} == {("SUCCEEDED", "")}
    assert here.ends(late) == ("EXPIRED", "TOO_LATE")
    assert (sum(world.restarted_by.values()), set(world.restarted_by.values())) == (7, {1})
    assert (view.rev, view.applied_rev, view.restored) == (21, 21, False)
    assert world.installed, "as the last revision has it"
    here.bed.until(lambda: here.box.box.worker.status().events_waiting == 0)
    assert [one.text for one in reversed(fleet.events("box"))] == [f"day {day}" for day in range(21)]
    assert here.box.box.worker.status().key_set == 4
    newest = here.bed.network.seen_down[-1][1].split()[1].decode()
    assert newest == key_id(public_text(here.bed.signing))


def installed(here: Pair) -> bool:
    return here.box.box.world.installed


def test_a_controller_from_yesterday_asks_for_nothing_until_a_person_has_looked(here: Pair) -> None:
    fleet, bed, world = here.fleet, here.bed, here.box.box.world
    assert here.ends(fleet.install("box")) == ("SUCCEEDED", "")
    backup = bed.backup()
    bed.restore(backup)
    fleet = bed.fleet
    bed.settle(DAY_S, step_s=DAY_S / 24)
    for op in ("k3s.restart", "k3s.restart"):
        id_ = fleet.command("box", op, {})
        bed.until(lambda id_=id_: bed.fleet.one_command(id_).ended)  # type: ignore[misc]
    id_ = fleet.uninstall("box")
    bed.until(lambda: bed.fleet.one_command(id_).ended)
    assert installed(here) is False

    bed.restore(backup)
    bed.until(lambda: bed.fleet.box("box").restored)
    waiting = bed.fleet.command("box", "k3s.restart", {})
    bed.settle(600, step_s=10)
    assert not bed.fleet.one_command(waiting).ended
    assert (installed(here), sum(world.restarted_by.values())) == (False, 2)

    bed.fleet.confirm_restored("box")
    bed.until(lambda: bed.fleet.one_command(waiting).ended and bed.fleet.box("box").applied_rev == 3)
    assert installed(here), "what the backup holds is desired again"
    assert set(world.restarted_by.values()) == {1}
    assert sum(world.restarted_by.values()) == 3
