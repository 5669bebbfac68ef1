"""An image's own list of preloaded libraries, over which a container's list is mounted.

What lies below a mount cannot be opened through the process. The layers of an image are folders of this machine, which
the kernel names for each overlay, in the words of whoever mounted it. A container's process may have mounted one itself
(in a user namespace of its own) and live in it: its words may name any folder, and what is read counts for all
containers of the image. So the words are taken from this machine's own mounts, where the runtime's overlay has the same
number.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from edgegpu_plugin.containers.image.loaders import listed_libraries
from edgegpu_plugin.containers.image.root_files import ContainerRoot
from edgegpu_plugin.containers.limiter_files import PRELOAD_LIST

_MOST_BYTES, _MOST_LAYERS = 4096, 256
_NUMBER_AT, _PLACE_AT = 2, 4
"""In a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)): a file system's number, and where it is mounted."""
_LOWER = re.compile(r"(?:^|,)lowerdir\+?=((?:[^,\\]|\\.)*)")
_UPPER = re.compile(r"(?:^|,)upperdir=((?:[^,\\]|\\.)*)")
_OCTAL = re.compile(r"\\([0-7]{3})")


def own_list(root: ContainerRoot, process: Path) -> tuple[tuple[str, ...], bool]:
    """Return the libraries that an image's own list names, and whether its container's list lacks some of them.

    Args:
        root: the container's files.
        process: the folder of its first process, /proc/PID.
    """
    try:
        numbers = [number for number, place, _ in _overlays(process) if place == "/"]
        layers = [
            _layers(options) for number, _, options in _overlays(process.parent / "self") if number in numbers[-1:]
        ]
    except OSError:  # it has ended
        return (), False
    listed = next(filter(None, map(_in_layer, layers[0])), b"") if layers else b""
    names = listed_libraries(listed)
    if not names:
        return (), False
    try:
        has = listed_libraries(root.read(PRELOAD_LIST, most=_MOST_BYTES))
    except OSError:
        has = ()
    return names, not set(names) <= set(has)


def _overlays(process: Path) -> Iterator[tuple[str, str, str]]:
    """Yield number, place, and the file system's options of the overlays that a process has mounted. Raises OSError.

    The kernel escapes spaces and line feeds in names, and no other ends of lines (fs/proc_namespace.c).
    """
    with (process / "mountinfo").open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for line in file:
            fields, _, rest = line.rstrip("\n").partition(" - ")
            words, options = fields.split(" "), rest.split(" ")
            if len(words) > _PLACE_AT and options[0] == "overlay":
                yield words[_NUMBER_AT], words[_PLACE_AT], options[-1]


def _layers(options: str) -> list[Path]:
    """Return the layers in the options of an overlay, the uppermost first.

    Of an image with many layers containerd mounts them by their names in the folder of all layers, for a page has to
    hold the options (`compactLowerdirOption` in its mount_linux.go); the upper one stays whole.
    """
    upper = _UPPER.search(options)
    above = Path(_plain(upper[1])).parent.parent if upper else Path()
    folders = [one for found in _LOWER.findall(options) for one in re.split(r"(?<!\\):", found)]
    paths = (above / _plain(folder) for folder in folders if folder)
    return [path for path in paths if path.is_absolute()][:_MOST_LAYERS]


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), text)


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
