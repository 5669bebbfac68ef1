"""The bundle as curl and install.sh meet it: the address put in, checksums that hold, the pasted line run by sh."""

from __future__ import annotations

import hashlib
import subprocess
from typing import TYPE_CHECKING

import pytest
from kits.https import ARCHIVE, SCRIPT, Served, make_bundle, serving

from edgegpu_cloud.enrolment.bootstrap import read_key
from edgegpu_cloud.enrolment.key_files import file_sha256, pin
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.http.release import BundleFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("common")) as one:
        yield one


@pytest.fixture
def served(common: Served) -> Served:
    """The server of this file."""
    return common


def test_install_sh_has_the_address_in_it_and_its_checksum_is_right(served: Served) -> None:
    script = served.get("/install.sh").data
    assert script == SCRIPT.replace("@EDGEGPU_URL@", "https://cloud.example:8443").encode()
    lines = [line.split() for line in served.get("/SHA256SUMS").data.decode().splitlines()]
    sums = {name: found for found, name in lines}
    assert sums["install.sh"] == hashlib.sha256(script).hexdigest()
    assert sums[ARCHIVE] == hashlib.sha256(served.get(f"/{ARCHIVE}").data).hexdigest()
    assert list(BundleFolder(served.bundle, served.url).problems()) == []


def test_a_broken_download_goes_on(served: Served) -> None:
    answer = served.get(f"/{ARCHIVE}", Range="bytes=9990-")
    assert (answer.status, answer.data) == (206, b"0123456789")


def test_a_bundles_signature_is_served(served: Served) -> None:
    (served.bundle / f"{ARCHIVE}.sig").write_bytes(b"s" * 64)
    assert served.get(f"/{ARCHIVE}.sig").data == b"s" * 64


@pytest.mark.parametrize(
    "path",
    ["/secret.key", "/..%2fcloud%2fcontroller.yaml", "/%2e%2e/x", "/edgegpu-..%2f-linux-amd64.tar.xz", "/", "/docs"],
)
def test_nothing_else_is_served(served: Served, path: str) -> None:
    assert served.get(path).status == 404


def test_a_link_is_not_followed(served: Served) -> None:
    (served.bundle / "edgegpu-9.9-linux-amd64.tar.gz").symlink_to(served.bundle / "secret.key")
    assert served.get("/edgegpu-9.9-linux-amd64.tar.gz").status == 404


def test_a_bundle_that_was_not_signed_though_its_script_wants_it_is_told(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    with (bundle / "install.sh").open("a") as script:
        script.write(f"RELEASE_KEYS='{'A' * 43}'\n")
    assert f"{ARCHIVE}.sig is missing" in " ".join(BundleFolder(bundle, "https://x").problems())
    (bundle / f"{ARCHIVE}.sig").write_bytes(b"s" * 64)
    assert ".sig" not in " ".join(BundleFolder(bundle, "https://x").problems())


def test_problems_of_a_bundle_are_told(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    (bundle / ARCHIVE).write_bytes(b"other")
    (bundle / "uninstall.sh").unlink()
    found = " ".join(BundleFolder(bundle, "https://x").problems())
    assert "uninstall.sh is missing" in found
    assert f"{ARCHIVE} is not what" in found
    assert "there is no bundle" in next(BundleFolder(tmp_path, "https://x").problems())
    with pytest.raises(CloudError, match="cannot put"):
        BundleFolder(bundle, "https://x';rm -rf /;'").installer()


def test_the_line_that_people_paste_works_with_curl(served: Served) -> None:
    key = pin(read_key(served.here.layout, "https").public_key())
    options = "--url https://cloud.example:8443 --ca-sha256 abc"
    line = (
        f"curl -fsSLk --pinnedpubkey 'sha256//{key}' {served.url}/install.sh | EDGEGPU_TOKEN=secret sh -s -- {options}"
    )
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"https://cloud.example:8443|4|{options}|secret\n"
    wrong = subprocess.run(
        ["sh", "-c", line.replace(key, pin(read_key(served.here.layout, "broker").public_key()))],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert wrong.stdout == "", "another server's script is not run"
    assert "pinned" in wrong.stderr


def test_ca_crt_has_the_checksum_that_the_line_names(served: Served) -> None:
    pem = served.get("/ca.crt").data.decode()
    assert file_sha256(pem) == file_sha256(served.here.layout.ca_cert("servers").read_text())
