"""When the booted box counts an operation as ended: its scripts run in a folder, with the systemd of a script."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from box.bed import JOURNAL, Bed
from box.faults import OPS, ended
from box.filejudge import COMMITTED, NOT_BEGUN, ROLLED_BACK

if TYPE_CHECKING:
    from collections.abc import Callable

SYSTEMCTL = """#!/bin/sh
# is-active UNIT…: what stands in the file of that name; list-jobs: the file `jobs`.
verb=$1; shift
if [ "$verb" = list-jobs ]; then cat "$UNITS/jobs" 2> /dev/null; exit 0; fi
for unit; do cat "$UNITS/$unit" 2> /dev/null || echo inactive; done
"""
BASELINE, UNIT = "var/lib/edgegpu/baseline", "etc/systemd/system/edgegpu-plugin.service"
TIMER, DEADMAN, RECOVER = "edgegpu-deadman.timer", "edgegpu-deadman.service", "edgegpu-recover.service"


class Place:
    """A machine that is a folder: what runs in it finds its own /var, /etc and systemctl."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.units = folder, folder / "units"
        for path in (self.units, folder / "bin", folder / "etc", folder / "var"):
            path.mkdir()
        (folder / "bin/systemctl").write_text(SYSTEMCTL)
        (folder / "bin/systemctl").chmod(0o755)

    def put(self, path: str, text: str = "") -> None:
        target = self.folder / path.removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def exec(self, *words: str, check: bool) -> subprocess.CompletedProcess[str]:
        here = [word.replace("/var/", f"{self.folder}/var/").replace("/etc/", f"{self.folder}/etc/") for word in words]
        env = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "UNITS": str(self.units)}
        return subprocess.run(here, env=env, capture_output=True, text=True, check=check)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def end(place: Place) -> Callable[[str], str]:
    """Return what is seen of an operation, where the last one before it was `last`."""
    bed = cast("Bed", SimpleNamespace(machine=place))
    bed.journal = lambda: Bed.journal(bed)  # type: ignore[method-assign]
    return lambda op: ended(bed, OPS[op], "last")


@pytest.mark.parametrize(
    ("op", "seen"), [("install", NOT_BEGUN), ("uninstall", COMMITTED), ("change", ""), ("upgrade", "")]
)
def test_a_missing_journal_is_an_end_of_what_leaves_none_alone(end: Callable[[str], str], op: str, seen: str) -> None:
    assert end(op) == seen


@pytest.mark.parametrize("op", ["install", "uninstall"])
@pytest.mark.parametrize("left", [BASELINE, UNIT])
def test_a_missing_journal_is_no_good_end_with_something_of_edgegpu_left(
    place: Place, end: Callable[[str], str], op: str, left: str
) -> None:
    place.put(left)
    assert end(op) == ""


@pytest.mark.parametrize("op", ["install", "uninstall"])
@pytest.mark.parametrize(
    ("unit", "state"), [(TIMER, "active"), (DEADMAN, "activating"), (RECOVER, "activating"), (RECOVER, "active")]
)
def test_a_missing_journal_is_no_good_end_while_somebody_comes_for_the_rest(
    place: Place, end: Callable[[str], str], op: str, unit: str, state: str
) -> None:
    place.put(f"units/{unit}", state)
    assert end(op) == ""


@pytest.mark.parametrize("op", ["install", "uninstall"])
def test_nor_is_it_while_a_job_is_queued(place: Place, end: Callable[[str], str], op: str) -> None:
    place.put("units/jobs", "17 edgegpu-recover.service start waiting\n")
    assert end(op) == ""


@pytest.mark.parametrize("op", list(OPS))
@pytest.mark.parametrize("state", [COMMITTED, ROLLED_BACK, NOT_BEGUN, "VERIFYING"])
def test_its_own_journal_tells_the_end_once_its_files_are_gone(
    place: Place, end: Callable[[str], str], op: str, state: str
) -> None:
    place.put(f"{JOURNAL}/state", f"id=this\nstate={state}\n")
    assert end(op) == ("" if state == "VERIFYING" else state)
    place.put(f"{JOURNAL}/files")
    assert end(op) == ""


@pytest.mark.parametrize("op", list(OPS))
def test_the_journal_of_the_one_before_says_that_this_one_has_not_begun(
    place: Place, end: Callable[[str], str], op: str
) -> None:
    place.put(f"{JOURNAL}/state", f"id=last\nstate={COMMITTED}\n")
    assert end(op) == NOT_BEGUN
    place.put(f"{JOURNAL}/state", "id=last\nstate=VERIFYING\n")
    assert end(op) == ""
    place.put(f"{JOURNAL}/state", f"id=last\nstate={COMMITTED}\n")
    place.put(f"units/{TIMER}", "active")
    assert end(op) == ""
