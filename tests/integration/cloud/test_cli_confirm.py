"""Commands that harm, or that change many boxes, are confirmed on a terminal; elsewhere they need --yes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kits.clipair import Pair, made_pair
from kits.cloudcli import run
from kits.details import box, card, pod
from kits.todaysstores import TodaysStores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALL = ("-l", "site=hall")
MANY = (
    ("limits", "set", *ALL, "asr", "--memory", "4"),
    ("sharing", "set", *ALL, "--policy", "spread"),
    ("install", *ALL),
    ("uninstall", *ALL),
    ("command", *ALL, "k3s.restart"),
    ("command", *ALL, "plugin.restart"),
    ("rollouts", "start", "sharing", "--policy", "spread", *ALL),
)
ONE = (("command", "hall-0", "k3s.restart"), ("uninstall", "hall-0"))


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, todays_stores: TodaysStores) -> Iterator[Pair]:
    with made_pair(tmp_path, monkeypatch, todays_stores) as pair:
        for number in range(3):
            device = pair.site.add(number, f"hall-{number}", site="hall")
            pods = {"u1": pod("asr-5d98c8c9f7-x2x4z", ("main", "0", 2, 1))}
            pair.site.report(device, box(f"hall-{number}", (card("0"),), pods, cluster=f"{number}" * 36))
        yield pair


def asked(pair: Pair) -> tuple[int, int, int]:
    """Return how many operations, rollouts and commands there are."""
    lists = (("operations", "list"), ("rollouts", "list"), ("commands",))
    operations, rollouts, commands = (len(pair.here(*words, "--json").json) for words in lists)
    return operations, rollouts, commands


@pytest.mark.parametrize("words", [*MANY, *ONE], ids=" ".join)
def test_where_nobody_can_be_asked_it_is_refused_in_words(pair: Pair, words: tuple[str, ...]) -> None:
    for end in ((), ("--json",)):
        for done in (pair.here(*words, *end), pair.there(*words, *end)):
            assert done.code == 1
            assert "nobody has confirmed" in done.out + done.err
            assert "--yes" in done.out + done.err
    assert asked(pair) == (0, 0, 0)


@pytest.mark.parametrize("words", [*MANY[:-1], *ONE], ids=" ".join)
def test_a_yes_starts_it_and_a_no_does_not(pair: Pair, words: tuple[str, ...]) -> None:
    refused = run(*words, folder=pair.folder, stdin="n\n")
    assert (refused.code, asked(pair)) == (1, (0, 0, 0))
    assert run(*words, folder=pair.folder, stdin="y\n").code == 0
    assert sum(asked(pair)) == 1
    assert pair.there(*words, "--yes").code == 0
    assert sum(asked(pair)) == 2


def test_the_question_says_how_many_boxes_and_what_happens_there(pair: Pair) -> None:
    def question(*words: str) -> str:
        return run(*words, folder=pair.folder, stdin="n\n").err

    many = question("command", *ALL, "k3s.restart")
    for text in ("A restart cannot be undone.", "hall-0, hall-1, hall-2", "k3s.restart on 3 boxes?"):
        assert text in many
    assert "2/1 -> 4/1 on 3 boxes" in question(*MANY[0])
    assert "1 pod holds a share there" in question("uninstall", "hall-0")


def test_the_answer_is_for_the_boxes_that_were_shown(pair: Pair) -> None:
    for words in (MANY[0], MANY[3]):
        shown = run(*words, folder=pair.folder, stdin="n\n")
        assert "3 boxes?" in shown.err
    token = pair.here(*MANY[0], "--preview").out.split()[-1]
    pair.here("label", "hall-0", "site=yard")
    assert pair.here(*MANY[0], "--expect", token).code == 1


@pytest.mark.parametrize("op", ["doctor.run", "inventory.refresh", "evidence.check"])
def test_what_only_reads_is_not_asked_about(pair: Pair, op: str) -> None:
    assert pair.here("command", *ALL, op).code == 0
    assert pair.here("command", "hall-0", "plugin.restart").code == 0, "one box goes on with its pods"


def test_one_box_of_a_selector_is_asked_about_as_one_box(pair: Pair) -> None:
    pair.here("label", "hall-0", "rack=7")
    assert pair.here("sharing", "set", "-l", "rack=7", "--policy", "spread").code == 0
    assert pair.here("uninstall", "-l", "rack=7").code == 1
