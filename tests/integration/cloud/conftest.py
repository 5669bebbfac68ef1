"""The tier `make cloud`, and controllers on each engine that a store may have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kits.controller import Bed
from kits.todaysstores import CHOICE, ENGINES, TodaysStores, engine_of_the_day

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder: with it `make test` would take longer than anybody waits."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.cloud)


def pytest_report_header() -> str:
    """Say on which database those tests run that do not run on both."""
    engine = engine_of_the_day()
    return f"database of the day: {CHOICE}={engine} (of {', '.join(ENGINES)})"


@pytest.fixture(scope="session")
def todays_stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TodaysStores:
    """Return what makes stores in the database of the day; see `kits.todaysstores`."""
    server = request.getfixturevalue("postgres_server") if engine_of_the_day() == "postgresql" else None
    return TodaysStores(tmp_path_factory.mktemp("stores"), server)


@pytest.fixture
def todays_url(todays_stores: TodaysStores) -> Iterator[str]:
    """Yield the URL of a store in the database of the day."""
    with todays_stores.url() as url:
        yield url


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
