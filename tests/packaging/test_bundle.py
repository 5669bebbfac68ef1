"""What one HTTPS host has to serve: archives of an environment, and an install.sh that takes these and no others."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from kits.install import BASENAME, ROOT, VERSION, make_bundle, make_environment

XZ, GZ, BILL = f"{BASENAME}.tar.xz", f"{BASENAME}.tar.gz", f"{BASENAME}.cdx.json"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("env") / "edgegpu")


@pytest.fixture(scope="module")
def bundle(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundle") / "bundle"
    done = make_bundle(out, environment)
    assert (done.returncode, done.stderr) == (0, "")
    return out


def pins(script: Path) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)='(.*)'$", script.read_text(), re.MULTILINE))


def test_pins_its_own_archives(bundle: Path) -> None:
    pinned = pins(bundle / "install.sh")
    assert pinned["VERSION"] == VERSION
    assert pinned["BUILD"] == "b" * 64
    for name, key in ((XZ, "SHA256_XZ"), (GZ, "SHA256_GZ")):
        assert hashlib.sha256((bundle / name).read_bytes()).hexdigest() == pinned[key]
    assert int(pinned["NEED_KIB"]) > 80
    assert (bundle / "install.sh").read_text().count("@EDGEGPU_") == pinned["BASE_URL"].count("@EDGEGPU_URL@") == 1


def test_the_sums_are_right_and_complete(bundle: Path) -> None:
    names = {line.split()[1] for line in (bundle / "SHA256SUMS").read_text().splitlines()}
    assert names | {"SHA256SUMS"} == {path.name for path in bundle.iterdir()} == {
        "install.sh", "uninstall.sh", "SHA256SUMS", XZ, GZ, BILL,
    }  # fmt: skip
    subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=bundle, check=True)


def test_the_bill_of_materials_is_that_of_the_archives(bundle: Path, environment: Path) -> None:
    """So who has signed an archive has signed the bill."""
    assert (bundle / BILL).read_bytes() == (environment / "sbom.cdx.json").read_bytes()


def test_both_archives_hold_the_environment_in_one_folder(bundle: Path, environment: Path) -> None:
    content = lzma.decompress((bundle / XZ).read_bytes())
    assert gzip.decompress((bundle / GZ).read_bytes()) == content
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = archive.getmembers()
    expected = {BASENAME, *(f"{BASENAME}/{path.relative_to(environment)}" for path in environment.rglob("*"))}
    assert {one.name for one in members} == expected
    assert [one.linkname for one in members if one.issym()] == ["../ballast"]
    assert {(one.uid, one.gid, one.uname) for one in members} == {(0, 0, "")}


def test_the_same_environment_gives_the_same_bytes(bundle: Path, environment: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(environment, tmp_path / "copied", symlinks=True)
    assert make_bundle(tmp_path / "again", copy).returncode == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == {
        path.name: path.read_bytes() for path in bundle.iterdir()
    }


def test_nothing_is_packed_twice(environment: Path, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    make_bundle(out, environment)
    before = (out / XZ).stat()
    assert make_bundle(out, environment, EDGEGPU_URL="https://cloud.example.org:8443/edge").returncode == 0
    assert (out / XZ).stat().st_ino == before.st_ino
    assert pins(out / "install.sh")["BASE_URL"] == "https://cloud.example.org:8443/edge"


@pytest.mark.parametrize("url", ["http://cloud.example.org", "https://x'; reboot; '"])
def test_an_address_that_it_does_not_pin(environment: Path, tmp_path: Path, url: str) -> None:
    done = make_bundle(tmp_path / "bundle", environment, EDGEGPU_URL=url)
    assert done.returncode == 1
    assert f"cannot pin EDGEGPU_URL={url}" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_script_is_whole_and_in_one_file(bundle: Path) -> None:
    text = (bundle / "install.sh").read_text()
    functions = re.findall(r"^(\w+)\(\)", (ROOT / "installer/install-lib.sh").read_text(), re.MULTILINE)
    assert [text.count(f"\n{name}() ") for name in functions] == [1] * len(functions)
    assert "install-lib.sh" not in re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    assert text.endswith('\n{ main "$@"; }\n')
    subprocess.run([shutil.which("dash") or "sh", "-n", bundle / "install.sh"], check=True)


def test_outside_of_functions_it_only_assigns(bundle: Path) -> None:
    """What runs before the last line runs in a script that was cut as well."""
    text = re.sub(r"^\w+\(\) \{.*?^\}$", "", (bundle / "install.sh").read_text(), flags=re.MULTILINE | re.DOTALL)
    outside = [line for line in text.splitlines() if line and not re.match(r"#|\w+\(\) \{.*\}$", line)]
    assert outside[:2] == ["set -eu", "umask 022"]
    assert outside[-1] == '{ main "$@"; }'
    assert not [line for line in outside[2:-1] if not re.match(r"\w+=\S*( #.*)?$", line)]
