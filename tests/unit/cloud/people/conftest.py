"""A store with people in it, on each engine that there is."""

import pytest
from kits.people import PeopleBed

from edgegpu_cloud.store.store import ControllerStore


@pytest.fixture
def bed(store: ControllerStore) -> PeopleBed:
    return PeopleBed(store)
