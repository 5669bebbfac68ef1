"""An upgrade stands when its agent is as well as the one before it; else all is put back, the agent among it."""

from __future__ import annotations

import json
import os
import signal
import socketserver
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from integration.previewkit import never, release
from integration.transactionkit import ROOT, Bed
from kits.facts import FakeBox

from edgegpu_installer.changes import FileChange, Plan, TransactionKind
from edgegpu_installer.install import Installation
from edgegpu_installer.layout import AGENT_UNIT, CURRENT, UNITS
from edgegpu_installer.plan.site import InstallOptions, site_of
from edgegpu_installer.transaction.journal import TransactionJournal
from edgegpu_installer.transaction.prepare import TransactionMachine
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_installer.transaction.transaction import TransactionOutcome, resume, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OLD, NEW = "1.0", "2.0"
UPGRADE = Plan(
    TransactionKind.UPGRADE,
    (FileChange(CURRENT, link_to=NEW), FileChange(f"{UNITS}/{AGENT_UNIT}", content=b"[Service]\n")),
    start=(AGENT_UNIT,),
)
DIES = r"""#!/bin/sh
# Stands in for systemd: the agent of 2.0 is up at first, and has ended again each time that somebody looks.
[ "$1 $2" = "restart --" ] || [ "$(readlink "$FAKE_SYSTEMD/../opt/edgegpu/current")" = 1.0 ] || {
    count=$(($(cat "$FAKE_SYSTEMD/ends" 2> /dev/null || echo 0) + 1))
    case "$*" in
    *edgegpu-agent*)
        echo "$count" > "$FAKE_SYSTEMD/ends"
        state='ActiveState=active\nInvocationID=again%s\nNRestarts=%s\n'
        printf "$state" "$count" "$count" > "$FAKE_SYSTEMD/units/edgegpu-agent.service" ;;
    esac
}
exec "$REAL_SYSTEMCTL" "$@"
"""


