"""Debian's archive, asked by apt with a folder of its own: nothing of the machine's apt changes."""

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_COMPONENTS = "non-free contrib"
_CONFIGURATION = """\
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "5";
Dir::Cache "{folder}/cache";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "{folder}/none";
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "{folder}/none";
Dir::State "{folder}/state";
Dir::State::Lists "{folder}/lists";
Dir::State::Status "{folder}/status";
"""
_NO_PACKAGES, _NOT_THERE = "No packages found", "404  Not Found"
_TIMEOUT_S = 300


class ArchiveError(Exception):
    """The archive cannot be asked."""


class VanishedError(ArchiveError):
    """The archive no longer has a package, or has another file in its place."""


@dataclass(frozen=True, slots=True)
class Found:
    """A package of the archive: a version, and the hash of its file."""

    version: str
    sha256: str


class Archive:
    """One release of Debian with its updates and security updates, below a folder."""

    def __init__(self, folder: Path, release: str) -> None:
        """Lay the folder out and read the archive's lists.

        Raises:
            ArchiveError: there is no apt, no mirror of Debian's in its configuration, or it cannot be reached.
        """
        self.folder = folder
        for name in ("cache/archives/partial", "lists/partial", "none", "state"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text("".join(f"{line}\n" for line in _sources(release)), encoding="utf-8")
        (folder / "apt.conf").write_text(_CONFIGURATION.format(folder=folder), encoding="utf-8")
        self._run("apt-get", "update", "-qq")

    def versions(self, names: Iterable[str]) -> dict[str, list[Found]]:
        """Return all versions of each package that the archive has, the newest first."""
        found: dict[str, list[Found]] = {name: [] for name in names}
        try:
            records = self._run("apt-cache", "show", "--all-versions", *found).split("\n\n")
        except ArchiveError as error:
            if _NO_PACKAGES not in str(error):
                raise
            return found
        for record in records:
            fields = dict(re.findall(r"^(Package|Version|SHA256): (.+)$", record, re.MULTILINE))
            if fields.get("Package") in found:
                found[fields["Package"]].append(Found(fields["Version"], fields["SHA256"]))
        return found

    def download(self, name: str, version: str, folder: Path) -> Path:
        """Fetch one package into an empty folder; apt holds it to the archive's signed hashes.

        Raises:
            VanishedError: the archive's lists name the file, and it is not there.
            ArchiveError: the archive cannot be asked.
        """
        try:
            self._run("apt-get", "download", "-qq", f"{name}={version}", cwd=folder)
        except ArchiveError as error:
            if _NOT_THERE in str(error):
                raise VanishedError(f"the archive lists {name} {version} and has not its file") from error
            raise
        (path,) = folder.glob("*.deb")
        return path

    def _run(self, *command: str, cwd: Path | None = None) -> str:
        environment = {**os.environ, "APT_CONFIG": str(self.folder / "apt.conf"), "LC_ALL": "C.UTF-8"}
        return run(command, environment, cwd)


def run(command: Sequence[str], environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Return what a program prints.

    Raises:
        ArchiveError: it is missing, failed, or took longer than five minutes.
    """
    try:
        done = subprocess.run(
            command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArchiveError(f"cannot run {command[0]}: {error}") from error
    if done.returncode:
        raise ArchiveError(f"{' '.join(command)} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _sources(release: str) -> Iterable[str]:
    """Yield apt's lines for a release, on the mirror that this machine's apt is set to."""
    if not KEYRING.is_file():
        raise ArchiveError(f"there is no {KEYRING}: apt-get install debian-archive-keyring")
    mirror, security = _mirrors()
    options = f"[arch=amd64 signed-by={KEYRING}]"
    yield f"deb {options} {mirror} {release} {_COMPONENTS}"
    yield f"deb {options} {mirror} {release}-updates {_COMPONENTS}"
    if security:
        yield f"deb {options} {security} {release}-security {_COMPONENTS}"


def _mirrors() -> tuple[str, str]:
    """Return the addresses of Debian's archive and its security updates; EDGEGPU_DEBIAN_MIRROR stands in for both."""
    chosen = os.environ.get("EDGEGPU_DEBIAN_MIRROR", "")
    if chosen:
        return chosen, ""
    uris = run(("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")).split()
    by_folder = {uri.rstrip("/").rpartition("/")[2]: uri for uri in uris}
    if "debian" not in by_folder:
        raise ArchiveError("this machine's apt has no mirror of Debian's: set EDGEGPU_DEBIAN_MIRROR to one")
    return by_folder["debian"], by_folder.get("debian-security", "")
