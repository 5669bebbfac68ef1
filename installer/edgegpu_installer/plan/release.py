"""A version of edgegpu that lies unpacked in a folder of its own: what of it goes elsewhere on the machine."""

from dataclasses import dataclass, replace
from pathlib import Path

from edgegpu_installer.changes import LEAVING, FileChange, Plan
from edgegpu_installer.cluster.rbac import ClusterRights, read_rights
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import AGENT_UNIT, LIB, PLUGIN_UNIT, RECOVER, RECOVER_UNIT, UNITS, WANTS

LIBRARY = f"{RECOVER}-lib.sh"
FOLDERS = (UNITS, WANTS, "/usr/local/lib", LIB)


@dataclass(frozen=True, slots=True)
class Recovery:
    """The program as a version of edgegpu brings it: `program` with its library beside it, and the `unit`."""

    program: Path
    unit: Path

    @classmethod
    def of_version(cls, folder: Path) -> "Recovery":
        """Return what lies in the folder of a version (or in the source): installer/ and systemd/."""
        return cls(folder / "installer/edgegpu-recover", folder / "systemd" / RECOVER_UNIT)

    def changes(self) -> tuple[FileChange, ...]:
        """Return its files as a plan has them, in their order: from the unit and its link on a boot undoes the rest.

        Raises:
            InstallError: this version lacks one.
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
        """Return the plan with these files first, in place of its own for the same paths; one that takes away does not.

        Raises:
            InstallError: this version lacks one of them.
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
    """One version; `folder` is where it lies (/opt/edgegpu/VERSION)."""

    version: str
    folder: Path
    plugin_unit: bytes
    agent_unit: bytes
    farewell: bytes
    farewell_unit: bytes
    rights: ClusterRights
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
