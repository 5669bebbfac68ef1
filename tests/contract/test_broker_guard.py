"""Whether a mosquitto starts with a guard: found out with a real one, before its configuration names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kits.mqtt import compile_guard, need_mosquitto

from edgegpu_cloud.broker.guard import MARK, load_problem
from edgegpu_cloud.controller.broker_drops import BLOCKED_TOPIC

if TYPE_CHECKING:
    from pathlib import Path


def test_a_guard_is_known_by_the_topic_that_it_hears() -> None:
    assert BLOCKED_TOPIC.encode() == MARK


def test_a_guard_that_was_compiled_here_is_loaded(tmp_path: Path) -> None:
    assert not load_problem(compile_guard(tmp_path), need_mosquitto())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"\x7fELF of before", "is of an older edgegpu"),
        (b"no library " + MARK, "Unable to load"),
    ],
)
def test_one_that_is_none_is_said(tmp_path: Path, content: bytes | None, words: str) -> None:
    library = tmp_path / "mosquitto_guard.so"
    if content is not None:
        library.write_bytes(content)
    assert words in load_problem(library, need_mosquitto())


def test_a_mosquitto_that_does_not_start_is_said(tmp_path: Path) -> None:
    assert load_problem(compile_guard(tmp_path), "/bin/false") == "it does not start"
