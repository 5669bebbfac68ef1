from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from chaos import ledgers
from chaos.booted import Tail
from chaos.ledgers import Transaction, Written
from chaos.verdict import Start

if TYPE_CHECKING:
    from pathlib import Path

K3S = "k3s.service"


def entry(number: int, *, message: str = ledgers.STARTING, boot: str = "one", at_s: float = 0.0) -> dict[str, Any]:
    stamp = str(int(at_s * 1e6))
    return {
        "UNIT": K3S,
        "_BOOT_ID": boot,
        "INVOCATION_ID": str(number),
        "MESSAGE_ID": message,
        "__REALTIME_TIMESTAMP": stamp,
    }


def by(*entries: dict[str, Any], at_work: tuple[Transaction, ...] = ()) -> list[str]:
    return [one.by for one in ledgers.starts(entries, at_work, since_s=-1.0)[K3S]]


def test_a_start_that_nothing_explains_was_asked_for() -> None:
    assert ledgers.starts([entry(7)], [], since_s=0.0) == {K3S: [Start("7", "systemctl")]}
    assert ledgers.starts([entry(7)], [], since_s=1.0) == {K3S: [Start("7", "before")]}


def test_the_first_start_of_another_boot_is_the_boots() -> None:
    assert by(entry(1), entry(2, boot="two"), entry(3, boot="two")) == ["systemctl", "boot", "systemctl"]


def test_what_ended_by_itself_is_started_by_systemd_and_once() -> None:
    assert by(entry(1), entry(1, message=ledgers.AGAIN), entry(2), entry(3)) == ["systemctl", "systemd", "systemctl"]


def test_a_command_may_name_the_run_that_systemd_made_of_the_one_that_it_began() -> None:
    ones = [entry(1), entry(1, message=ledgers.AGAIN), entry(2)]

    def begun(*named: str) -> list[Start]:
        return ledgers.starts(ones, [], since_s=-1.0, named=named)[K3S]

    assert begun("2") == [Start("2", "systemctl")]
    assert begun("1", "2") == begun("1") == begun() == [Start("1", "systemctl"), Start("2", "systemd")]


def test_a_command_may_name_the_run_that_an_installer_made_after_the_one_that_it_began() -> None:
    tx = Transaction("exclusions-10-abc", ("PREPARED", "COMMITTED"), 10.0, 20.0)
    ones = [entry(number, at_s=at_s) for number, at_s in enumerate((1.0, 15.0, 30.0))]

    def begun_by(*named: str, since: int = 0) -> list[tuple[str, str]]:
        found = ledgers.starts(ones[since:], [tx], since_s=0.0, named=named)[K3S]
        return [(one.id, one.by) for one in found]

    assert begun_by("1") == [("1", "systemctl"), ("2", "systemctl")]
    installers = ("1", "installer exclusions-10-abc")
    assert begun_by("0", "1") == [("0", "systemctl"), installers, ("2", "systemctl")]
    assert begun_by() == [("0", "systemctl"), installers, ("2", "systemctl")]
    assert begun_by("1", since=1) == [installers, ("2", "systemctl")], "no command's start was replaced"


def test_an_installers_run_may_follow_the_one_that_systemd_made() -> None:
    tx = Transaction("exclusions-10-abc", ("PREPARED", "COMMITTED"), 10.0, 20.0)
    ones = [entry(1, at_s=1.0), entry(1, message=ledgers.AGAIN, at_s=2.0), entry(2, at_s=2.0), entry(3, at_s=15.0)]
    found = ledgers.starts(ones, [tx], since_s=0.0, named={"3"})[K3S]
    assert [(one.id, one.by) for one in found] == [("2", "systemd"), ("3", "systemctl")]


