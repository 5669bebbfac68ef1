"""The demo's box is asked what its containers see: the real command line over the simulated container runtime."""

from __future__ import annotations

import json

import pytest

from edgegpu_agent.demo.model import DemoService
from edgegpu_agent.demo.plan import CARD_8G_MIB
from edgegpu_agent.demo.stage import DemoStage
from edgegpu_sim.demo.box import box
from edgegpu_sim.demo.embedded import embedded
from edgegpu_sim.demo.processes import Processes

pytestmark = pytest.mark.usefixtures("simdriver_build")


def test_a_container_of_the_demo_prints_the_card_that_it_has() -> None:
    with embedded((CARD_8G_MIB, CARD_8G_MIB), policy="spread") as bed, Processes(bed.folder, {}) as processes:
        stage = DemoStage(bed=bed, scenario="evidence", say=lambda _: None, clock=lambda: 0.0)
        for name in ("one", "two"):
            stage.run(DemoService(name, 20))
        with box(bed, processes, lambda _: None) as there:
            status, text = there.answer("edgegpu", ["pods", "--evidence", "--json"])
            assert status == 0, text
            rows = json.loads(text)["pods"]
            assert [row["evidence"]["verdict"] for row in rows] == ["own", "own"]
            cards = [row["cards"][0]["uuid"] for row in rows]
            assert len(set(cards)) == 2
            for row, uuid in zip(rows, cards, strict=True):
                assert row["evidence"]["lines"] == bed.sees(bed.pods(row["pod"].split("-")[0])[0]).strip()
                assert f"UUID: {uuid}" in row["evidence"]["lines"]
            one = rows[0]["uid"]
            _, text = there.answer("edgegpu", ["pods", "--evidence", "--json", f"--uid={one}"])
            assert [row["uid"] for row in json.loads(text)["pods"]] == [one]
            bed.stop()
            status, text = there.answer("edgegpu", ["pods", "--evidence", "--json"])
            assert "error" in json.loads(text), text
