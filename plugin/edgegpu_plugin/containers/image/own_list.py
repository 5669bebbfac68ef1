"""An image's own list of preloaded libraries, over which a container's list is mounted.

What lies below a mount cannot be opened through the process. The layers of an image are folders of this machine, which
the kernel names for each overlay.
"""

import re
from pathlib import Path

from edgegpu_plugin.containers.image.loaders import listed_libraries
from edgegpu_plugin.containers.image.root_files import ContainerRoot
from edgegpu_plugin.containers.limiter_files import PRELOAD_LIST

_MOST_BYTES, _MOST_MOUNTS, _MOST_LAYERS = 4096, 1 << 20, 256
_LOWER = re.compile(r"(?:^|,)lowerdir\+?=((?:[^,\\]|\\.)*)")
_OCTAL = re.compile(r"\\([0-7]{3})")


def own_list(root: ContainerRoot, process: Path) -> tuple[tuple[str, ...], bool]:
    """Return the libraries that an image's own list names, and whether its container's list lacks some of them.

    Args:
        root: the container's files.
        process: the folder of its first process, /proc/PID.
    """
    try:
        with (process / "mountinfo").open("rb") as file:
            mounts = file.read(_MOST_MOUNTS).decode("utf-8", "surrogateescape")
    except OSError:  # it has ended
        return (), False
    listed = next(filter(None, map(_in_layer, _layers(mounts))), b"")
    names = listed_libraries(listed)
    if not names:
        return (), False
    try:
        has = listed_libraries(root.read(PRELOAD_LIST, most=_MOST_BYTES))
    except OSError:
        has = ()
    return names, not set(names) <= set(has)


def _layers(mounts: str) -> list[Path]:
    """Return the layers of the image that a process has as its root, the uppermost first; none where it is no overlay.

    (proc(5), /proc/PID/mountinfo: the fifth word is where a mount lies, the last one has the file system's options.)
    """
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        words, options = fields.split(" "), rest.split(" ")
        if len(words) > 4 and words[4] == "/" and options[0] == "overlay":  # noqa: PLR2004  (the fifth word)
            text = options[-1]
            folders = [one for found in _LOWER.findall(text) for one in re.split(r"(?<!\\):", found)]
            plain = (_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), folder) for folder in folders if folder)
            return [Path(one) for one in plain if one.startswith("/")][:_MOST_LAYERS]
    return []


def _in_layer(layer: Path) -> bytes:
    """Return the list in a layer; empty where the layer has none."""
    try:
        root = ContainerRoot(layer)
    except OSError:
        return b""
    try:
        return root.read(PRELOAD_LIST, most=_MOST_BYTES)
    except OSError:
        return b""
    finally:
        root.close()
