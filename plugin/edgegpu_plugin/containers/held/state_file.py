"""A container's state in its own folder, where its programs can read it and cannot write it."""

import logging
from collections.abc import Mapping
from pathlib import Path

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import write_if_changed
from edgegpu_plugin.containers.bypass import ContainerKey
from edgegpu_plugin.containers.held.container_state import ContainerIsolation

_LOG = logging.getLogger(__name__)


def tell_inside(folders: Mapping[ContainerKey, list[Path]], states: Mapping[ContainerKey, ContainerIsolation]) -> None:
    """Write each container's state into the folders that it has, as the file `state`; it makes none."""
    for key, found in states.items():
        text = f"{found.state}: {found.reason}\n" if found.reason else f"{found.state}\n"
        for folder in filter(Path.is_dir, folders[key]):
            try:
                write_if_changed(folder / "state", text)
            except EdgegpuError as error:
                _LOG.warning("%s", error)
