"""Reader of containerd's configuration files."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgegpu_base.errors import EdgegpuError

_MOST_IMPORTS = 64


class ContainerdConfigError(EdgegpuError):
    """A configuration of containerd cannot be read; the text names the file."""


def read_config(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a configuration and then its imports: in containerd the later one wins.

    Raises:
        ContainerdConfigError: one of the files cannot be read.
    """
    main = _read(path)
    yield main
    for pattern in map(str, main.get("imports", ())):
        base = Path(pattern) if Path(pattern).is_absolute() else path.parent / pattern
        name = re.sub(r"\*+", "*", base.name)  # Go's Glob, and so containerd, takes ** for *; pathlib refuses it here
        try:
            imported = sorted(base.parent.glob(name))[:_MOST_IMPORTS]
        except (OSError, ValueError) as error:
            raise ContainerdConfigError(f"cannot read the imports {pattern!r} of {path}: {error}") from error
        for found in imported:
            if found != path:
                yield _read(found)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ContainerdConfigError(f"cannot read containerd's configuration {path}: {error}") from error
