"""Each test runs on each branch of NVIDIA's user-space driver that the list pins; its figures go into the report."""

import pytest
from driver.archive import ArchiveError, VanishedError
from driver.cache import Unpacked, fetched
from driver.pins import Branch, read_pins
from driver.report import Figures


@pytest.fixture(scope="session", params=read_pins().branches, ids=lambda branch: branch.name)
def branch(request: pytest.FixtureRequest) -> Branch:
    found = request.param
    assert isinstance(found, Branch)
    return found


@pytest.fixture(scope="session")
def driver(branch: Branch) -> Unpacked:
    """One branch's packages, unpacked; a branch that the archive has dropped is skipped by its name."""
    try:
        return fetched(branch)
    except VanishedError as error:
        why = f"branch {branch.name}: {error}: make driver-pin takes what the archive has"
    except ArchiveError as error:
        why = f"branch {branch.name}: cannot ask Debian's archive: {error}"
    Figures(branch.name).skipped(why)
    pytest.skip(why)


@pytest.fixture
def figures(branch: Branch) -> Figures:
    return Figures(branch.name)
