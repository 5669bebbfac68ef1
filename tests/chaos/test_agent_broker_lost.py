"""A broker that dies three times and forgets all, with work under way: real mosquitto, controller and agent."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from kits.agent import Agent, Cloud, until
from kits.cli import document, edgegpu, plugin

from edgegpu_sync.messages.spec import Exclusions, Spec
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edgegpu_sync.ids import CommandId

pytestmark = pytest.mark.chaos

HALL = "hall"
LOSSES = 3
RESTART, REFRESH = "plugin.restart", "inventory.refresh"

HELD = 'while [ -e "$BOX/hold" ]; do sleep 0.02; done'
SYSTEMCTL = f"""\
case "$1" in
show)
    printf 'LoadState=loaded\\nActiveState=active\\nSubState=running\\nResult=success\\nNRestarts=0\\nJob=\\n'
    printf 'InvocationID=%s\\n' "$(wc -l < "$BOX/restarted")"
    printf 'InactiveExitTimestampMonotonic=1\\nActiveEnterTimestampMonotonic=2\\n' ;;
restart)
    echo begun >> "$BOX/begun"
    {HELD}
    echo done >> "$BOX/restarted" ;;
esac
"""
INSTALLER = """\
echo "$@" >> "$BOX/installed"
echo '{"state": "COMMITTED", "changed": true}'
"""


class HeldBox(Agent):
    """A box with sharing installed; restarts of its plugin do not come to their end while it is held."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        units = root / "etc/systemd/system"
        units.mkdir(parents=True)
        (units / "edgegpu-plugin.service").touch()
        for ledger in ("begun", "restarted", "installed"):
            (root / ledger).touch()
        self.program("systemctl", SYSTEMCTL)
        self.program("edgegpu", INSTALLER)

    def lines(self, ledger: str) -> list[str]:
        return (self.root / ledger).read_text().splitlines()

    @property
    def at_work(self) -> bool:
        return len(self.lines("begun")) > len(self.lines("restarted"))

    def hold(self) -> None:
        (self.root / "hold").touch()

    def release(self) -> None:
        (self.root / "hold").unlink()


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(tmp_path / "cloud")
    made.start("mosquitto", "controller")
    yield made
    made.close()


@pytest.fixture
def box(short_tmp: Path) -> Iterator[HeldBox]:
    with HeldBox(short_tmp) as made:
        yield made


class Asked:
    """What was asked, by the controller's own words."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.commands: dict[CommandId, str] = {}
        self.rev = 0

    def command(self, op: str) -> None:
        self.commands[self.cloud.fleet.command(HALL, op, {})] = op

    def exclude(self) -> None:
        """Desire that another card is left out, one that no revision before has named."""
        card = f"GPU-{self.rev + 1}"
        self.rev = self.cloud.fleet.set_spec(HALL, lambda _: Spec(exclusions=Exclusions(rev=0, cards=(card,))))

    @property
    def births(self) -> int:
        return self.cloud.fleet.details(HALL).latest[TopicKind.STATUS].stamp.epoch.count

    @property
    def converged(self) -> bool:
        view = self.cloud.fleet.box(HALL)
        return not view.open_commands and view.applied_rev == view.observed_rev == view.rev == self.rev


def test_three_losses_of_the_broker_lose_and_double_nothing(cloud: Cloud, box: HeldBox) -> None:
    box.belongs(cloud.line(HALL))
    cloud.serves()
    box.start()
    cloud.online(HALL)
    asked = Asked(cloud)
    with plugin(box.root / "run/edgegpu", document()):
        for _ in range(LOSSES):
            lose_the_broker(cloud, box, asked)
        until(lambda: asked.converged, lambda: (cloud.fleet.commands(HALL), cloud.box(HALL)))
    check_commands(cloud, box, asked)
    assert cloud.fleet.box(HALL).items["exclusions"].state is ItemState.APPLIED
    excluded = Counter(line.partition("--exclude ")[2].partition(" ")[0] for line in box.lines("installed"))
    assert set(excluded.values()) == {1}, excluded
    assert f"GPU-{asked.rev}" in excluded
    assert "ERROR" not in box.log


def lose_the_broker(cloud: Cloud, box: HeldBox, asked: Asked) -> None:
    """Lose it while a restart is under way and more was asked, and ask again while it is away."""
    births = asked.births
    box.hold()
    asked.command(RESTART)
    until(lambda: box.at_work, lambda: box.log)
    asked.command(REFRESH)
    asked.exclude()
    cloud.forget()
    asked.command(RESTART)
    asked.exclude()
    box.release()
    cloud.start("mosquitto")
    until(lambda: asked.births > births, lambda: box.log)


def check_commands(cloud: Cloud, box: HeldBox, asked: Asked) -> None:
    """Hold what the controller was told against the box's journal, and against what was really done."""
    told = json.loads(edgegpu("journal", "--limit", "2000", "--json", "--root", box.root).out)["lines"]
    ends = Counter(
        (line["about"], line["state"])
        for line in told
        if line["kind"] == "command" and CommandState(line["state"]).terminal
    )
    assert ends == {(id_, "SUCCEEDED"): 1 for id_ in asked.commands}
    for id_ in asked.commands:
        heard = [line.state for line in cloud.fleet.one_command(id_).history if line.state.terminal]
        assert heard == [CommandState.SUCCEEDED], id_
    restarts = sum(op == RESTART for op in asked.commands.values())
    assert len(box.lines("restarted")) == len(box.lines("begun")) == restarts == 2 * LOSSES
