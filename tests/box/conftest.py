"""A box with k3s and simulated cards, made once; each test that changes it boots it afresh from an image."""

import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from box.bed import WITH_EDGEGPU, WITH_K3S, Bed, WebServer, make_bundle
from box.bedtests import add_words_of_bed, mark_tests
from lab.boxkit import missing

LACKS = missing("box") + missing("image")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder; where the machine lacks something, fail in CI and say it elsewhere."""
    mark_tests(items, Path(__file__).parent, mark="box", limit_s=900, lacks=LACKS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with a failed test what its box says of itself."""
    report = yield
    add_words_of_bed(item, report, "the box")
    return report


@pytest.fixture(scope="session")
def bed(simdriver_build: Path) -> Iterator[Bed]:
    """Yield the bed: its image with k3s is made, the bundle is served, the box is off."""
    assert simdriver_build.is_dir()
    made = Bed()
    make_bundle()
    try:
        made.prepare()
        with tempfile.TemporaryDirectory() as folder:
            made.web = WebServer(Path(folder), made.machine)
            yield made
            made.web.stop()
    finally:
        made.machine.down()


@pytest.fixture
def k3s_box(bed: Bed) -> Bed:
    """Boot a box with k3s and without edgegpu."""
    bed.fresh(WITH_K3S)
    return bed


@pytest.fixture(scope="session")
def installed(bed: Bed) -> str:
    """Make the image with edgegpu installed and services that a boot starts; returns its name."""
    bed.fresh(WITH_K3S)
    bed.pristine = bed.disk()
    bed.line("--yes")
    bed.offered()
    bed.run_apps()
    bed.stop_apps()
    bed.save(WITH_EDGEGPU)
    return WITH_EDGEGPU


@pytest.fixture
def gpu_box(bed: Bed, installed: str) -> Bed:
    """Boot a box with edgegpu and services that run."""
    bed.fresh(installed)
    return bed