def test_what_starts_while_an_installer_is_at_work_is_its_own() -> None:
    lines = [
        "2026-01-01T00:00:10Z policy-3-abc change PREPARED",
        "2026-01-01T00:00:14Z policy-3-abc change COMMITTED",
        "2026-01-01T00:00:20Z not a line of ours",
    ]
    (tx,) = ledgers.transactions(lines)
    assert (tx.states, tx.item, tx.until_s - tx.from_s) == (("PREPARED", "COMMITTED"), "policy-3", 5.0)
    ones = [entry(at, at_s=tx.from_s + at) for at in (-1, 0, 4, 6)]
    assert by(*ones, at_work=(tx,)) == ["systemctl", *["installer policy-3-abc"] * 2, "systemctl"]


def test_in_the_seconds_in_which_an_installer_begins_and_ends_a_start_is_whose_command_names_it() -> None:
    tx = Transaction("policy-3-abc", ("PREPARED", "COMMITTED"), 10.0, 15.0)
    ones = [entry(number, at_s=at_s) for number, at_s in enumerate((10.5, 12.0, 14.5))]

    def begun_by(*named: str) -> list[str]:
        return [one.by for one in ledgers.starts(ones, [tx], since_s=0.0, named=named)[K3S]]

    assert begun_by() == ["installer policy-3-abc"] * 3
    assert begun_by("0", "1", "2") == ["systemctl", "installer policy-3-abc", "systemctl"]


def test_an_installer_that_came_to_its_end_has_restarted_once() -> None:
    tx = Transaction("sharing-2-a", ("PREPARED", "COMMITTED"), 0.0, 9.0)
    once = {K3S: [Start("1", "installer sharing-2-a")]}
    assert ledgers.restarted_twice(once, [tx]) == []
    assert ledgers.restarted_twice({K3S: once[K3S] * 2}, [tx]) == [f"sharing-2-a started {K3S} 2 times"]


def write(amounts: tuple[int, int], generation: int) -> Written:
    return Written("asr", "agent", f"uid {generation}", amounts)


def test_each_revisions_limits_are_written_once_and_put_back_once() -> None:
    a, b, c = (1, 1), (2, 2), (3, 3)
    right = [write(one, number) for number, one in enumerate((a, b, a, c, a))]
    assert ledgers.too_often(right) == []
    assert ledgers.too_often([*right, write(c, 9)])
    assert ledgers.too_often([write(a, 1), write(b, 2), write(c, 3), write(a, 4)])


def test_a_write_that_a_power_cut_took_back_is_no_second_one() -> None:
    assert ledgers.too_often([write((1, 1), 1), write((2, 2), 2), write((2, 2), 2)]) == []


def event(units: int, generation: int, *, code: int = 200) -> str:
    limits = {ledgers.MEMORY: str(units), ledgers.CORE: "1k"}
    template = {"spec": {"containers": [{"resources": {"limits": limits}}]}}
    made = {"metadata": {"uid": "u", "generation": generation}, "spec": {"template": template}}
    ref = {"resource": "deployments", "name": "asr"}
    return json.dumps(
        {"objectRef": ref, "responseStatus": {"code": code}, "responseObject": made, "user": {"username": "agent"}}
    )


def test_writes_are_those_that_change_limits() -> None:
    lines = [event(1, 1, code=201), event(1, 2), event(2, 3), event(9, 4, code=409), event(2, 5)]
    assert ledgers.written(lines) == [Written("asr", "agent", "u 3", (2, 1000))]


def test_a_file_that_is_cut_short_is_read_again_and_each_line_kept_once(tmp_path: Path) -> None:
    path, tail = tmp_path / "log", Tail()
    tail.read(path)
    path.write_text("a\nb\nhal")
    tail.read(path)
    assert tail.lines == ["a", "b"]
    path.write_text("a\nb\nhalf\n")
    tail.read(path)
    path.write_text("b\n")
    tail.read(path)
    path.write_text("b\nc\n")
    tail.read(path)
    assert tail.lines == ["a", "b", "half", "c"]
