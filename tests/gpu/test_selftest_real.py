"""The self-test on real cards: it passes, and what it says of a context is what NVML says."""

import re
import subprocess
from pathlib import Path

import pytest

from edgegpu_plugin.containers.limiter_files import find_limiter
from edgegpu_plugin.records.selftest_results import Verdict
from edgegpu_plugin.selftest.observation import judge
from edgegpu_plugin.selftest.runner import SelftestRunner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no NVIDIA driver: /dev/nvidiactl is missing"),
]


def test_it_passes_on_each_card(tmp_path: Path, limiter_build: Path) -> None:
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=60).stdout
    cards = re.findall(r"GPU-[0-9a-f-]{36}", listed)
    runner = SelftestRunner(tmp_path, program=limiter_build / "edgegpu-selftest")
    seen = runner.run(cards, root=Path("/"), version="", limiter=find_limiter(limiter_build))
    print((tmp_path / "selftest/result").read_text())  # noqa: T201  (figures for whoever runs it)
    results = [judge(seen, card, key="k", at_s=1) for card in seen.cards]
    assert [(one.card, one.verdict, one.reason) for one in results] == [(card, Verdict.PASSED, "") for card in cards]
    assert all(16 < (one.context_mib or 0) < 2000 for one in results)
