"""A virtual machine with k3s and simulated cards; each test goes on from a moment at which it was saved."""

import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from box.bed import ROOT, WITH_EDGEGPU, WITH_K3S, WebServer, make_bundle
from box.bedtests import add_words_of_bed, mark_tests
from e2e.testedrecord import TestedRecord
from lab.boxkit import missing
from lab.labrun import LabError, slow_machine
from lab.vm.accelerator import accelerator
from vm.vmbed import VmBed

LACKS = missing("vm") + missing("image")
MINUTES = 45
RECORD = ROOT / "build/vm/tested.jsonl"
"""What ran on which versions; `tools/tested_versions.py --add` takes it into the documents."""


def pytest_configure(config: pytest.Config) -> None:
    """Record what runs on which versions, and whether all of it does."""
    config.pluginmanager.register(TestedRecord(RECORD, {"full": bool(os.environ.get("TEST_FULL"))}))


def pytest_report_header() -> str:
    """Say what the machine runs on, and why."""
    if LACKS:
        return "virtual machine: none"
    try:
        return f"virtual machine: {accelerator().name} ({accelerator().reason})"
    except LabError as error:
        return f"virtual machine: none ({error})"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder; where the machine lacks something, fail in CI and say it elsewhere."""
    mark_tests(items, Path(__file__).parent, mark="vm", limit_s=MINUTES * 60, lacks=LACKS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with a failed test what its machine says of itself."""
    report = yield
    add_words_of_bed(item, report, "the machine")
    return report


@pytest.fixture(scope="session")
def bed(simdriver_build: Path) -> Iterator[VmBed]:
    """Make the image of a machine with k3s, and a web server with the bundle."""
    assert simdriver_build
    if LACKS:
        pytest.fail("; ".join(LACKS), pytrace=False)
    make_bundle()
    with slow_machine(accelerator().times_slower), tempfile.TemporaryDirectory() as folder:
        made = VmBed()
        try:
            made.prepare()
            made.web = WebServer(Path(folder), made.machine)
            yield made
            made.web.stop()
        finally:
            made.machine.down()


@pytest.fixture
def k3s_vm(bed: VmBed) -> VmBed:
    """Go on with k3s and without edgegpu."""
    bed.fresh(WITH_K3S)
    return bed


@pytest.fixture(scope="session")
def installed(bed: VmBed) -> str:
    """Make the image with edgegpu installed and services that run, where it is not current; returns its name."""
    bed.prepare_edgegpu()
    return WITH_EDGEGPU


@pytest.fixture
def gpu_vm(bed: VmBed, installed: str) -> VmBed:
    """Go on with edgegpu and services that run."""
    bed.fresh(installed)
    return bed
