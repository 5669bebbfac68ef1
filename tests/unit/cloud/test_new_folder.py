"""A controller's folder is made by one process at a time, and all of it or nothing, wherever that one is cut short."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kits.lockers import locked_by_another_user, open_folder

from edgegpu_cloud.enrolment.new_folder import take_over, unfinished
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudLayout

if TYPE_CHECKING:
    from pathlib import Path

PARTS = ("broker", "ca", "controller.db", "keys", "tls", "controller.yaml")


def fill(new: CloudLayout, text: str = "first") -> None:
    for name in PARTS:
        (new.folder / name).write_text(text)
    new.release.mkdir()


def names(layout: CloudLayout) -> set[str]:
    return {path.name for path in layout.folder.iterdir()}


@pytest.fixture
def layout(tmp_path: Path) -> CloudLayout:
    return CloudLayout(tmp_path / "a" / "cloud")


def make(layout: CloudLayout, text: str = "first") -> None:
    with unfinished(layout) as new:
        fill(new, text)
        take_over(new, layout)


def test_all_parts_have_their_place_and_nothing_else_is_left(layout: CloudLayout) -> None:
    make(layout)
    assert names(layout) == {*PARTS, "release"}
    assert layout.folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(CloudError, match=r"it has controller\.yaml"):
        make(layout, "second")
    assert {(layout.folder / name).read_text() for name in PARTS} == {"first"}


def test_a_second_process_is_refused_and_the_first_goes_on(layout: CloudLayout) -> None:
    with unfinished(layout) as new:
        fill(new)
        with pytest.raises(CloudError, match="another `init` or `restore` runs there"), unfinished(layout):
            pytest.fail("two make one folder")
        take_over(new, layout)
    assert names(layout) == {*PARTS, "release"}


def test_a_user_without_root_keeps_no_controller_from_being_made() -> None:
    """The folder was made by hand, and every user can open it."""
    with open_folder() as folder:
        layout = CloudLayout(folder / "cloud")
        layout.folder.mkdir(mode=0o755)
        with locked_by_another_user(folder) as paths:
            assert "cloud" in paths
            make(layout)
        assert names(layout) == {*PARTS, "release"}


def test_an_error_leaves_nothing(layout: CloudLayout, tmp_path: Path) -> None:
    def fail() -> None:
        with unfinished(layout) as new:
            fill(new)
            raise CloudError("no room")

    with pytest.raises(CloudError, match="no room"):
        fail()
    assert list(tmp_path.iterdir()) == []
    layout.folder.mkdir(parents=True)
    (layout.folder / "mine").touch()
    with pytest.raises(CloudError, match="no room"):
        fail()
    assert names(layout) == {"mine"}


@pytest.mark.parametrize("placed", range(len(PARTS)))
def test_a_process_that_was_killed_while_it_gave_files_their_place_begins_again(
    layout: CloudLayout, placed: int
) -> None:
    moving = CloudLayout(layout.folder / ".moving")
    moving.folder.mkdir(parents=True)
    fill(moving)
    for name in PARTS[:placed]:
        (moving.folder / name).rename(layout.folder / name)
    make(layout, "second")
    assert names(layout) == {*PARTS, "release"}
    assert {(layout.folder / name).read_text() for name in PARTS} == {"second"}


def test_a_process_that_was_killed_after_the_last_file_has_made_a_controller(layout: CloudLayout) -> None:
    make(layout)
    (layout.folder / ".moving").mkdir()
    with pytest.raises(CloudError, match="already"):
        make(layout, "second")
    assert {(layout.folder / name).read_text() for name in PARTS} == {"first"}
    assert names(layout) == {*PARTS, "release"}


def test_files_of_somebody_else_are_no_leftover(layout: CloudLayout) -> None:
    layout.folder.mkdir(parents=True)
    layout.keys.write_text("mine")
    with pytest.raises(CloudError, match="it has keys already"):
        make(layout)
    assert layout.keys.read_text() == "mine"
