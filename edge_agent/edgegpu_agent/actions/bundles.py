"""The releases on this box: each must be signed and not older, and is put in place completely or not at all."""

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from edgegpu_agent.actions.programs import ActionTimer, run
from edgegpu_installer.errors import BusyError, InstallError
from edgegpu_installer.layout import Layout
from edgegpu_installer.transaction.lock import UNPACK, locked
from edgegpu_sync.errors import SyncError
from edgegpu_sync.states import ResultCode
from edgegpu_sync.wire import from_base64, to_base64

DOMAIN = "edgegpu release 1"

_CHUNK = 1 << 20
_UNPACK_S, _START_S = 600.0, 60.0
_GROWS = 8
"""How many times larger than the archive its contents are at most; install.sh assumes the same."""
_MAGIC = {b"\xfd7zXZ": "xz", b"\x1f\x8b": "gzip"}
_SUM = "BUNDLE_SHA256"

_PARTS = re.compile(r"[0-9]+|[a-z]+")
_BEFORE = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1, "pre": -1}


class ReleaseError(ValueError):
    """A release that is refused; `code` is the result code of the command."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def signed_text(version: str, sha256: str) -> bytes:
    """Return what the release key signs: a line with the domain, the version, and the checksum of the bundle."""
    return f"{DOMAIN}\n{version}\n{sha256}\n".encode()


def sign(key: Ed25519PrivateKey, version: str, sha256: str) -> str:
    """Return the signature in the form that a command carries: 86 characters of base64url."""
    return to_base64(key.sign(signed_text(version, sha256)))


def check_signature(keys: str, *, version: str, sha256: str, signature: str) -> None:
    """Check that a release key has signed this bundle as this version.

    Args:
        keys: the public keys, 43 characters of base64url a line, as release.pub contains them: while keys change, two.
        version: the version of the release.
        sha256: the checksum of the bundle, 64 hexadecimal digits.
        signature: 86 characters of base64url.

    Raises:
        ReleaseError: NO_RELEASE_KEY where there is none, or a line is none; BAD_SIGNATURE.
    """
    try:
        publics = [Ed25519PublicKey.from_public_bytes(from_base64(line)) for line in keys.split()]
    except (SyncError, ValueError) as error:
        raise ReleaseError(ResultCode.NO_RELEASE_KEY, f"this version's release.pub holds no key: {error}") from error
    if not publics:
        raise ReleaseError(ResultCode.NO_RELEASE_KEY, "this version's release.pub holds no key")
    if not any(_has_signed(public, version=version, sha256=sha256, signature=signature) for public in publics):
        text = f"the release key has not signed this bundle as version {version}"
        raise ReleaseError(ResultCode.BAD_SIGNATURE, text)


def _has_signed(public: Ed25519PublicKey, *, version: str, sha256: str, signature: str) -> bool:
    try:
        public.verify(from_base64(signature), signed_text(version, sha256))
    except (InvalidSignature, SyncError, ValueError):
        return False
    return True


def check_not_older(now: str, wanted: str) -> None:
    """Check that the wanted version is not older than the one that runs.

    Raises:
        ReleaseError: DOWNGRADE, where it is older.
    """
    if _order(wanted) < _order(now):
        raise ReleaseError(ResultCode.DOWNGRADE, f"{wanted} is older than {now}, which runs here")


def _order(version: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[tuple[int, str], ...]]:
    """Return a version's sort key: 1.2rc1 < 1.2 = 1.2.0 < 1.2+1 < 1.2+2 < 1.2.post1 < 1.10.

    A version with a local part (after a +) sorts after the one without it, letters before numbers, as in PEP 440.
    """
    plain, _, local = version.lower().partition("+")
    first = re.match(r"[0-9]+(\.[0-9]+)*", plain)
    numbers = [int(part) for part in first[0].split(".")] if first else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    words = _PARTS.findall(plain[first.end() :] if first else plain)
    rest = [(0, int(word)) if word.isdigit() else (_BEFORE.get(word, 1), 0) for word in words]
    behind = [(int(part), "") if part.isdigit() else (-1, part) for part in _PARTS.findall(local)]
    return tuple(numbers), (*rest, (0, 0)), tuple(behind)


class BundleError(Exception):
    """A bundle that cannot be used; the text is "cannot x: cause", and nothing of the bundle is left on the disk."""


def sha256_of(path: Path) -> str:
    """Return the checksum of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundles:
    """The versions below /opt/edgegpu; install.sh takes the same steps under the same lock."""

    layout: Layout
    timer: ActionTimer
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def is_here(self, version: str, sha256: str) -> bool:
        """Return whether the bundle with this checksum is unpacked, and starts."""
        folder = self.layout.version(version)
        with contextlib.suppress(OSError):
            return (folder / _SUM).read_text().strip() == sha256 and not self._does_not_start(folder)
        return False

    def unpack(self, archive: Path, *, version: str, sha256: str) -> None:
        """Unpack a bundle whose checksum and signature were checked.

        Raises:
            BundleError: the bundle is of another version, does not start here, or would replace a build that is in use.
            ActionStopped: the agent ends.
        """
        with self._locked(), self._work_folder(version) as work:
            self._check_room(archive)
            folder = self._unpacked(archive, work, version)
            (folder / _SUM).write_text(f"{sha256}\n")
            if why := self._does_not_start(folder):
                raise BundleError(f"cannot use version {version}: it does not start here: {why}")
            self._put_in_place(folder, work, version)

    def remove(self, version: str) -> None:
        """Remove a version unless it is in use."""
        with contextlib.suppress(BundleError), self._locked(), self._work_folder(version) as work:
            folder = self.layout.version(version)
            if folder.exists() and not self._in_use(version):
                folder.rename(work / "other")

    def _check_room(self, archive: Path) -> None:
        need = archive.stat().st_size * _GROWS
        free = shutil.disk_usage(self.layout.opt).free
        if free < need:
            raise BundleError(f"cannot unpack: {need >> 20} MiB are needed below /opt, {free >> 20} MiB are free")

    def _unpacked(self, archive: Path, work: Path, version: str) -> Path:
        out = work / "out"
        out.mkdir()
        with archive.open("rb") as file:
            head = file.read(6)
        tool = next((tool for magic, tool in _MAGIC.items() if head.startswith(magic)), None)
        if tool is None:
            raise BundleError("cannot unpack the bundle: it is neither xz nor gzip")
        # If the decompressor fails, tar gets half an archive and reports that; the checksum was right before.
        script = '"$1" -dc < "$2" | tar -xf - -C "$3"'
        command = ("sh", "-c", script, "sh", tool, str(archive), str(out))
        said = run(command, self.timer, within_s=_UNPACK_S, env=self.env)
        if said.status != 0:
            raise BundleError(f"cannot unpack the bundle: {said.last_line}")
        folders = list(out.iterdir())
        found = (folders[0] / "VERSION").read_text().strip() if len(folders) == 1 else ""
        if found != version:
            raise BundleError(f"cannot use the bundle: it is of version {found or 'none'}, and {version} was asked for")
        return folders[0]

    def _does_not_start(self, folder: Path) -> str:
        said = run((str(folder / "bin/edgegpu"), "version"), self.timer, within_s=_START_S, env=self.env)
        return "" if said.status == 0 else said.last_line

    def _put_in_place(self, new: Path, work: Path, version: str) -> None:
        place = self.layout.version(version)
        if place.exists():
            if self._in_use(version):
                raise BundleError(f"cannot use the bundle: another build of {version} is in use")
            place.rename(work / "other")
        os.sync()
        new.rename(place)
        os.sync()

    def _in_use(self, version: str) -> bool:
        current = self.layout.current
        return current.is_symlink() and current.readlink().name == version

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(self.layout.at(UNPACK)))
            except BusyError as error:
                raise BundleError("cannot unpack: an install.sh is at work on this box") from error
            except InstallError as error:
                raise BundleError(str(error)) from error
            yield

    @contextlib.contextmanager
    def _work_folder(self, version: str) -> Iterator[Path]:
        """Make a folder for everything unfinished; remove first what an earlier process has left there."""
        work = self.layout.opt / f".{version}.new"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
