"""The folder that boxes are installed from, as `make bundle` makes it: install.sh, archives, what is in them, sums."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgegpu_cloud.errors import CloudError

INSTALLER, SUMS = "install.sh", "SHA256SUMS"
_BUNDLE_FILE = re.compile(r"edgegpu-[0-9][A-Za-z0-9.+_-]{0,64}-linux-[a-z0-9_]{1,16}\.(tar\.(xz|gz)(\.sig)?|cdx\.json)")
_SIGNED = (".tar.xz", ".tar.gz")
_SCRIPTS = frozenset({INSTALLER, "uninstall.sh", SUMS})
_KEYS = re.compile(rb"^RELEASE_KEYS='[A-Za-z0-9_-]", re.MULTILINE)
_PLACEHOLDER = "@EDGEGPU_URL@"
_URL = re.compile(r"https://[A-Za-z0-9._:/\[\]-]{1,200}")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class BundleFolder:
    """The folder of one bundle, and the URL by which boxes reach this server."""

    folder: Path
    url: str

    def file(self, name: str) -> Path | None:
        """Return the archive, signature, bill or script of this name; None for a file that is not part of a bundle."""
        if name not in _SCRIPTS and _BUNDLE_FILE.fullmatch(name) is None:
            return None
        path = self.folder / name
        return path if path.is_file() and not path.is_symlink() else None

    def installer(self) -> bytes | None:
        """Return install.sh with this server's address in it; None without a bundle.

        Raises:
            CloudError: it cannot be read, or the address must not be put into a script.
        """
        path = self.file(INSTALLER)
        if path is None:
            return None
        if _URL.fullmatch(self.url) is None:
            raise CloudError(f"cannot put {self.url} into install.sh", remedy="correct https.url in controller.yaml")
        return self._read(path).replace(_PLACEHOLDER.encode(), self.url.encode())

    def sums(self) -> bytes | None:
        """Return SHA256SUMS, with the sum of install.sh as this server sends it."""
        path, script = self.file(SUMS), self.installer()
        if path is None or script is None:
            return None
        mine = f"{hashlib.sha256(script).hexdigest()}  {INSTALLER}"
        lines = self._read(path).decode("utf-8", "replace").splitlines()
        return "".join(f"{mine if line.endswith(f' {INSTALLER}') else line}\n" for line in lines).encode()

    def missing(self) -> str:
        """Return the sentence that there is no bundle; empty where there is one."""
        if self.file(SUMS) is not None and self.file(INSTALLER) is not None:
            return ""
        return f"there is no bundle in {self.folder}: boxes cannot be installed from here (`make bundle` makes one)"

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the bundle: every file is read and compared with its checksum."""
        path = self.file(SUMS)
        if path is None:
            yield self.missing()
            return
        script = self.file(INSTALLER)
        is_signed = script is not None and _KEYS.search(self._read(script)) is not None
        for line in self._read(path).decode("utf-8", "replace").splitlines():
            wanted, _, name = line.partition(" ")
            name = name.strip().removeprefix("*")
            file = self.file(name)
            if file is None:
                yield f"{self.folder / name} is missing: make the bundle anew"
            elif self._sum(file) != wanted:
                yield f"{file} is not what SHA256SUMS says: make the bundle anew"
            elif is_signed and name.endswith(_SIGNED) and self.file(f"{name}.sig") is None:
                yield f"{file}.sig is missing: boxes refuse the bundle; sign it with the release key (tools/release.py)"

    @staticmethod
    def _read(path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise CloudError(f"cannot read {path}: {error}", remedy="mend the rights of the bundle's folder") from error

    @staticmethod
    def _sum(path: Path) -> str:
        found = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                found.update(chunk)
        return found.hexdigest()
