"""`edgegpu demo`: what a box must have for it, and where the simulated one is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from kits.cli import document, edgegpu, plugin


def test_without_real_it_says_where_the_simulated_one_is(tmp_path: Path) -> None:
    out = tmp_path / "demo.json"
    done = edgegpu("demo", "--out", out)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [
        "edgegpu: cannot run on simulated cards: what stands in for a card is not installed with edgegpu",
        "  sudo edgegpu demo --real runs on this box's own; in the repository: make demo",
    ]
    said = edgegpu("demo", "--json")
    assert (said.code, set(json.loads(said.out))) == (1, {"error", "remedy"})
    assert not out.exists()


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = edgegpu("demo", "--real", "--policy", "nonsense", "--json", "--out", tmp_path / "file" / "demo.json")
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


def test_a_demo_writes_no_file_that_was_not_asked_for(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs to its end, where the list is written: a cluster that takes no service is a thing that was wrong."""
    env = fake_kubectl(
        short_tmp, """[ "$1" != apply ] || { echo no service today >&2; exit 1; }; echo '{"items": []}'"""
    )
    here, out = short_tmp / "here", short_tmp / "demo.json"
    here.mkdir()
    monkeypatch.chdir(here)
    with plugin(short_tmp, document()) as socket:
        plain = edgegpu("demo", "--real", "--socket", socket, env=env)
        asked = edgegpu("demo", "--real", "--socket", socket, "--out", out, env=env)
    assert (plain.code, plain.out.splitlines()[-1]) == (1, "1 thing was wrong"), plain
    assert list(here.iterdir()) == []
    assert (asked.code, asked.out.splitlines()[-1]) == (1, f"1 thing was wrong; {out} has the list"), asked
    assert json.loads(out.read_text()) == []
