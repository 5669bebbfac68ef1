"""A console over a store of its own, for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kits.cert import Authority
from kits.console import ConsoleSite
from kits.todaysstores import TodaysStores


@pytest.fixture
def site(todays_stores: TodaysStores) -> Iterator[ConsoleSite]:
    with todays_stores.opened() as store:
        yield ConsoleSite(store)


@pytest.fixture
def url(site: ConsoleSite, tmp_path: Path) -> Iterator[str]:
    with site.served(tmp_path, Authority("console")) as url:
        yield url
