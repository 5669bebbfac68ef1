"""The file with the identity's status, which the command line reads."""

import json
import logging
from pathlib import Path

from edgegpu_agent.identity.status import IdentityStatus
from edgegpu_installer.errors import InstallError
from edgegpu_installer.machine import atomic

_LOG = logging.getLogger(__name__)


def write_status(path: Path, standing: IdentityStatus) -> None:
    """Write the identity's status if the file differs; log an error of the disk, and go on.

    A boot empties the folder. The file can differ because another agent, which was started beside this one and could
    not go on the link, has written it.
    """
    said = json.dumps(standing.document()).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _holds(path, said):
            atomic.write(path, said)
    except (OSError, InstallError) as error:
        _LOG.warning("cannot write %s: %s", path, error)


def _holds(path: Path, said: bytes) -> bool:
    try:
        return path.read_bytes() == said
    except OSError:
        return False
