from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fuzz import guided
from fuzz.flood import flood
from fuzz.readers import faulty
from kits.mqtt import need_mosquitto

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(900)]


@pytest.fixture
def place() -> Iterator[Path]:
    need_mosquitto()
    place = Path(tempfile.mkdtemp(prefix="fuzz-"))  # a path that a socket's name may have
    yield place
    shutil.rmtree(place, ignore_errors=True)


def test_a_small_flood_is_counted_to_the_last_message_and_has_no_effect(place: Path) -> None:
    outcome = flood(place, messages=300, number=5)
    assert outcome.wrong == []
    assert outcome.sent.lies == 300
    assert outcome.sent.different > 240, "replays are of what there is, and few; the others are not alike"
    assert sum(outcome.refused.values()) == outcome.sent.refusable > 250
    assert outcome.asked


def test_a_box_that_trusts_a_stranger_is_found(place: Path) -> None:
    outcome = flood(place, messages=300, number=6, bug="trusts-a-stranger", patience_s=15)
    assert any("nobody has asked for it" in words for words in outcome.effects), outcome.wrong
    assert any("UnknownKey" in words for words in outcome.wrong), outcome.wrong


@pytest.mark.parametrize(("name", "words"), [("fails", "KeyError"), ("hangs", "timeout")])
def test_a_reader_with_a_fault_is_found(tmp_path: Path, name: str, words: str) -> None:
    if not guided.there():
        pytest.skip(guided.MISSING)
    found = guided.guided([faulty()[name]], tmp_path, seconds=20, number=1, hangs_s=2)[name]
    assert words in found.wrong
    assert [path for path in (tmp_path / name).iterdir() if path.name.startswith(("crash-", "timeout-"))]
