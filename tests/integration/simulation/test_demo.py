"""`make demo` from end to end: the real plugin over simulated cards, and that it fails when a placement is wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kits.child import ENDS_S, running_child

pytestmark = pytest.mark.usefixtures("simdriver_build")

DEMO = [sys.executable, "-m", "edgegpu_sim.demo"]
UUID = re.compile(r"GPU-[0-9a-f-]{36}")
KEYS = {"scenario", "pod", "units", "core", "phase", "card_index", "card_uuid", "sees", "reason", "command"}


def demo(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*DEMO, *args], capture_output=True, text=True, check=False, timeout=150)


def services(rows: list[dict[str, Any]], scenario: str) -> list[tuple[str, int, str]]:
    return [(row["pod"].split("-")[0], row["units"], row["phase"]) for row in rows if row["scenario"] == scenario]


def test_every_placement_is_right_and_written_down(tmp_path: Path) -> None:
    out = tmp_path / "sub" / "demo.json"
    done = demo("--no-cloud", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(f"everything was as it should be; {out} has the list")
    rows = json.loads(out.read_text())
    assert all(set(row) == KEYS for row in rows)
    for row in rows:
        if row["phase"] == "Running":
            assert row["sees"] == [row["card_uuid"]]
            assert UUID.fullmatch(row["card_uuid"])
            assert f"UUID: {row['card_uuid']})" in done.stdout
        else:
            assert (row["card_index"], row["card_uuid"], row["sees"]) == (None, "", [])
    check_three_services(rows)
    check_two_cards(rows)


def check_three_services(rows: list[dict[str, Any]]) -> None:
    assert services(rows, "three-services") == [
        ("detector", 50, "Running"),
        ("tracker", 40, "Running"),
        ("counter", 1, "Running"),
        ("counter", 10, "Pending"),
        ("counter", 1, "Running"),
    ]
    waiting = next(row for row in rows if row["phase"] == "Pending")
    assert "Insufficient baidu.com/vcuda-memory" in waiting["reason"]
    assert len({row["card_uuid"] for row in rows[:3]}) == 1


def check_two_cards(rows: list[dict[str, Any]]) -> None:
    assert services(rows, "two-cards") == [
        ("counter", 4, "Running"),
        ("detector", 20, "Running"),
        ("tracker", 20, "Running"),
        ("reader", 8, "Running"),
        ("writer", 8, "Running"),
        ("reader", 8, "Running"),
        ("writer", 12, "Running"),
    ]
    _, one, other, *pairs = (row["card_uuid"] for row in rows if row["scenario"] == "two-cards")
    assert one != other
    assert pairs[0] == pairs[1]
    assert pairs[2] != pairs[3]


def test_a_policy_that_parts_what_belongs_together_is_found_out(tmp_path: Path) -> None:
    out = tmp_path / "demo.json"
    done = demo("--json", "--no-cloud", "--policy", "spread", "--out", out)
    said = json.loads(done.stdout)
    assert (done.returncode, said["ok"]) == (1, False)
    assert any(re.search(r"reader\S+ and writer\S+ are on two cards, one is right", text) for text in said["failures"])
    assert said["pods"] == json.loads(out.read_text())
    assert "WRONG: " in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_everything_down(tmp_path: Path, number: signal.Signals) -> None:
    command = [*DEMO, "--out", str(tmp_path / "demo.json")]
    with running_child(command) as (run, lines):
        assert any("Running on card" in line for line in lines)
        children = child_processes(run.pid)
        folders = [Path(part).parent for child in children for part in arguments(child) if part.endswith("plugin.yaml")]
        run.send_signal(number)
        assert run.stderr is not None
        code, said = run.wait(ENDS_S), run.stderr.read()
    assert code == 130
    assert said.strip() == "edgegpu: interrupted; everything is taken down"
    assert len(folders) == 1
    assert not any(folder.exists() for folder in folders)
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def child_processes(pid: int) -> list[int]:
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]


def arguments(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def test_a_policy_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = demo("--policy", "nonsense", "--json", "--out", tmp_path / "file" / "demo.json")
    said = json.loads(done.stdout)
    assert (done.returncode, set(said)) == (1, {"error", "remedy"})
    assert "choose one of first-fit, best-fit, spread" in said["error"]
