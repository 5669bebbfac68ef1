"""An unpacked version of edgegpu: the files of it that are installed elsewhere on the machine."""

from dataclasses import dataclass, replace
from pathlib import Path

from edgegpu_installer.changes import LEAVING, FileChange, Plan
from edgegpu_installer.cluster.rbac import ClusterRights, read_rights
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import (
    AGENT_UNIT,
    LIB,
    MPS_UNIT,
    PLUGIN_UNIT,
    RECOVER,
    RECOVER_UNIT,
    SELFTEST_UNIT,
    UNITS,
    WANTS,
)

LIBRARY = f"{RECOVER}-lib.sh"
_SOURCES = "pyproject.toml"
"""The file that a source checkout has and an unpacked version has not."""

FOLDERS = (UNITS, WANTS, "/usr/local/lib", LIB)


@dataclass(frozen=True, slots=True)
class Recovery:
    """edgegpu-recover of a version: `program`, with its library in the same folder, and its systemd `unit`."""

    program: Path
    unit: Path

    @classmethod
    def of_version(cls, folder: Path) -> "Recovery":
        """Return the recovery of a version's folder, or of the source tree: from installer/ and systemd/."""
        return cls(folder / "installer/edgegpu-recover", folder / "systemd" / RECOVER_UNIT)

    def changes(self) -> tuple[FileChange, ...]:
        """Return recovery's files in a plan's order; once the unit and its link are in place, a boot undoes the rest.

        Raises:
            InstallError: the version lacks one of the files.
        """
        unit = f"{UNITS}/{RECOVER_UNIT}"
        library = self.program.with_name(f"{self.program.name}-lib.sh")
        try:
            return (
                FileChange(unit, content=self.unit.read_bytes(), early=True),
                FileChange(f"{WANTS}/{RECOVER_UNIT}", link_to=unit, early=True),
                FileChange(LIBRARY, content=library.read_bytes(), early=True),
                FileChange(RECOVER, content=self.program.read_bytes(), mode=0o755, early=True),
            )
        except OSError as error:
            raise InstallError(f"cannot read {error.filename}: {error.strerror}", "unpack edgegpu anew") from error

    def into(self, plan: Plan) -> Plan:
        """Return a plan with recovery's files first, in place of its own at those paths; LEAVING plans are not changed.

        Raises:
            InstallError: the version lacks one of the files.
        """
        if plan.op in LEAVING:
            return plan
        changes = self.changes()
        paths = {change.path for change in changes}
        rest = tuple(change for change in plan.files if change.path not in paths)
        folders = (*FOLDERS, *(folder for folder in plan.folders if folder not in FOLDERS))
        return replace(plan, files=(*changes, *rest), folders=folders)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One version of edgegpu, in `folder` (/opt/edgegpu/VERSION)."""

    version: str
    folder: Path
    plugin_unit: bytes
    selftest_unit: bytes
    agent_unit: bytes
    mps_unit: bytes
    farewell: bytes
    farewell_unit: bytes
    rights: ClusterRights
    recovery: Recovery


def read_release(folder: Path) -> Release:
    """Read the release from a version's folder.

    Raises:
        InstallError: the folder is not complete, or is a source checkout.
    """
    if (folder / _SOURCES).is_file():
        raise InstallError(
            f"cannot install from {folder}: this is a source checkout", "make a bundle there: make bundle"
        )
    try:
        return Release(
            version=(folder / "VERSION").read_text().strip(),
            folder=folder,
            plugin_unit=(folder / "systemd" / PLUGIN_UNIT).read_bytes(),
            selftest_unit=(folder / "systemd" / SELFTEST_UNIT).read_bytes(),
            agent_unit=(folder / "systemd" / AGENT_UNIT).read_bytes(),
            mps_unit=(folder / "systemd" / MPS_UNIT).read_bytes(),
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
