"""An address is the machine's own where the kernel says so, also where programs may bind to any."""

from __future__ import annotations

from pathlib import Path

import pytest
from kits.ownnetwork import in_own_network

OWN = ["10.9.8.7", "10.9.8.9", "127.0.0.1", "127.44.0.1", "::1", "fd00:1::7", "::ffff:10.9.8.7", "::ffff:127.0.0.1"]
OTHERS = [
    "10.9.8.8",
    "192.0.2.1",
    "fd00:1::8",
    "2001:db8::1",
    "::",
    "224.0.0.1",
    "10.9.8.255",
    "255.255.255.255",
    "proxy.example",
    "",
    "testclient",
]

_SCRIPT = """
import sys
from edgegpu_base.own_addresses import is_own_address
print(" ".join(text for text in sys.argv[1].split(",") if is_own_address(text)))
"""


@pytest.mark.parametrize("nonlocal_bind", [False, True])
def test_each_address_of_a_machine_is_known_and_no_other(tmp_path: Path, *, nonlocal_bind: bool) -> None:
    """Two addresses of one network, of which the kernel calls the second one secondary, and one of IPv6."""
    script = tmp_path / "own.py"
    script.write_text(_SCRIPT)
    addresses = ["10.9.8.7/24", "10.9.8.9/24", "fd00:1::7/64"]
    printed = in_own_network(script, ",".join(OWN + OTHERS), addresses=addresses, nonlocal_bind=nonlocal_bind)
    assert printed.split() == OWN
