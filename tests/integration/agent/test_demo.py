"""`edgegpu demo` from end to end: the real plugin over simulated cards, and that it fails when a placement is wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kits.cli import document, edgegpu, edgegpu_process, plugin

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("simdriver_build")]

UUID = re.compile(r"GPU-[0-9a-f-]{36}")
KEYS = {"scenario", "pod", "units", "core", "phase", "card_index", "card_uuid", "sees", "reason", "command"}


def services(rows: list[dict[str, Any]], scenario: str) -> list[tuple[str, int, str]]:
    return [(row["pod"].split("-")[0], row["units"], row["phase"]) for row in rows if row["scenario"] == scenario]


def test_every_placement_is_right_and_written_down(tmp_path: Path) -> None:
    out = tmp_path / "sub" / "demo.json"
    done = edgegpu_process("demo", "--once", "--no-cloud", "--out", out, timeout_s=150)
    assert done.code == 0, done.out + done.err
    assert done.out.rstrip().endswith(f"everything was as it should be; {out} has the list")
    rows = json.loads(out.read_text())
    assert all(set(row) == KEYS for row in rows)
    for row in rows:
        if row["phase"] == "Running":
            assert row["sees"] == [row["card_uuid"]]
            assert UUID.fullmatch(row["card_uuid"])
            assert f"UUID: {row['card_uuid']})" in done.out
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
    done = edgegpu_process("demo", "--json", "--no-cloud", "--policy", "spread", "--out", out, timeout_s=150)
    said = json.loads(done.out)
    assert (done.code, said["ok"]) == (1, False)
    assert any(re.search(r"reader\S+ and writer\S+ are on two cards, one is right", text) for text in said["failures"])
    assert said["pods"] == json.loads(out.read_text())
    assert "WRONG: " in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_everything_down(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "edgegpu_agent.cli.app", "demo", "--out", str(tmp_path / "demo.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        for line in demo.stdout:
            if "Running on card" in line:
                break
        children = child_processes(demo.pid)
        folders = [Path(part).parent for child in children for part in arguments(child) if part.endswith("plugin.yaml")]
        demo.send_signal(number)
        code, said = demo.wait(30), demo.stderr.read()
    assert code == 130
    assert said.strip() == "edgegpu: interrupted; everything is taken down"
    assert len(folders) == 1
    assert not any(folder.exists() for folder in folders)
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def child_processes(pid: int) -> list[int]:
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]


def arguments(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = edgegpu("demo", "--policy", "nonsense", "--json", "--out", tmp_path / "file" / "demo.json")
    said = json.loads(done.out)
    assert (done.code, set(said)) == (1, {"error", "remedy"})
    assert "choose one of first-fit, best-fit, spread" in said["error"]


def fake_kubectl(folder: Path, script: str) -> dict[str, str]:
    tool = folder / "kubectl"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_on_a_box_without_kubectl(tmp_path: Path) -> None:
    done = edgegpu("demo", "--real", env={"PATH": str(tmp_path)})
    assert done.code == 1
    assert "there is no kubectl and no k3s on the PATH" in done.err


def test_on_a_box_without_the_plugin(short_tmp: Path) -> None:
    env = fake_kubectl(short_tmp, "exit 9")
    done = edgegpu("demo", "--real", "--json", "--socket", short_tmp / "plugin.sock", env=env)
    assert done.code == 1
    assert "it is not running" in json.loads(done.out)["error"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cards": []}, "no card"),
        ({"cards": [], "driver": {"version": "", "problem": "no driver library here"}}, "no driver library here"),
        ({"role": "extender-only"}, "its role is extender-only"),
        ({"kubelet": {"registered": False, "waiting_for": "kubelet.sock"}}, "the plugin waits for kubelet.sock"),
        ({}, "connection refused by the API"),
    ],
)
def test_on_a_box_that_is_not_ready(short_tmp: Path, change: dict[str, Any], words: str) -> None:
    env = fake_kubectl(short_tmp, "echo connection refused by the API >&2; exit 1")
    with plugin(short_tmp, document(**change)) as socket:
        done = edgegpu("demo", "--real", "--socket", socket, "--out", short_tmp / "demo.json", env=env)
    assert done.code == 1
    assert words in done.err
    assert "Traceback" not in done.err
