"""A console over a store of its own, for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kits.cert import Authority
from kits.console import ConsoleSite
from kits.stores import open_store


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ConsoleSite]:
    store = open_store(tmp_path / "controller.db")
    yield ConsoleSite(store)
    store.close()


@pytest.fixture
def url(site: ConsoleSite, tmp_path: Path) -> Iterator[str]:
    with site.served(tmp_path, Authority("console")) as url:
        yield url
