"""Runs readers under atheris, each in a process of its own, for so long; what they cannot read is a finding."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.readers import Reader

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_MIB = 300
"""What a reader's process may take: some 95 MiB are Python and the libraries."""

HANGS_S = 10
"""A message that is read for so long hangs."""

MISSING = (
    "atheris is not installed: it has wheels for Python 3.11 to 3.13 on x86-64 Linux (make venv installs it there)"
)
_MAX_BYTES = 70_000
_WORDS = re.compile(rb'"[A-Za-z0-9_./-]{1,40}"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of one reader; `coverage` counts branches of the product's code, `wrong` is empty when all is well."""

    runs: int
    seconds: int
    coverage: int
    wrong: str = ""


def there() -> bool:
    """Whether atheris is installed."""
    return importlib.util.find_spec("atheris") is not None


def guided(
    chosen: Sequence[Reader], place: Path, *, seconds: int, number: int, hangs_s: int = HANGS_S
) -> dict[str, Found]:
    """Run each for `seconds`, two beside each other at most; crashers are left in `place`/NAME."""
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        found = pool.map(
            lambda one: _one(one, place / one.name, seconds=seconds, number=number, hangs_s=hangs_s), chosen
        )
        return {one.name: each for one, each in zip(chosen, found, strict=True)}


def _one(reader: Reader, folder: Path, *, seconds: int, number: int, hangs_s: int) -> Found:
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for place, data in enumerate(reader.seeds):
        (corpus / f"seed-{place}").write_bytes(data)
    words = sorted({word for data in reader.seeds for word in _WORDS.findall(data)})
    (folder / "words").write_bytes(b"\n".join(words))
    command = [
        # libFuzzer judges the peak of getrusage, which a process that is started inherits from who started it (Linux,
        # exec_mmap): from us after a flood, or from timeout(1), which is small.
        *("timeout", str(seconds + hangs_s + 60)),
        *(sys.executable, str(Path(__file__).with_name("guide.py")), reader.name),
        *(f"-max_total_time={seconds}", f"-timeout={hangs_s}", f"-rss_limit_mb={MOST_MIB}", f"-max_len={_MAX_BYTES}"),
        *(
            f"-seed={number % 2**31 or 1}",
            *([f"-dict={folder / 'words'}"] if words else []),  # an empty one is an error
            f"-artifact_prefix={folder}/",
            "-len_control=20",
        ),
        str(corpus),
    ]
    with (folder / "log").open("wb") as log:
        try:
            done = subprocess.run(
                command, stdout=log, stderr=log, check=False, cwd=folder, timeout=seconds + hangs_s + 60
            ).returncode
        except subprocess.TimeoutExpired:
            done = -1
    return judged((folder / "log").read_text(errors="replace"), done)


def judged(log: str, code: int) -> Found:
    """Read what libFuzzer has said."""
    runs = [int(number) for number in re.findall(r"^#(\d+)\s", log, re.MULTILINE)]
    coverage = [int(number) for number in re.findall(r"\bcov: (\d+)", log)]
    end = re.search(r"^Done (\d+) runs in (\d+) second", log, re.MULTILINE)
    wrong = ""
    if code != 0 or end is None:
        lines = [
            line.strip() for line in log.splitlines() if re.search(r"Error|Exception|ERROR|SUMMARY|written to", line)
        ]
        wrong = "; ".join(lines[:6])[:600] or f"it ended with {code} and no word"
    elif not coverage:
        wrong = "nothing of the product was reached: is it instrumented?"
    return Found(
        runs=int(end[1]) if end else max(runs, default=0),
        seconds=int(end[2]) if end else 0,
        coverage=max(coverage, default=0),
        wrong=wrong,
    )
