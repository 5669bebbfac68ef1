"""Which machine this is, the clock's floor, the words of a standing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from edgegpu_agent.identity.clock_floor import WRITTEN_S, ClockFloor
from edgegpu_agent.identity.errors import IdentityError
from edgegpu_agent.identity.machine_id import instance
from edgegpu_agent.identity.status import EnrolmentState, IdentityStatus, enrol_retry_s, renew_retry_s

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = "3d1219c7c4c5404aaa1f6d2a48adfda4"
BOARD = "4c4c4544-0042-3510-8052-b4c04f4e3632"


def machine(root: Path, *, machine_id: str = MACHINE, board: str | None = BOARD) -> Path:
    (root / "etc").mkdir(parents=True, exist_ok=True)
    (root / "etc/machine-id").write_text(machine_id + "\n")
    if board is not None:
        dmi = root / "sys/class/dmi/id"
        dmi.mkdir(parents=True, exist_ok=True)
        (dmi / "product_uuid").write_text(board + "\n")
    return root


def test_a_copied_disk_is_another_instance_in_another_board(tmp_path: Path) -> None:
    mine = instance(machine(tmp_path / "a"))
    assert len(mine) == 64
    assert instance(machine(tmp_path / "b", board=BOARD.upper())) == mine  # some kernels shout
    assert instance(machine(tmp_path / "c", board="0" + BOARD[1:])) != mine
    assert instance(machine(tmp_path / "d", machine_id="0" + MACHINE[1:])) != mine


def test_without_dmi_the_machine_id_counts(tmp_path: Path) -> None:
    mine = instance(machine(tmp_path / "a", board=None))
    assert instance(machine(tmp_path / "b", board=None)) == mine
    assert instance(machine(tmp_path / "c", board=BOARD)) != mine
    assert MACHINE not in mine


@pytest.mark.parametrize("text", ["", "uninitialized", MACHINE[:-1]])
def test_no_machine_id_is_no_other_machine(tmp_path: Path, text: str) -> None:
    with pytest.raises(IdentityError, match=r"holds no machine id; systemd-machine-id-setup"):
        instance(machine(tmp_path, machine_id=text))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_no_other_machine(tmp_path: Path) -> None:
    (machine(tmp_path) / "sys/class/dmi/id/product_uuid").chmod(0)
    with pytest.raises(IdentityError, match="run it as root"):
        instance(tmp_path)


def test_this_very_machine_can_be_told(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    assert instance(machine(tmp_path))


def test_the_floor_only_rises_and_stays(tmp_path: Path) -> None:
    path, now = tmp_path / "clock.json", [0.0]
    assert not ClockFloor(path, clock=lambda: now[0]).is_right
    floor = ClockFloor(path, clock=lambda: now[0])
    assert floor.now_s == WRITTEN_S
    floor.raise_to(WRITTEN_S + 86_400)
    floor.raise_to(5)
    assert ClockFloor(path, clock=lambda: now[0]).floor_s == WRITTEN_S + 86_400
    now[0] = WRITTEN_S + 86_401.0
    assert floor.is_right
    assert floor.now_s == now[0]


def test_a_clock_that_is_ahead_is_known_once_the_cloud_has_spoken(tmp_path: Path) -> None:
    true_s, boot = WRITTEN_S + 10 * 86_400, [50.0]
    floor = ClockFloor(tmp_path / "clock.json", clock=lambda: true_s + 20 * 365 * 86_400.0, boot_s=lambda: boot[0])
    seen = [floor.is_right]  # nobody knows better
    floor.set_own_expired(ended=True)
    seen.append(floor.is_right)
    floor.learn_signed(true_s)
    floor.set_own_expired(ended=False)
    floor.learn_signed(true_s - 3_600)  # one that was held back changes nothing
    boot[0] += 100
    assert [*seen, floor.is_right] == [True, False, False]
    assert (floor.now_s, floor.floor_s) == (true_s + 100, true_s + 100)


def test_a_clock_that_is_right_is_believed_after_the_cloud_has_spoken(tmp_path: Path) -> None:
    right_s = WRITTEN_S + 10 * 86_400.0
    now = [right_s]
    floor = ClockFloor(tmp_path / "clock.json", clock=lambda: now[0], boot_s=lambda: 50.0)
    floor.learn_signed(int(right_s) - 30)
    seen = [(floor.is_right, floor.now_s)]
    now[0] = 5.0
    assert [*seen, (floor.is_right, floor.now_s)] == [(True, right_s), (False, right_s - 30)]


def test_one_message_does_not_move_the_floor_for_good(tmp_path: Path) -> None:
    """Of a stolen key, or of a controller whose clock stood in 2099: the box's own clock says otherwise."""
    path, right_s, boot = tmp_path / "clock.json", WRITTEN_S + 10 * 86_400, [50.0]
    floor = ClockFloor(path, clock=lambda: float(right_s), boot_s=lambda: boot[0])
    assert floor.learn_signed(right_s)
    before = path.read_bytes()
    far_s = right_s + 400 * 86_400
    assert [floor.learn_signed(far_s), floor.learn_signed(2**53 - 1)] == [False, False]
    assert (floor.is_right, floor.now_s, path.read_bytes()) == (True, right_s, before)


