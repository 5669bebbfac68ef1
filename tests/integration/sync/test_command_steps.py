"""kill -9 of the agent's process at steps of commands: some here; every one of every op in `make bugs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kits.step import LIMITS, Site, struck

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOME = (
    ("after-act", "plugin.restart"),
    ("after-SETTLED", LIMITS),
)


@pytest.fixture
def site(tmp_path: Path, short_tmp: Path) -> Iterator[Site]:
    with Site(tmp_path, short_tmp) as made:
        yield made


def test_a_command_whose_agent_is_killed_ends_once_and_right(site: Site) -> None:
    found = list(struck(site, SOME))
    assert [one.wrong for one in found] == [""] * len(SOME), found
