"""Files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import create, open_folder, replace_in, write_atomic, write_if_changed


def rights(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_written_file_has_its_content_and_mode_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_atomic(path, "first", mode=0o600)
    assert (path.read_text(), rights(path)) == ("first", 0o600)
    write_atomic(path, b"second")
    assert (path.read_text(), rights(path)) == ("second", 0o644)
    assert [one.name for one in path.parent.iterdir()] == ["file"]


def test_a_file_that_says_so_already_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert write_if_changed(path, "same")
    before = path.stat().st_ino
    assert not write_if_changed(path, b"same")
    assert path.stat().st_ino == before
    assert write_if_changed(path, "other")


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "file").symlink_to(other)
    write_atomic(tmp_path / "file", "new")
    assert (other.read_text(), (tmp_path / "file").is_symlink()) == ("mine", False)


def test_what_cannot_be_written_leaves_the_old_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(EdgegpuError, match=r"cannot write .*/file: Is a directory; check the folder and the disk"):
        write_atomic(tmp_path / "file", "new")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_known_name_beside_it_that_a_kill_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file.new").write_text("half")
    (tmp_path / "file.new").chmod(0o644)
    with open_folder(tmp_path) as folder:
        replace_in(folder, "file", b"whole", mode=0o600, owner=(os.geteuid(), os.getegid()), temp="file.new")
    assert ((tmp_path / "file").read_text(), rights(tmp_path / "file")) == ("whole", 0o600)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_what_is_made_anew_follows_no_link_and_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        create(tmp_path / "link", b"", mode=0o600)
    create(tmp_path / "file", b"new", mode=0o640)
    assert ((tmp_path / "file").read_bytes(), rights(tmp_path / "file")) == (b"new", 0o640)
    with pytest.raises(FileExistsError):
        create(tmp_path / "file", b"other", mode=0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_owner_gets_the_file_with_its_mode(tmp_path: Path) -> None:
    create(tmp_path / "file", b"theirs", mode=0o600, owner=(1234, 4321))
    stat = (tmp_path / "file").stat()
    assert (stat.st_uid, stat.st_gid, rights(tmp_path / "file")) == (1234, 4321, 0o600)
