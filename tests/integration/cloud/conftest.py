"""The tier `make cloud`, and controllers on each engine that a store may have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kits.controller import Bed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder: with it `make test` would take longer than anybody waits."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.cloud)


@pytest.fixture
def new_bed(store_url: str, tmp_path: Path) -> Iterator[Callable[..., Bed]]:
    """Yield what makes a controller with boxes, on SQLite and on PostgreSQL; its options are those of `Bed`."""
    made: list[Bed] = []

    def make(**options: Any) -> Bed:  # noqa: ANN401  (the options of Bed)
        made.append(Bed(tmp_path, url=store_url, **options))
        return made[-1]

    yield make
    for bed in made:
        bed.store.close()
