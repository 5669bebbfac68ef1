"""A signal to a process of tasks is minded, also one that comes in the moment before its main thread begins to wait.

Python notes a signal and runs its handler between two steps of the main thread. One that comes after the last step
before a wait does not end the wait. Nobody can hit that moment; a signal that another thread takes does the same.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import signal, threading, time
from edgegpu_base.process.tasks import Task, TaskGroup

group, ended = TaskGroup(), threading.Event()

def struck():
    time.sleep(0.3)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    ended.wait()

tasks = [Task("struck", struck, ended.set)]
"""
WAYS = {
    "wait": "group.end_on(signal.SIGTERM)\ngroup.start(tasks)\ngroup.wait()\n",
    "run": "group.end_on(signal.SIGTERM)\ngroup.run(tasks)\n",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_signal_that_does_not_end_the_wait_is_minded_soon(way: str) -> None:
    words = [sys.executable, "-c", SCRIPT + WAYS[way]]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
