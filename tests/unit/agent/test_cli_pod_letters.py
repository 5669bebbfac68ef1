"""Letters of the bars: a pod keeps its own from call to call, and a new pod is not taken for one that has gone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegpu_agent.cli.views.bars import LETTERS, MANY
from edgegpu_agent.cli.views.pod_letters import FILE, letters_of

if TYPE_CHECKING:
    from pathlib import Path


def test_letters_stay_with_their_owners(tmp_path: Path) -> None:
    assert letters_of(["a", "b", "c"], tmp_path) == {"a": "A", "b": "B", "c": "C"}
    assert letters_of(["c", "b"], tmp_path) == {"c": "C", "b": "B"}
    assert letters_of(["new", "b", "c"], tmp_path) == {"new": "D", "b": "B", "c": "C"}
    assert letters_of(["a", "new", "c"], tmp_path) == {"a": "E", "new": "D", "c": "C"}
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_letters_come_round_when_all_were_given(tmp_path: Path) -> None:
    for number in range(3 * len(LETTERS)):
        found = letters_of(["stays", f"pod-{number}"], tmp_path)
        assert found["stays"] == "A"
        assert found[f"pod-{number}"] in LETTERS[1:]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"v": 1}', '{"letters": {"a": "B", "b": "B"}, "last": 3}', '{"letters": []}']
)
def test_a_file_that_says_nothing_of_use_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert letters_of(["a", "b"], tmp_path) == {"a": "A", "b": "B"}
    assert json.loads((tmp_path / FILE).read_text())["letters"] == {"a": "A", "b": "B"}


def test_nothing_is_kept_where_others_may_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert letters_of(["a"], tmp_path) == {"a": "A"}
    assert list(tmp_path.iterdir()) == []
    assert letters_of(["a"], tmp_path / "none") == {"a": "A"}


@given(st.lists(st.lists(st.integers(0, 90), unique=True, max_size=70), max_size=6))
def test_no_two_pods_share_a_letter_and_none_changes_its_own(
    tmp_path_factory: pytest.TempPathFactory, calls: list[list[int]]
) -> None:
    folder, before = tmp_path_factory.mktemp("run"), dict[str, str]()
    for call in calls:
        found = letters_of([str(uid) for uid in call], folder)
        given_ = [letter for letter in found.values() if letter != MANY]
        assert len(set(given_)) == len(given_) >= min(len(call), len(LETTERS))
        assert all(found[uid] == letter for uid, letter in before.items() if uid in found and letter != MANY)
        before = found
