"""Free ports: each is given once, to whoever asks."""

import subprocess
import sys

ASKS = """
import sys
from edgegpu_sim.ports import free_port
print(*(free_port() for _ in range(400)), flush=True)
sys.stdin.read()
"""
"""So many of some 20 000 that two that do not know of each other meet, but for one run of a million."""


def test_no_two_calls_get_the_same_port_in_one_process_or_two() -> None:
    pipe = subprocess.PIPE
    askers = [subprocess.Popen([sys.executable, "-c", ASKS], text=True, stdin=pipe, stdout=pipe) for _ in range(2)]
    given = []
    for asker in askers:
        assert asker.stdout
        given += asker.stdout.readline().split()
    for asker in askers:
        asker.communicate()
    assert len(given) == len(set(given)) == 800
