"""A lock file is for its owner alone, and the one that is locked is the one that lies there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from edgegpu_base.lock_files import is_in_place, open_lock, try_lock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("mode", [None, 0o644, 0o660, 0o400])
def test_nobody_but_its_owner_can_open_it(tmp_path: Path, mode: int | None) -> None:
    path = tmp_path / "lock"
    if mode is not None:
        path.touch()
        path.chmod(mode)
    before = os.umask(0)
    try:
        handle = open_lock(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o077 == 0
    os.close(handle)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("target")
    for name in ("pipe", "link", "."):
        with pytest.raises(OSError, match=r"regular|Too many|directory"):
            open_lock(tmp_path / name)
    assert not (tmp_path / "target").exists()


def test_a_lock_is_had_by_one_and_a_file_that_was_removed_is_known(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = open_lock(path), open_lock(path)
    assert (try_lock(first), try_lock(second)) == (True, False)
    assert is_in_place(first, path)
    path.unlink()
    assert not is_in_place(first, path)
    third = open_lock(path)
    assert try_lock(third)
    assert not is_in_place(first, path)
    for handle in (first, second, third):
        os.close(handle)
