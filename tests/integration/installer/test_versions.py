"""Agent and controller one version apart, either way: the real worker under the real controller; and their journals."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from kits.version import Pair, Version, newer, older, same
from kits.workercontroller import CONTROLLER, DEVICE, REFRESH

from edgegpu_cloud.errors import CloudError
from edgegpu_sync.signing import Signer
from edgegpu_sync.states import ResultCode
from edgegpu_sync.topics import TopicKind, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edgegpu_sync.wire import Json


@contextmanager
def pair(folder: Path, *, says: Version = same, hears: Version = same) -> Iterator[Pair]:
    made = Pair(folder, says=says, hears=hears)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("says", "hears"),
    [(older, same), (newer, same), (same, older), (same, newer), (older, newer), (newer, older)],
    ids=["old agent", "new agent", "old controller", "new controller", "both, agent older", "both, agent newer"],
)
def test_one_version_apart_everything_that_both_know_is_done(tmp_path: Path, says: Version, hears: Version) -> None:
    with pair(tmp_path, says=says, hears=hears) as here:
        assert here.ends(here.fleet.command("box", REFRESH, {})) == ("SUCCEEDED", "")
        assert here.ends(here.fleet.install("box")) == ("SUCCEEDED", "")
        assert here.ends(here.fleet.uninstall("box")) == ("SUCCEEDED", "")
        assert here.settled(2)["sharing"] == ("Applied", "")
        here.box.box.worker.send_event("x.y", "an event", level="alarm")
        here.bed.until(lambda: bool(here.fleet.events("box")))
        here.bed.until(lambda: here.box.box.worker.status().events_waiting == 0)
        assert (here.refused, here.box.refused) == ({}, {})
        assert not here.fleet.box("box").restored
        with here.bed.store.read() as tx:
            assert tx.conditions.without_one_result_topic() == (["box"] if says is older else [])


def test_what_a_newer_controller_wants_is_done_item_by_item_as_far_as_it_is_known(tmp_path: Path) -> None:
    with pair(tmp_path) as here:
        spec: Json = {
            "sharing": {"rev": 1, "installed": True, "channel": "beta"},
            "isolation": {"rev": 1, "mode": "vgpu"},
            "policy": {"rev": 1, "policy": "spread", "weight": 3, "critical": ["weight"]},
            "mig": {"rev": 1, "profile": "1g.10gb"},
            "power": {"rev": 1, "watts": 200},
            "critical": ["power"],
        }
        found = here.settled(here.desire(spec))
        assert found["sharing"] == ("Applied", ""), "a field that nobody has to know"
        assert found["isolation"][0] == "Unsupported", "a value that is not known"
        assert found["policy"] == ("Unsupported", "this agent does not know weight")
        assert found["power"] == ("Unsupported", "this agent does not know it")
        assert "mig" not in found, "one that nobody has to know is passed over"
        assert here.box.box.world.installed


def test_what_a_newer_controller_asks_and_the_agent_does_not_know_ends_at_once(tmp_path: Path) -> None:
    def with_more(kind: TopicKind, body: Json) -> Json:
        return {**body, "args": {**asked, "critical": list(asked)}} if kind is TopicKind.COMMAND else body

    asked: Json = {}
    with pair(tmp_path, hears=with_more) as here:
        topic = f"edgegpu/v1/{DEVICE}/down/later"
        sealed = Signer.of(CONTROLLER).seal(parse(f"edgegpu/v1/{DEVICE}/down/receipt"), b'{"v":1}')
        here.box.hear(topic, sealed)
        assert here.box.refused == {"UnknownTopic": 1}
        asked["deep"] = True
        assert here.ends(here.fleet.command("box", REFRESH, {})) == ("REJECTED", ResultCode.UNSUPPORTED)
        asked.clear()
        assert here.ends(here.fleet.command("box", "k3s.restart", {})) == ("SUCCEEDED", "")
        assert not here.box.box.world.refreshed_by


def test_an_op_of_a_newer_agent_can_be_asked_for_and_ends(tmp_path: Path) -> None:
    """What this controller does not know goes as it is; what the box has not published is refused here."""

    def with_op(_: TopicKind, body: Json) -> Json:
        known = body.get("capabilities")
        return {**body, "capabilities": [*known, "cards.reset"]} if isinstance(known, list) else body

    with pair(tmp_path, says=with_op) as here:
        with pytest.raises(CloudError, match="neither this controller nor box knows it"):
            here.fleet.command("box", "cards.polish", {})
        state, code = here.ends(here.fleet.command("box", "cards.reset", {"cards": ["0"]}))
        assert (state, code) == ("REJECTED", ResultCode.UNKNOWN_OP)  # the worker behind this wire is not newer in truth


def test_kinds_and_wants_of_another_version_are_counted_or_passed_over(tmp_path: Path) -> None:
    with pair(
        tmp_path, hears=lambda _, body: {**body, "ask": ["topology", "reported"]} if "ask" in body else body
    ) as here:
        here.bed.network.up.append((f"edgegpu/v1/{DEVICE}/up/topology", b"s1 x y\n{}", False))
        here.bed.settle(2)
        assert here.refused == {"UnknownTopic": 1}
        assert here.ends(here.fleet.command("box", REFRESH, {})) == ("SUCCEEDED", "")


@pytest.mark.parametrize("side", ["agent", "controller"])
def test_another_v_is_refused_whole_and_harms_nothing(tmp_path: Path, side: str) -> None:
    """A version of the whole protocol is another protocol: refused and counted, and all is as it was."""
    later = {"v": 1}

    def speaks(_: TopicKind, body: Json) -> Json:
        return {**body, **later}

    given = {"says": speaks} if side == "agent" else {"hears": speaks}
    with pair(tmp_path, **given) as here:
        assert here.ends(here.fleet.install("box")) == ("SUCCEEDED", "")
        later["v"] = 2
        id_ = here.fleet.command("box", REFRESH, {})
        here.bed.settle(60, step_s=5)
        assert not here.fleet.one_command(id_).ended
        assert "UnknownVersion" in (here.refused if side == "agent" else here.box.refused)
        later["v"] = 1
        assert here.ends(id_) == ("SUCCEEDED", "")
        assert sum(here.box.box.world.refreshed_by.values()) == 1
