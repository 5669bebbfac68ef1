"""What the collection of the tests leaves behind in a process that runs them."""

from __future__ import annotations

import gc


def test_the_garbage_collector_runs_and_leaves_alone_what_was_collected() -> None:
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
