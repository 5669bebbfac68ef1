"""A version of edgegpu that lies unpacked in a folder of its own: what of it goes elsewhere on the machine."""

from dataclasses import dataclass
from pathlib import Path

from edgegpu_installer.cluster.rbac import Rights, read_rights
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import AGENT_UNIT, PLUGIN_UNIT
from edgegpu_installer.transaction.recovery import Recovery


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One version; `folder` is where it lies (/opt/edgegpu/VERSION)."""

    version: str
    folder: Path
    plugin_unit: bytes
    agent_unit: bytes
    farewell: bytes
    farewell_unit: bytes
    rights: Rights
    recovery: Recovery


def read_release(folder: Path) -> Release:
    """Read a version's folder.

    Raises:
        InstallError: it is not whole.
    """
    try:
        return Release(
            version=(folder / "VERSION").read_text().strip(),
            folder=folder,
            plugin_unit=(folder / "systemd" / PLUGIN_UNIT).read_bytes(),
            agent_unit=(folder / "systemd" / AGENT_UNIT).read_bytes(),
            farewell=(folder / "installer/edgegpu-farewell").read_bytes(),
            farewell_unit=(folder / "systemd/edgegpu-farewell.service").read_bytes(),
            rights=read_rights(folder / "examples/rbac.yaml"),
            recovery=Recovery.of_version(folder),
        )
    except OSError as error:
        raise InstallError(
            f"cannot read this version of edgegpu: {error.filename}: {error.strerror}",
            "run the install line again: it unpacks the version anew",
        ) from error
