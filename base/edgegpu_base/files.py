"""Files that are whole or not there, whatever happens while they are written."""

import os
import tempfile
from pathlib import Path

from edgegpu_base.errors import EdgegpuError


def write_atomic(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Write a file so that a reader, or the machine after a power cut, meets the old content or the new.

    The folder is made when it is missing.

    Raises:
        EdgegpuError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, content.encode() if isinstance(content, str) else content, mode)
        _sync_folder(path.parent)
    except OSError as error:
        raise EdgegpuError(f"cannot write {path}: {error.strerror or error}; check the folder and the disk") from error


def write_if_changed(path: Path, content: str | bytes, *, mode: int = 0o644) -> bool:
    """Write a file only when it does not say so already; say whether it was written.

    Raises:
        EdgegpuError: the file cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.read_bytes() == data:
            return False
    except OSError:
        pass  # missing or unreadable: writing it anew is the answer to both
    write_atomic(path, data, mode=mode)
    return True


def _replace(path: Path, data: bytes, mode: int) -> None:
    handle, temp = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        Path(temp).replace(path)
    except BaseException:
        Path(temp).unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """A rename is on the disk only when its folder is."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
