"""The setting that names our scheduler's file to k3s: in our drop-in, or as lines in the user's configuration file."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from edgegpu_installer.changes import FileChange, check_path
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import K3S_DROP_IN, SCHEDULER_YAML, Layout
from edgegpu_installer.machine.atomic import FileLocation, read_entry, read_location
from edgegpu_installer.machine.config_block import holds_block, with_block, without_block
from edgegpu_installer.plan.site import Site
from edgegpu_installer.scheduler.refs import ReadFile

_OURS = {K3S_DROP_IN, SCHEDULER_YAML}


def named_in(site: Site) -> str:
    """Return the path of the file that shall name our scheduler's file to k3s."""
    return site.drop_in if site.takes_drop_in else site.config.path


def naming(site: Site, *, read_file: ReadFile) -> list[FileChange]:
    """Return the changes after which exactly one file names our scheduler's file to k3s.

    Raises:
        InstallError: the user's configuration file cannot be added to, or our lines cannot be taken out of it.
    """
    text = _text(site.config, read_file)
    if not site.takes_drop_in:
        # the drop-in is removed first: a k3s that does not know `+` exits on it
        return [
            FileChange(site.drop_in, k3s_reads=True),
            _changed(site.config, with_block(text, site.scheduler_path, path=site.config.path)),
        ]
    drop_in = FileChange(site.drop_in, site.drop_in_text.encode(), k3s_reads=True)
    if not holds_block(text):
        return [drop_in]
    kept = without_block(text, path=site.config.path)
    return [drop_in, _changed(site.config, kept)]


def is_shared(change: FileChange) -> bool:
    """Return whether a changed file that k3s reads is the user's, with lines of ours in it."""
    return change.k3s_reads and PurePosixPath(change.path).name not in _OURS


def restore(changes: Iterable[FileChange], layout: Layout) -> tuple[FileChange, ...]:
    """Return an uninstall's changes, with changes by others kept in the user's configuration file.

    When nobody has changed the file, the result is its bytes from before. A file that did not exist before is removed,
    unless it now has other content.

    Raises:
        InstallError: our lines cannot be taken out of the file, or it cannot be read.
    """
    return tuple(_restored(changes, layout))


def _restored(changes: Iterable[FileChange], layout: Layout) -> Iterator[FileChange]:
    for change in changes:
        if not is_shared(change):
            yield change
            continue
        place = read_location(layout, change.path)
        entry = read_entry(layout.at(place.path))
        if entry.content is None:
            continue  # somebody removed the file, and our lines with it
        kept = without_block(_decoded(entry.content, place.path), path=place.path)
        if (change.absent and not kept.strip()) or kept.encode() == change.content:
            yield replace(change, path=place.path)
        else:
            yield _changed(place, kept)


def _changed(place: FileLocation, text: str) -> FileChange:
    try:
        check_path(place.path)
    except ValueError as error:
        raise InstallError(f"cannot change k3s's configuration: {error}", "keep it under a plain path") from error
    return FileChange(place.path, text.encode(), mode=place.mode, owner=place.owner, k3s_reads=True)


def _text(place: FileLocation, read_file: ReadFile) -> str:
    return _decoded(read_file(place.path) or b"", place.path)


def _decoded(content: bytes, path: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InstallError(f"cannot read {path}: it is not text", "put it right, then install again") from error
