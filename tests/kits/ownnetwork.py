"""A network of its own for a program, with the addresses that a test names: what is sent there leads nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

TESTS = Path(__file__).resolve().parents[1]
_SETUP = """
ip link set lo up
ip link add lan0 type bridge
ip link set lan0 up
for address in $1; do ip address add "$address" dev lan0 $(case $address in *:*) echo nodad ;; esac); done
shift
exec "$@"
"""


def in_own_network(script: Path, *words: object, addresses: Sequence[str], nonlocal_bind: bool = False) -> str:
    """Run a Python program in a new network with these addresses, and return what it prints.

    `nonlocal_bind`: programs there may bind to any address, as machines that share one have it.
    """
    if os.geteuid() != 0:
        pytest.skip("a network of its own takes root")
    first = "for v in 4 6; do echo 1 > /proc/sys/net/ipv$v/ip_nonlocal_bind; done; " if nonlocal_bind else ""
    done = subprocess.run(
        [
            "unshare",
            "--net",
            "sh",
            "-ec",
            first + _SETUP,
            "sh",
            " ".join(addresses),
            sys.executable,
            script,
            *map(str, words),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
