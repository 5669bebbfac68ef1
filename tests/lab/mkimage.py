#!/usr/bin/env python3
"""Write container images (docker-archive) from files of this machine; no daemon, no registry.

mkimage.py OUT.tar NAME:TAG ENTRYPOINT ITEM...
  ENTRYPOINT  a JSON list, e.g. '["/bin/sh"]'
  ITEM        PATH_IN_IMAGE=LOCAL_FILE (mode 0755)   LINK->TARGET   FOLDER/
"""

import hashlib
import io
import json
import platform
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EPOCH = "2020-01-01T00:00:00Z"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PATH = "PATH=/bin:/sbin:/usr/bin:/usr/local/bin"


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o755) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    tar.addfile(info, io.BytesIO(data))


def _add_parents(tar: tarfile.TarFile, path: str, seen: set[str]) -> None:
    """Add the folders above path that the layer does not have yet."""
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        if folder not in seen:
            seen.add(folder)
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(info)


def layer(items: list[str]) -> bytes:
    """Return the tar of the items."""
    buffer, seen = io.BytesIO(), set[str]()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for item in items:
            path, arrow, target = item.partition("->")
            path, _, source = (path, "", "") if arrow else item.partition("=")
            path = path.lstrip("/")
            _add_parents(tar, path, seen)
            if arrow:
                info = tarfile.TarInfo(path)
                info.type, info.linkname = tarfile.SYMTYPE, target
                tar.addfile(info)
            elif source:
                _add(tar, path, Path(source).read_bytes())
    return buffer.getvalue()


@dataclass(frozen=True)
class Image:
    """One image: its name with the tag, its layers from the lowest on, and what its configuration says."""

    name: str
    layers: Sequence[bytes]
    config: Mapping[str, Any] = field(default_factory=dict)
    """`Env`, `User`, `WorkingDir`, `Entrypoint`, `Cmd` and so on; the usual PATH where it has no `Env`."""


def write_images(out: Path, images: Sequence[Image], *, machine: str) -> None:
    """Write images into one archive, a layer that several have once; machine as in `uname -m`."""
    partial, manifest, written = out.with_suffix(".new"), [], set[str]()
    with tarfile.open(partial, "w") as tar:
        for image in images:
            digests = [hashlib.sha256(data).hexdigest() for data in image.layers]
            for digest, data in zip(digests, image.layers, strict=True):
                if digest not in written:
                    written.add(digest)
                    _add(tar, f"{digest}/layer.tar", data, 0o644)
            config = {
                "architecture": ARCHITECTURES[machine],
                "os": "linux",
                "created": EPOCH,
                "config": {"Env": [PATH]} | dict(image.config),
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
                "history": [{"created": EPOCH}] * len(digests),
            }
            data = json.dumps(config).encode()
            name = f"{hashlib.sha256(data).hexdigest()}.json"
            _add(tar, name, data, 0o644)
            layers = [f"{digest}/layer.tar" for digest in digests]
            manifest.append({"Config": name, "RepoTags": [image.name], "Layers": layers})
        _add(tar, "manifest.json", json.dumps(manifest).encode(), 0o644)
    partial.rename(out)


def write_image(
    out: Path,
    *,
    name: str,
    entrypoint: list[str],
    items: list[str],
    machine: str,
    env: tuple[str, ...] = (),
    base: Path | None = None,
) -> None:
    """Write the image name (with tag) of these items to out, over those of `base`; machine as in `uname -m`."""
    layers = [*(() if base is None else _layers_of(base)), layer(items)]
    write_images(out, [Image(name, layers, {"Env": [PATH, *env], "Entrypoint": entrypoint})], machine=machine)


def _layers_of(image: Path) -> list[bytes]:
    """Return the layers of an image that `write_image` has written."""
    with tarfile.open(image) as tar:

        def content(name: str) -> bytes:
            file = tar.extractfile(name)
            if file is None:
                raise ValueError(f"{image} has no file {name}")
            return file.read()

        (manifest,) = json.loads(content("manifest.json"))
        return [content(name) for name in manifest["Layers"]]


def main(argv: list[str]) -> int:
    """Run the command line."""
    if len(argv) < 4:
        print(__doc__, file=sys.stderr)  # noqa: T201
        return 2
    machine = platform.machine()
    write_image(Path(argv[1]), name=argv[2], entrypoint=json.loads(argv[3]), items=argv[4:], machine=machine)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