def test_a_clock_without_a_battery_learns_a_year_at_most_of_messages(tmp_path: Path) -> None:
    path, boot = tmp_path / "clock.json", [50.0]
    floor = ClockFloor(path, clock=lambda: boot[0], boot_s=lambda: boot[0])
    assert floor.learn_signed(WRITTEN_S + 300 * 86_400)
    assert [floor.learn_signed(WRITTEN_S + days * 86_400) for days in (500, 700)] == [False, False]
    boot[0] += 100 * 86_400  # it runs for so long
    assert floor.learn_signed(WRITTEN_S + 400 * 86_400)


def test_an_enrolment_puts_the_floor_right(tmp_path: Path) -> None:
    path = tmp_path / "clock.json"
    path.write_text('{"version": 1, "floor_s": 4000000000}')
    floor = ClockFloor(path, clock=lambda: 0.0, boot_s=lambda: 50.0)
    true_s = WRITTEN_S + 900 * 86_400
    floor.begin(true_s)
    assert (floor.floor_s, ClockFloor(path).floor_s) == (true_s, true_s)
    assert floor.learn_signed(true_s + 60)


def test_the_floor_is_not_written_with_each_receipt(tmp_path: Path) -> None:
    path = tmp_path / "clock.json"
    floor = ClockFloor(path)
    floor.raise_to(WRITTEN_S + 86_400)
    before = path.stat().st_ino
    floor.raise_to(WRITTEN_S + 86_460)
    assert floor.floor_s == WRITTEN_S + 86_460
    assert path.stat().st_ino == before


def test_a_floor_that_cannot_be_read_or_written_is_learned_again(tmp_path: Path) -> None:
    path = tmp_path / "clock.json"
    path.write_text("{")
    assert ClockFloor(path).floor_s == WRITTEN_S
    nowhere = ClockFloor(tmp_path / "missing/clock.json")
    nowhere.raise_to(WRITTEN_S + 86_400)
    assert nowhere.floor_s == WRITTEN_S + 86_400


def test_waits_grow_to_a_bound_and_differ() -> None:
    waits = [enrol_retry_s(failures, 0.0) for failures in range(40)]
    assert waits == sorted(waits)
    assert enrol_retry_s(40, 1.0) == 300
    assert enrol_retry_s(3, 0.0) < enrol_retry_s(3, 1.0)
    assert renew_retry_s(-5) == 60
    assert renew_retry_s(10 * 86_400) == 28_800
    assert renew_retry_s(1e9) == 86_400


def test_a_standing_says_what_to_do() -> None:
    one = IdentityStatus(stand=EnrolmentState.REFUSED, text="it was used", remedy="ask for another", code="TOKEN_USED")
    assert one.line == "refused; it was used; do: ask for another"
    assert one.document()["code"] == "TOKEN_USED"
