"""The readers of the hook edgegpu-loader-cache under sanitizers, over caches and documents that lie."""

import random
import struct
import subprocess
from pathlib import Path

import pytest
from native.limiterkit import SOURCES
from native.loadercachekit import machine_cache

pytestmark = pytest.mark.sanitizer

HERE = Path(__file__).parent
ROUNDS = 10_000
DOCUMENT = b'{"a": [{"bundle": "x"}], "bundle": "/run/\\u0026\\"\\\\/", "root": {"n": {"path": 1}, "path": "rootfs"}}'


def small_cache(form: str) -> bytes:
    """Return a cache with hwcaps, so small that most changes hit a number."""
    names = [b"libz.so.1", b"libcuda.so.1", b"libc.so.6"]
    texts, places = b"", []
    start = 48 + 24 * len(names)
    for name in names:
        places.append((start + len(texts), start + len(texts) + len(name) + 1))
        texts += name + b"\0/lib/" + name + b"\0"
    level = start + len(texts)
    texts += b"x86-64-v3\0"
    entries = b"".join(
        struct.pack("<iIIIQ", 0x303, key, value, 0, 1 << 62 if key == start else 0) for key, value in places
    )
    before = b"" if form != "compat" else b"ld.so-1.7.0\0" + struct.pack("<I", 2) + bytes(24)
    extension = 0 if form == "bare" else (len(before) + start + len(texts) + 3) & ~3
    sections = struct.pack("<II4I4I", 0xEAA42174, 2, 0, 0, extension + 40, 4, 1, 0, extension + 44, 4)
    head = struct.pack("<20sIIB3xI12x", b"glibc-ld.so.cache1.1", len(names), len(texts), 2, extension)
    body = before + head + entries + texts
    if form == "bare":
        return body
    return body.ljust(extension, b"\0") + sections + b"made" + struct.pack("<I", level)


def test_nothing_is_read_or_written_beside_what_there_is(tmp_path: Path) -> None:
    program, seed = tmp_path / "lies", random.randrange(1 << 32)
    sources = [HERE / "loader_cache_lies.c", SOURCES / "loader_cache/cache.c", SOURCES / "loader_cache/json.c"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    includes = [f"-I{SOURCES}/loader_cache", f"-I{SOURCES}/common"]
    subprocess.run(["cc", "-g", "-O1", "-Wall", "-Werror", *sanitizers, *includes, "-o", program, *sources], check=True)
    made = {
        "document": DOCUMENT,
        "new": small_cache("new"),
        "compat": small_cache("compat"),
        "bare": small_cache("bare"),
    }
    made |= {"machine": machine_cache(tmp_path)}
    files = []
    for name, content in made.items():
        files.append(tmp_path / name)
        files[-1].write_bytes(content)
    done = subprocess.run(
        [program, str(seed), str(ROUNDS), *files], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), f"seed {seed}: {done.stdout}"
    taken, tries = map(int, done.stdout.split())
    assert tries > 4 * ROUNDS
    assert ROUNDS / 4 < taken < 2 * tries
