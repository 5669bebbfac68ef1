"""edgegpu-recover for the installer: the files that it is made of, and its two verbs that want the lock held."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from edgegpu_installer.changes import FileChange, Plan
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import LIB, RECOVER, RECOVER_UNIT, UNITS, WANTS, Layout
from edgegpu_installer.machine.systemd import Systemd
from edgegpu_installer.transaction.states import LEAVING

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


def call(
    recovery: Recovery, layout: Layout, system: Systemd, *words: str, lock: int, say: Callable[[str], None]
) -> bool:
    """Let the program do its verb with the lock that this process holds; say its lines, return whether it managed.

    It goes on to its end when this process is killed. What came of it stands in the journal.
    """
    environment = dict(system.environment)
    if layout.root != Path("/"):
        environment["EDGEGPU_RECOVER_ROOT"] = str(layout.root)
    verb, *rest = words
    try:
        child = subprocess.Popen(
            ["sh", recovery.program, verb, str(lock), *rest],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            pass_fds=(lock,),
            start_new_session=True,
        )
    except OSError as error:
        say(f"cannot run {recovery.program}: {os.strerror(error.errno or 0)}")
        return False
    with child:
        for line in child.stderr or ():
            say(line.rstrip())
    return child.returncode == 0
