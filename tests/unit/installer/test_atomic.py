"""What the installer writes is its own file: a link in its place, or beside it, is replaced and never followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgegpu_installer.machine import atomic

if TYPE_CHECKING:
    from pathlib import Path

NEW = atomic.PathEntry(b"ours\n", mode=0o600)


def planted(folder: Path, *names: str) -> Path:
    """Lay links to one file under names, and return that file."""
    victim = folder / "victim"
    victim.write_text("another's\n")
    victim.chmod(0o644)
    for name in names:
        (folder / name).symlink_to(victim)
    return victim


def untouched(victim: Path) -> bool:
    return (victim.read_text(), victim.stat().st_mode & 0o777) == ("another's\n", 0o644)


def test_a_link_in_the_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    victim = planted(tmp_path, "config", "config.new")
    atomic.write(tmp_path / "config", b"ours\n")
    assert ((tmp_path / "config").is_symlink(), (tmp_path / "config").read_bytes()) == (False, b"ours\n")
    assert untouched(victim)


def test_links_beside_a_file_that_is_changed_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "config"
    victim = planted(tmp_path, "config", *(atomic.beside(path, what).name for what in (atomic.NEW, atomic.OLD)))
    atomic.stage(path, NEW)
    atomic.swap(path, NEW)
    assert (path.is_symlink(), path.read_bytes(), untouched(victim)) == (False, b"ours\n", True)
    old = atomic.read_entry(atomic.beside(path, atomic.OLD))
    assert old.link_to == str(victim), "to be put back as it was"
