"""The bill of materials of an environment, as CycloneDX 1.6 in JSON: `sbom.py ENVIRONMENT REPORT` prints it.

ENVIRONMENT is what tools/env makes, REPORT what `pip install --report` has written of its packages: the sha256 of each
wheel. The same environment gives the same bytes: there is no time in it, and the serial number follows from the rest.
The form is written here and not by a library, for it is a few names in JSON; a test checks it by the official schema.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from email import message_from_bytes
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from email.message import Message

Json = dict[str, Any]

ELF = b"\x7fELF"
OURS = "edgegpu"
LIMITER = "limiter"
_NOTICE_LINE = re.compile(
    r"^(?P<files>[^:]+): source package (?P<name>\S+) (?P<version>\S+), licence in (?P<text>\S+)$"
)
_PYTHON_LINE = re.compile(r"^Python (?P<version>\S+): ")
_CLASSIFIER = "License :: OSI Approved :: "
_MOST_LICENCE = 80


class BillError(Exception):
    """The environment holds something of which nobody knows what it is."""


def normal_name(name: str) -> str:
    """Return the name of a Python package as purl and PyPI write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def hashes(sha256: str) -> list[Json]:
    """Return a checksum as CycloneDX writes it."""
    return [{"alg": "SHA-256", "content": sha256}]


def file_component(path: Path, environment: Path) -> Json:
    """Return a file of the environment, under its path there."""
    return {
        "type": "file",
        "name": str(path.relative_to(environment)),
        "hashes": hashes(hashlib.sha256(path.read_bytes()).hexdigest()),
    }


def is_native(path: Path) -> bool:
    """Return whether this file is a program or library in machine code."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(ELF)) == ELF


def licences(metadata: Message) -> list[Json]:
    """Return the licence of a Python package by its own metadata."""
    if expression := metadata.get("License-Expression"):
        return [{"expression": expression}]
    text = str(metadata.get("License") or "").strip()
    if text and "\n" not in text and len(text) <= _MOST_LICENCE:
        return [{"license": {"name": text}}]
    classifiers = metadata.get_all("Classifier") or []
    names = [line.removeprefix(_CLASSIFIER) for line in classifiers if line.startswith(_CLASSIFIER)]
    return [{"license": {"name": name}} for name in names]


def python_package(folder: Path, wheels: Mapping[str, str]) -> Json:
    """Return the component of a package by its `*.dist-info` folder.

    Raises:
        BillError: it has no licence, or its wheel is not in the report.
    """
    metadata = message_from_bytes((folder / "METADATA").read_bytes())
    name, version = normal_name(metadata["Name"]), metadata["Version"]
    found = licences(metadata)
    if not found:
        raise BillError(f"cannot find the licence of {name} {version} in {folder.name}")
    purl = f"pkg:pypi/{name}@{quote(version, safe='.')}"
    component = {"type": "library", "bom-ref": purl, "name": name, "version": version, "licenses": found, "purl": purl}
    if name != OURS:
        if name not in wheels:
            raise BillError(f"cannot find the wheel of {name} {version} in pip's report")
        component["hashes"] = hashes(wheels[name])
    return component


def wheel_sums(report: Path) -> dict[str, str]:
    """Return the sha256 of each wheel by its package's name, from what pip reports."""
    installed = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {
        normal_name(each["metadata"]["name"]): each["download_info"]["archive_info"]["hashes"]["sha256"]
        for each in installed
    }


def interpreter(environment: Path) -> Iterator[Json]:
    """Yield Python, and each Debian package with the files of it that lie beside Python.

    Raises:
        BillError: a native file belongs to none of them.
    """
    folder = environment / "python"
    native = {path.name: path for path in sorted(folder.rglob("*")) if is_native(path)}
    version = ""
    for line in (environment / "NOTICE").read_text(encoding="utf-8").splitlines():
        if match := _PYTHON_LINE.match(line):
            version = match["version"]
        elif match := _NOTICE_LINE.match(line):
            purl = f"pkg:deb/debian/{match['name']}@{quote(match['version'], safe='.~')}?arch=source"
            files = [native.pop(name) for name in match["files"].split() if name in native]
            yield {
                "type": "library",
                "bom-ref": f"{purl}#{match['text']}",
                "name": match["name"],
                "version": match["version"],
                "purl": purl,
                "licenses": [{"license": {"name": f"see {match['text']}"}}],
                "components": [file_component(path, environment) for path in files],
            }
    if not version:  # a distribution's Python stands among its packages
        version = (environment / "lib/python-version").read_text(encoding="utf-8").strip()
    purl = f"pkg:generic/python@{version}"
    yield {
        "type": "platform",
        "bom-ref": purl,
        "name": "python",
        "version": version,
        "purl": purl,
        "licenses": [{"license": {"id": "PSF-2.0"}}],
        "components": [file_component(path, environment) for path in native.values()],
    }


def own_parts(environment: Path, version: str) -> Iterator[Json]:
    """Yield the native parts of our own."""
    for path in sorted((environment / LIMITER).iterdir()):
        part = file_component(path, environment)
        part |= {"bom-ref": f"{OURS}/{LIMITER}/{path.name}", "version": version}
        part["licenses"] = [{"license": {"id": "Apache-2.0"}}]
        yield part


def bill(environment: Path, report: Path) -> Json:
    """Return the bill of materials of an environment.

    Raises:
        BillError: it holds something of which nobody knows what it is.
    """
    version = (environment / "VERSION").read_text(encoding="utf-8").strip()
    wheels = wheel_sums(report)
    packages = [python_package(folder, wheels) for folder in sorted((environment / "lib").glob("*.dist-info"))]
    (own,) = (component for component in packages if component["name"] == OURS)
    parts = [component for component in packages if component is not own]
    parts += [*interpreter(environment), *own_parts(environment, version)]
    parts.sort(key=lambda component: str(component["bom-ref"]))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own | {"type": "application"}},
        "components": parts,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [component["bom-ref"] for component in parts]}],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    return document | {"serialNumber": f"urn:uuid:{serial}"}


def main(arguments: list[str]) -> int:
    """Print the bill for the command line `sbom.py ENVIRONMENT REPORT`."""
    try:
        document = bill(Path(arguments[0]), Path(arguments[1]))
    except BillError as error:
        sys.stderr.write(f"sbom: {error}\n")
        return 1
    sys.stdout.write(json.dumps(document, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
