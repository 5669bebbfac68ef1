#!/usr/bin/env python3
"""Write a container image (docker-archive, one layer) from files of this machine; no daemon, no registry.

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
from pathlib import Path

EPOCH = "2020-01-01T00:00:00Z"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


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
    digests = [hashlib.sha256(data).hexdigest() for data in layers]
    config = {
        "architecture": ARCHITECTURES[machine],
        "os": "linux",
        "created": EPOCH,
        "config": {"Env": ["PATH=/bin:/sbin:/usr/bin:/usr/local/bin", *env], "Entrypoint": entrypoint},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created": EPOCH} for _ in digests],
    }
    config_data = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(config_data).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar" for digest in digests]}]
    partial = out.with_suffix(".new")
    with tarfile.open(partial, "w") as tar:
        _add(tar, config_name, config_data, 0o644)
        for digest, data in zip(digests, layers, strict=True):
            _add(tar, f"{digest}/layer.tar", data, 0o644)
        _add(tar, "manifest.json", json.dumps(manifest).encode(), 0o644)
    partial.rename(out)


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
