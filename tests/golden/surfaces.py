"""The surfaces that are held, by the name of their folder in `data`: each makes its files from the present code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golden import boxstate, cloudfiles, commandline, installed, outputs, wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SURFACES: dict[str, Callable[[Path], dict[str, str]]] = {
    "wire": wire.files,
    "installed": installed.files,
    "boxstate": boxstate.files,
    "cloud": cloudfiles.files,
    "commandline": commandline.files,
    "outputs": outputs.files,
}
