"""install.sh takes a bundle that a release key has signed, checked by the openssl of a bare Debian."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kits.acts import Vendor
from kits.install import BASENAME, ROOT, VERSION, Host, Sandbox, make_bundle, make_environment, serve, unpinned

from edgegpu_agent.actions.bundles import sign
from edgegpu_sync.wire import from_base64

if TYPE_CHECKING:
    from collections.abc import Iterator

XZ = f"{BASENAME}.tar.xz"


@pytest.fixture(scope="session")
def vendor() -> Vendor:
    return Vendor()


@pytest.fixture(scope="session")
def next_vendor() -> Vendor:
    return Vendor()


@pytest.fixture(scope="session")
def signed(tmp_path_factory: pytest.TempPathFactory, vendor: Vendor, next_vendor: Vendor) -> Path:
    """Return what a host serves while release keys change: each of two counts, the first has signed."""
    made = tmp_path_factory.mktemp("signed")
    environment = make_environment(made / "env")
    (environment / "release.pub").write_text(f"{vendor.public}\n{next_vendor.public}\n")
    done = make_bundle(made / "bundle", environment)
    assert done.returncode == 0, done.stderr
    assert "sign both archives now" in done.stderr
    for archive in (made / "bundle").glob("*.tar.*"):
        write_signature(archive, vendor)
    return made / "bundle"


def write_signature(archive: Path, vendor: Vendor, version: str = VERSION) -> None:
    text = sign(vendor.key, version, hashlib.sha256(archive.read_bytes()).hexdigest())
    archive.with_name(f"{archive.name}.sig").write_bytes(from_base64(text))


@pytest.fixture
def host(signed: Path, tmp_path: Path) -> Iterator[Host]:
    copy = shutil.copytree(signed, tmp_path / "host")
    with serve(copy, tmp_path / "keys") as running:
        yield running


@pytest.fixture
def script(signed: Path) -> str:
    return (signed / "install.sh").read_text()


def test_a_bundle_that_a_release_key_has_signed_is_taken(script: str, host: Host, box: Sandbox) -> None:
    done = box.run(script, *host.trusted, "--yes")
    assert (done.returncode, box.words()) == (0, ["install", "--yes"])
    assert "edgegpu: a release key has signed it" in done.stderr
    assert [path for path, _ in host.faults.asked] == ["/ca.crt", f"/{XZ}", f"/{XZ}.sig"]


def test_so_is_one_of_the_key_that_comes_next(
    script: str, host: Host, files: Path, box: Sandbox, next_vendor: Vendor
) -> None:
    write_signature(files / XZ, next_vendor)
    assert box.run(script, *host.trusted, "--yes").returncode == 0


@pytest.mark.parametrize("fault", ["another key", "another version", "no signature", "half a signature", "missing"])
def test_what_no_release_key_has_signed_is_not_unpacked(
    script: str, host: Host, files: Path, box: Sandbox, vendor: Vendor, fault: str
) -> None:
    """The script is right, and the host of the archives is another's."""
    signature = files / f"{XZ}.sig"
    match fault:
        case "another key":
            write_signature(files / XZ, Vendor())
        case "another version":
            write_signature(files / XZ, vendor, "1.2.4")
        case "no signature":
            signature.write_text("none")
        case "half a signature":
            signature.write_bytes(signature.read_bytes()[:32])
        case _:
            signature.unlink()
    before = box.tree()
    done = box.run(script, *host.trusted, "--yes")
    assert done.returncode == 1
    words = "the host has no such file (404)" if fault == "missing" else f"no release key has signed it as {VERSION}"
    assert words in done.stderr
    assert (box.calls("tar"), box.tree()) == ([], before)


def test_an_archive_that_was_changed_with_its_sum_in_the_script_is_refused(
    script: str, host: Host, files: Path, box: Sandbox
) -> None:
    """Whoever could write the sums, and has no key, gains nothing as long as the keys of the script are right."""
    old = hashlib.sha256((files / XZ).read_bytes()).hexdigest()
    (files / XZ).write_bytes((files / XZ).read_bytes() + b"\0")
    changed = script.replace(old, hashlib.sha256((files / XZ).read_bytes()).hexdigest())
    assert changed != script
    done = box.run(changed, *host.trusted, "--yes")
    assert (done.returncode, "no release key has signed it" in done.stderr) == (1, True)


@pytest.mark.parametrize("openssl", ["", "echo OpenSSL 1.1.1w  11 Sep 2023"])
def test_where_openssl_cannot_check_it_the_script_says_so_and_its_sha256_counts(
    script: str, host: Host, box: Sandbox, openssl: str
) -> None:
    if openssl:
        box.program("openssl", openssl)
    else:
        box.without("openssl")
    done = box.run(script, *host.trusted, "--yes")
    assert done.returncode == 0
    assert "cannot check its signature here, which needs OpenSSL 3 (Debian 12): its sha256 alone counts" in done.stderr
    assert [path for path, _ in host.faults.asked] == ["/ca.crt", f"/{XZ}"]


def test_a_bundle_that_is_brought_comes_with_its_signature(script: str, signed: Path, box: Sandbox) -> None:
    bundle = Path(shutil.copy(signed / XZ, box.base))
    done = box.run(script, "--offline", bundle.name, "--yes")
    assert (done.returncode, f"there is no {bundle.name}.sig" in done.stderr) == (1, True)
    shutil.copy(signed / f"{XZ}.sig", box.base)
    assert box.run(script, "--offline", bundle.name, "--yes").returncode == 0


def test_a_script_without_keys_takes_those_of_the_last_install(script: str, signed: Path, box: Sandbox) -> None:
    for name in (XZ, f"{XZ}.sig", "SHA256SUMS"):
        shutil.copy(signed / name, box.base)
    current = box.root / "opt/edgegpu/current"
    current.mkdir(parents=True)
    (current / "release.pub").write_text(f"{Vendor().public}\n")
    done = box.run(unpinned(script), "--offline", XZ, "--yes")
    assert (done.returncode, "no release key has signed it" in done.stderr) == (1, True)


def test_the_tool_signs_what_the_script_takes(signed: Path, script: str, box: Sandbox, tmp_path: Path) -> None:
    tool, key = (sys.executable, str(ROOT / "tools/release.py")), str(tmp_path / "release.key")
    subprocess.run([*tool, "key", key], check=True, capture_output=True)
    public = (tmp_path / "release.key.pub").read_text().strip()
    bundle = Path(shutil.copy(signed / XZ, box.base))
    subprocess.run([*tool, "sign", str(bundle), VERSION, "--key", key], check=True, capture_output=True)
    mine = "\n".join(
        f"RELEASE_KEYS='{public}'" if line.startswith("RELEASE_KEYS='") else line for line in script.splitlines()
    )
    assert box.run(f"{mine}\n", "--offline", bundle.name, "--yes").returncode == 0
