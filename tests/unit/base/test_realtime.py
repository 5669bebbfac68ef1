"""Real-time scheduling for the moment in which a kubelet starts, in a process of its own."""

import subprocess
import sys

import pytest

TAKES = """
import os
from edgegpu_base.process.realtime import RealtimePriority as Urgency
urgency, seen = Urgency(), []
os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # raises PermissionError where it may not
os.sched_setscheduler(0, os.{before}, os.sched_param({priority}))
for step in (urgency.take, urgency.take, urgency.give_back):
    step()
    seen.append((os.sched_getscheduler(0), os.sched_getparam(0).sched_priority))
assert seen == [(os.SCHED_RR, {priority} or 1), (os.SCHED_RR, {priority} or 1), (os.{before}, {priority})], seen
"""


@pytest.mark.parametrize(("before", "priority"), [("SCHED_OTHER", 0), ("SCHED_RR", 5)])
def test_it_gives_back_what_it_took(before: str, priority: int) -> None:
    script = TAKES.format(before=before, priority=priority)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if "PermissionError" in done.stderr:
        pytest.skip("CAP_SYS_NICE is needed")
    assert done.returncode == 0, done.stderr
