"""A store that is empty, on each engine that there is."""

from collections.abc import Iterator

import pytest
from kits.stores import open_store

from edgegpu_cloud.store.store import ControllerStore


@pytest.fixture
def store(store_url: str) -> Iterator[ControllerStore]:
    store = open_store(store_url)
    yield store
    store.close()
