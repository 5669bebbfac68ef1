"""Writes how the identity stands where the command line reads it."""

import json
import logging
from pathlib import Path

from edgegpu_agent.identity.standing import Standing
from edgegpu_installer import atomic
from edgegpu_installer.errors import InstallError

_LOG = logging.getLogger(__name__)


def tell(path: Path, standing: Standing) -> None:
    """Write it, in a folder that a boot empties; a disk that takes nothing is said, and no more."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, json.dumps(standing.document()).encode())
    except (OSError, InstallError) as error:
        _LOG.warning("cannot write %s: %s", path, error)
