"""The bill of materials of an environment: by CycloneDX's own schema, and against what lies in the environment."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from referencing import Registry

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/sbom.py"
SCHEMAS = ("bom-1.6", "spdx", "jsf-0.82")
Json = dict[str, Any]


@pytest.fixture(scope="module")
def environment() -> Path:
    subprocess.run([ROOT / "tools/env"], check=True, cwd=ROOT)
    return ROOT / "build/env/edgegpu"


@pytest.fixture(scope="module")
def bill(environment: Path) -> Json:
    document: Json = json.loads((environment / "sbom.cdx.json").read_text())
    return document


def schema_faults(document: Json) -> list[str]:
    """Return what CycloneDX's official schema has against a document."""
    folder = files("cyclonedx.schema") / "_res"
    read = {name: json.loads((folder / f"{name}.SNAPSHOT.schema.json").read_text()) for name in SCHEMAS}
    by_url = {f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json": text for name, text in read.items()}
    registry: Registry[Any] = Registry().with_contents(by_url.items())
    return [fault.message for fault in Draft7Validator(read[SCHEMAS[0]], registry=registry).iter_errors(document)]


def of_type(bill: Json, kind: str) -> dict[str, Json]:
    """Return the components whose purl is of a type, by name."""
    return {one["name"]: one for one in bill["components"] if one.get("purl", "").startswith(f"pkg:{kind}/")}


def named_files(bill: Json) -> dict[str, str]:
    """Return the files that the bill names, with their sha256."""
    parts = [part for one in bill["components"] for part in (one, *one.get("components", ()))]
    return {part["name"]: part["hashes"][0]["content"] for part in parts if "/" in part["name"]}


def native_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and is_native(path)}


def is_native(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def run(environment: Path, report: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, environment, report], capture_output=True, text=True, check=False)


def report_of(bill: Json, file: Path) -> Path:
    """Write what pip has reported of the wheels that a bill names."""
    wheels = of_type(bill, "pypi").values()
    install = [
        {
            "metadata": {"name": one["name"]},
            "download_info": {"archive_info": {"hashes": {"sha256": one["hashes"][0]["content"]}}},
        }
        for one in wheels
    ]
    file.write_text(json.dumps({"install": install}))
    return file


def test_it_is_cyclonedx_by_the_official_schema(bill: Json) -> None:
    assert bill["specVersion"] == "1.6"
    assert schema_faults(bill) == []
    for wrong in ({"specVersion": "1.6", "components": [{"name": "x"}]}, bill | {"serialNumber": "7"}):
        assert schema_faults(wrong)


def test_it_names_each_python_package_that_lies_there_with_a_wheel_of_the_lock(bill: Json, environment: Path) -> None:
    folders = {path.name.removesuffix(".dist-info") for path in (environment / "lib").glob("*.dist-info")}
    packages = of_type(bill, "pypi") | {"edgegpu": bill["metadata"]["component"]}
    assert {(one["name"].replace("-", "_"), one["version"]) for one in packages.values()} == {
        tuple(folder.split("-", 1)) for folder in folders
    }
    lock = (ROOT / "requirements/run.txt").read_text()
    locked = dict(re.findall(r"^([a-z0-9-]+)==(.*?)\n(?=\S)", lock, re.MULTILINE | re.DOTALL))
    for name, one in of_type(bill, "pypi").items():
        assert locked[name].startswith(one["version"])
        assert one["hashes"][0]["content"] in locked[name]
        assert one["licenses"]


def test_it_names_each_native_file_beside_python_with_its_sum_and_nothing_that_is_not_there(
    bill: Json, environment: Path
) -> None:
    there = native_files(environment / "python") | native_files(environment / "limiter")
    assert named_files(bill) == {
        str(path.relative_to(environment)): hashlib.sha256(path.read_bytes()).hexdigest() for path in there
    }
    assert {"limiter/libcuda.so.1", "limiter/libnvidia-ml.so.1"} <= set(named_files(bill))
    notice = (environment / "NOTICE").read_text()
    sources = set(re.findall(r": source package (\S+) ", notice))
    assert {one["name"] for one in bill["components"] if one.get("purl", "").startswith("pkg:deb/")} == sources


def test_every_other_native_file_belongs_to_a_package_that_it_names(environment: Path) -> None:
    lib = environment / "lib"
    recorded = {
        lib / row[0] for record in lib.glob("*.dist-info/RECORD") for row in csv.reader(record.read_text().splitlines())
    }
    assert native_files(lib) - recorded == set()
    elsewhere = native_files(environment) - native_files(environment / "python") - native_files(environment / "limiter")
    assert elsewhere == native_files(lib)


def test_the_same_environment_gives_the_same_bytes(bill: Json, environment: Path, tmp_path: Path) -> None:
    done = run(environment, report_of(bill, tmp_path / "report.json"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (environment / "sbom.cdx.json").read_text()


def test_what_nobody_knows_is_an_error(bill: Json, environment: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(environment, tmp_path / "edgegpu", symlinks=True)
    report = report_of(bill, tmp_path / "report.json")
    (copy / "lib/stray-1.0.dist-info").mkdir()
    (copy / "lib/stray-1.0.dist-info/METADATA").write_text("Name: stray\nVersion: 1.0\nLicense: MIT\n")
    assert run(copy, report).stderr == "sbom: cannot find the wheel of stray 1.0 in pip's report\n"
    (copy / "lib/stray-1.0.dist-info/METADATA").write_text("Name: stray\nVersion: 1.0\n")
    assert "cannot find the licence of stray 1.0" in run(copy, report).stderr


def test_another_content_has_another_serial_number(bill: Json, environment: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(environment, tmp_path / "edgegpu", symlinks=True)
    with (copy / "limiter/libcuda.so.1").open("ab") as library:
        library.write(b"x")
    other = json.loads(run(copy, report_of(bill, tmp_path / "report.json")).stdout)
    assert other["serialNumber"] != bill["serialNumber"]
    assert named_files(other) != named_files(bill)
