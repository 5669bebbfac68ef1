"""Changes that are made on a box itself come to its cloud: real agent, mosquitto, controller and installer."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from integration.transactionkit import Bed, install, nothing
from kits.agent import Agent, Cloud, until
from kits.cli import edgegpu

from edgegpu_installer.changes import TransactionKind
from edgegpu_installer.errors import InstallError
from edgegpu_installer.transaction.transaction import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edgegpu_cloud.fleet.history.box_history import MachineChange
    from edgegpu_installer.changes import Deadline


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    made = Cloud(tmp_path_factory.mktemp("changes") / "cloud")
    made.start("mosquitto", "controller")
    yield made
    made.close()


def refuse(_: Deadline) -> None:
    raise InstallError("cannot reach the extender: no answer")


@dataclass
class ChangedBox:
    """A box with its agent, whose machine the installer changes."""

    bed: Bed
    agent: Agent
    cloud: Cloud
    name: str
    made: int = 0

    def change(self, id_: str = "", *, fails: bool = False) -> str:
        """Change the machine by the installer, as a person does with `edgegpu install`; return the change's id."""
        self.made += 1
        id_ = id_ or f"by-hand-{self.made:04}"
        machine = replace(self.bed.machine(), user="alice", version="2.0", transaction_id=id_)
        plan = install(f"good {self.made}\n".encode(), op=TransactionKind.CHANGE)
        run(plan, machine, verify=refuse if fails else nothing)
        return id_

    def changes(self) -> list[MachineChange]:
        return self.cloud.fleet.changes(self.name)

    def shown(self) -> list[str]:
        """The ids of the changes that the box's page shows, oldest first."""
        return [one.transaction.id for one in reversed(self.changes()) if one.transaction is not None]

    def await_shown(self, *ids: str) -> None:
        until(lambda: self.shown() == list(ids), lambda: (self.shown(), self.agent.log))


@pytest.fixture
def box(short_tmp: Path, cloud: Cloud) -> Iterator[ChangedBox]:
    with Agent(short_tmp, machine=secrets.token_hex(16)) as agent:
        name, bed = f"box-{secrets.token_hex(3)}", Bed(short_tmp)
        agent.on_link(cloud, name)
        yield ChangedBox(bed, agent, cloud, name)


def test_a_change_on_the_box_is_shown_with_who_and_how_it_ended(box: ChangedBox) -> None:
    first, second = box.change(), box.change(fails=True)
    box.await_shown(first, second)
    undone, done = (one.transaction for one in box.changes())
    assert done is not None
    assert undone is not None
    assert (done.author, done.user, done.result, done.version) == ("person", "alice", "COMMITTED", "2.0")
    assert (undone.result, undone.why) == ("ROLLED_BACK", "cannot reach the extender: no answer")
    assert 0 < done.began <= done.ended <= undone.ended
    printed = box.cloud.command("box", box.name)
    assert "change 1.0 → 2.0  on the box, by alice  COMMITTED" in printed
    assert "ROLLED_BACK: cannot reach the extender: no answer" in printed
    told = json.loads(box.cloud.command("box", box.name, "--json"))
    assert [one["transaction"]["id"] for one in told["changes"]] == [second, first]
    assert {one["kind"] for one in told["events"]} == {"machine.transaction"}


def test_what_ended_without_the_agent_or_without_the_broker_comes_once_in_order(box: ChangedBox) -> None:
    ids = [box.change()]
    box.await_shown(*ids)
    box.agent.kill()
    ids += [box.change(), box.change()]
    box.agent.start()
    box.await_shown(*ids)
    box.cloud.kill("mosquitto")
    ids += [box.change(), box.change()]
    until(lambda: waiting(box) == 2, lambda: box.agent.log)
    box.agent.kill()
    box.agent.start()
    ids.append(box.change())
    box.cloud.start("mosquitto")
    box.await_shown(*ids)
    box.agent.kill()
    box.agent.start()
    ids.append(box.change())
    box.await_shown(*ids)


def test_a_box_that_is_enrolled_anew_tells_its_changes_again_and_they_are_shown_once(box: ChangedBox) -> None:
    ids = [box.change(), box.change()]
    box.await_shown(*ids)
    (box.agent.root / "etc/edgegpu/cloud-token").write_text(box.cloud.line(box.name, "--for")["token"])
    until(
        lambda: (seen := box.cloud.box(box.name)) is not None and seen.enrolment == 2 and seen.online,
        lambda: box.agent.log,
    )
    ids.append(box.change())
    box.await_shown(*ids)
    until(lambda: waiting(box) == 0, lambda: box.agent.log)
    assert box.shown() == ids


def waiting(box: ChangedBox) -> int:
    """How many events wait for the controller's receipt."""
    status = json.loads(edgegpu("agent", "status", "--json", "--root", box.agent.root).out)
    return int(status["agent"]["events_waiting"])
