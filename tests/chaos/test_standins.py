"""The stand-ins of a box in the chaos run do as what they stand for: else the run finds faults that are its own."""

from __future__ import annotations

import json
import random
import subprocess
from typing import TYPE_CHECKING

import pytest
from chaos import clocks, machine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("wrong", [False, True], ids=["the clock is right", "the clock is wrong"])
def test_an_installer_that_has_ended_leaves_no_unit_on_its_way(tmp_path: Path, *, wrong: bool) -> None:
    if wrong and clocks.lacks():
        pytest.skip(clocks.lacks())
    bin_ = machine.programs(tmp_path / "bin")
    box = machine.make("box-1", tmp_path, bin_=bin_, launcher=["true"], own_disk=False)
    if wrong:
        clocks.set_wrong(box.agent, tmp_path, random.Random(20)).write_text("+7300d")

    def does(*words: str) -> str:
        env = box.agent.env | box.agent.clock
        return subprocess.run(words, env=env, check=True, capture_output=True, text=True, timeout=30).stdout

    for at in range(1, 5):  # the fourth start of a unit takes its time, in the ledger there is one already
        did = json.loads(
            does(str(bin_ / "edgegpu"), ("install", "uninstall")[at % 2], "--transaction-id", f"sharing-{at}")
        )
        shown = dict(
            line.split("=", 1)
            for line in does(str(bin_ / "systemctl"), "show", "--", "k3s.service").splitlines()
            if line
        )
        assert (shown["ActiveState"], shown["Job"]) == ("active", ""), shown
        assert did["state"] in {"COMMITTED", "ROLLED_BACK"}
        assert int(shown["InvocationID"], 16) == len(box.lines("k3s.service"))