@dataclass
class Agents:
    """Who answers on agent.sock, by the version that the link leads to: what each says, or nothing."""

    root: Path
    says: dict[str, Callable[[], dict[str, object] | None]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def answer(self) -> bytes:
        version = str((self.root / "opt/edgegpu/current").readlink())
        self.asked.append(version)
        said = self.says.get(version, lambda: None)()
        if said is None:
            return b""
        body = json.dumps({"version": 1, "agent": version} | said).encode()
        return b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@contextmanager
def listening(agents: Agents) -> Iterator[None]:
    path = agents.root / "run/edgegpu/agent.sock"
    path.parent.mkdir(parents=True)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(agents.answer())

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield
        server.shutdown()
        thread.join()


def linked(*, up: bool = True) -> Callable[[], dict[str, object]]:
    return lambda: {"connected": up, "why_down": "" if up else "no route to the broker"}


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    made = Bed(tmp_path / "box")
    made.set_unit(AGENT_UNIT, "active", start="old")
    (made.root / "etc/systemd/system" / AGENT_UNIT).write_text("[Service]\n# old\n")
    return made


@pytest.fixture
def agents(bed: Bed) -> Iterator[Agents]:
    made = Agents(bed.root, {OLD: linked(), NEW: linked()})
    with listening(made):
        yield made


def machine(bed: Bed) -> TransactionMachine:
    return replace(bed.machine(), version=NEW, agent_steady_s=0.05, agent_within_s=30.0)


def upgrade(bed: Bed, *, within_s: float = 30.0) -> TransactionOutcome:
    return run(UPGRADE, replace(machine(bed), agent_within_s=within_s), verify=lambda _: None)


def stands(bed: Bed, version: str) -> bool:
    return str((bed.root / "opt/edgegpu/current").readlink()) == version


def put_back(bed: Bed, outcome: TransactionOutcome) -> bool:
    unit = (bed.root / "etc/systemd/system" / AGENT_UNIT).read_text()
    restarts = bed.calls(f"restart -- {AGENT_UNIT}"), bed.calls(f"restart {AGENT_UNIT}")
    assert all(restarts), "the new agent and the old one were started"
    assert bed.unit(AGENT_UNIT) == "active"
    return outcome.state is TransactionState.ROLLED_BACK and stands(bed, OLD) and "# old" in unit


def test_an_agent_that_is_as_well_as_the_old_one_stays(bed: Bed, agents: Agents) -> None:
    assert upgrade(bed) == TransactionOutcome(TransactionState.COMMITTED, changed=True)
    assert stands(bed, NEW)
    assert set(agents.asked) == {OLD, NEW}
    record = TransactionJournal(bed.layout.tx).read()
    assert record is not None
    assert record.agent == "linked"


def test_an_agent_that_ends_again_and_again_is_put_back(bed: Bed, agents: Agents, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "systemctl").write_text(DIES)
    (folder / "systemctl").chmod(0o755)
    box = machine(bed)
    real = ROOT / "tests/integration/fakebin/systemctl"
    box.system.environment.update(REAL_SYSTEMCTL=str(real), PATH=f"{folder}:{box.system.environment['PATH']}")
    outcome = run(UPGRADE, box, verify=lambda _: None)
    assert put_back(bed, outcome)
    assert "edgegpu-agent 2.0 ends again and again" in outcome.why
    assert agents.asked


def test_an_agent_that_does_not_answer_is_put_back(bed: Bed, agents: Agents) -> None:
    del agents.says[NEW]
    outcome = upgrade(bed, within_s=0.1)
    assert put_back(bed, outcome)
    assert "does not answer on agent.sock" in outcome.why


def test_an_agent_whose_link_does_not_come_back_is_put_back(bed: Bed, agents: Agents) -> None:
    agents.says[NEW] = linked(up=False)
    outcome = upgrade(bed, within_s=0.1)
    assert put_back(bed, outcome)
    assert "not on the link again, where the one before it was: no route to the broker" in outcome.why


def test_a_link_that_was_down_before_is_not_asked_for(bed: Bed, agents: Agents) -> None:
    agents.says = {OLD: linked(up=False), NEW: linked(up=False)}
    assert upgrade(bed).state is TransactionState.COMMITTED
    agents.says.clear()


def test_a_link_that_comes_back_later_is_waited_for(bed: Bed, agents: Agents) -> None:
    agents.says[NEW] = lambda: {"connected": agents.asked.count(NEW) > 1}
    assert upgrade(bed).state is TransactionState.COMMITTED
    assert agents.asked.count(NEW) > 1


def test_another_version_that_answers_is_none(bed: Bed, agents: Agents) -> None:
    agents.says[NEW] = lambda: {"connected": True, "agent": "1.9"}
    outcome = upgrade(bed, within_s=0.1)
    assert put_back(bed, outcome)
    assert "says that it is of version 1.9" in outcome.why


def test_where_none_answered_before_it_has_to_run_on(bed: Bed) -> None:
    assert upgrade(bed).state is TransactionState.COMMITTED
    record = TransactionJournal(bed.layout.tx).read()
    assert record is not None
    assert record.agent == ""


def test_an_agent_is_not_well_before_it_has_run_for_long_enough(bed: Bed, agents: Agents) -> None:
    outcome = run(UPGRADE, replace(machine(bed), agent_steady_s=60.0, agent_within_s=0.2), verify=lambda _: None)
    assert put_back(bed, outcome)
    assert "has not run for 60 s in one piece" in outcome.why
    assert agents.asked


@pytest.mark.parametrize(("up", "end"), [(True, TransactionState.COMMITTED), (False, TransactionState.ROLLED_BACK)])
def test_who_finishes_it_for_a_dead_author_looks_too(
    bed: Bed, agents: Agents, *, up: bool, end: TransactionState
) -> None:
    agents.says[NEW] = linked(up=up)
    pid = os.fork()
    if pid == 0:
        try:
            run(UPGRADE, machine(bed), verify=lambda _: os.kill(os.getpid(), signal.SIGKILL))
        finally:
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    bed.recover("check", "k3s")  # a start of k3s writes the record anew
    outcome = resume(replace(machine(bed), agent_within_s=30.0 if up else 0.1), verify=lambda _: None)
    assert outcome is not None
    assert outcome.state is end
    assert stands(bed, NEW if up else OLD)


def test_the_version_before_stays_for_going_back_and_no_older_one(bed: Bed, tmp_path: Path) -> None:
    facts = FakeBox(tmp_path / "facts")
    facts.k3s()
    site = site_of(facts.facts())
    for folder in ("usr/local/bin", "etc/systemd/system/multi-user.target.wants"):
        (bed.root / folder).mkdir(parents=True)
    for version in ("0.9", OLD, NEW, "3.0"):
        (bed.root / "opt/edgegpu" / version / "bin").mkdir(parents=True)

    def versions_after(version: str) -> set[str]:
        made = Installation(
            site=site,
            options=InstallOptions(agent_only=True),
            release=replace(release(), version=version),
            machine=replace(machine(bed), version=version),
            verifier=never,
        )
        outcome = made.run().outcome
        assert outcome == TransactionOutcome(TransactionState.COMMITTED, changed=True)
        assert stands(bed, version)
        return {path.name for path in (bed.root / "opt/edgegpu").iterdir()} - {"current"}

    assert versions_after(NEW) == {OLD, NEW}
    (bed.root / "opt/edgegpu/3.0").mkdir()
    assert versions_after("3.0") == {NEW, "3.0"}
