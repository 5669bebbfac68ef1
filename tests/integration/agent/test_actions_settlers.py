"""Items settled by the installer as a process: its words are the settlement, and no kill makes it twice."""

from __future__ import annotations

import os
import signal
import socketserver
import threading
import time
from typing import TYPE_CHECKING

import pytest
from integration.settlingkit import die_while, id_of, settle
from kits.acts import Bench, FileNotes, item, wait_for

from edgegpu_agent.ports import ActionStopped
from edgegpu_installer.transaction.journal import TransactionJournal
from edgegpu_sync.messages.spec import AskedItem
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.states import ResultCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATES = ("PREPARED", "SWAPPED", "VERIFYING")
INSTALL = item("sharing", installed=True)
UNINSTALL = item("sharing", installed=False)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "box")


@pytest.fixture
def notes(tmp_path: Path) -> FileNotes:
    return FileNotes(tmp_path / "note")


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (INSTALL, "install --yes"),
        (UNINSTALL, "uninstall --keep-agent --yes"),
        (item("policy", policy="spread"), "install --yes --policy spread"),
        (item("exclusions", cards=["0", "0:1"]), "install --yes --exclude 0 --exclude 0:1"),
        (item("exclusions", cards=[]), "install --yes --exclude none"),
    ],
)
def test_an_item_is_one_transaction_of_its_own_name(bench: Bench, notes: FileNotes, one: AskedItem, words: str) -> None:
    assert settle(bench, one, notes).state is ItemState.APPLIED
    assert bench.said("done") == [f"{words} --json --transaction-id {id_of(notes)}"]
    assert id_of(notes).startswith(f"{one.name}-3-")


@pytest.mark.parametrize(
    "one", [item("policy", policy="spread"), item("exclusions", cards=[]), item("unit_size", mib=512)], ids=str
)
def test_settings_want_sharing_installed(bench: Bench, notes: FileNotes, one: AskedItem) -> None:
    (bench.layout.units / "edgegpu-plugin.service").unlink()
    settlement = settle(bench, one, notes)
    assert (settlement.state, settlement.code) == (ItemState.REJECTED, ResultCode.NOT_INSTALLED)
    assert bench.said("asked") == []


def test_isolation_that_is_so_already_needs_no_installer(bench: Bench, notes: FileNotes) -> None:
    assert settle(bench, item("isolation", mode="limiter"), notes).state is ItemState.APPLIED  # the default
    bench.layout.plugin_yaml.parent.mkdir(parents=True, exist_ok=True)
    for mode in ("none", "mps"):
        bench.layout.plugin_yaml.write_text(f"version: 1\nnode_name: box\nisolation: {{mode: {mode}}}\n")
        assert settle(bench, item("isolation", mode=mode), notes).state is ItemState.APPLIED
    assert bench.said("asked") == []


@pytest.mark.parametrize(
    ("before", "after"), [("none", "limiter"), ("limiter", "none"), ("limiter", "mps"), ("mps", "none")]
)
def test_another_isolation_is_the_installers(bench: Bench, notes: FileNotes, before: str, after: str) -> None:
    bench.layout.plugin_yaml.parent.mkdir(parents=True, exist_ok=True)
    bench.layout.plugin_yaml.write_text(f"version: 1\nnode_name: box\nisolation: {{mode: {before}}}\n")
    assert settle(bench, item("isolation", mode=after), notes).state is ItemState.APPLIED
    (done,) = bench.said("done")
    assert done.startswith(f"install --yes --isolation {after} --json")


def test_what_the_installer_refuses_is_rejected_in_its_words(bench: Bench, notes: FileNotes) -> None:
    bench.tell("refuse", "IN_USE\n")
    settlement = settle(bench, UNINSTALL, notes)
    assert (settlement.state, settlement.code) == (ItemState.REJECTED, ResultCode.PRECHECK)
    assert settlement.text == "cannot uninstall: for a reason\nmend it"


def test_somebody_elses_change_is_waited_for(bench: Bench, notes: FileNotes) -> None:
    bench.tell("refuse", "BUSY\nBUSY\n")
    assert settle(bench, INSTALL, notes).state is ItemState.APPLIED
    assert (len(bench.said("asked")), len(bench.said("done"))) == (3, 1)


@pytest.mark.parametrize(
    ("active", "up_for_s", "times"),
    [("activating", 3_600, 3), ("active", 5, 3), ("active", 3_600, 1), ("failed", 5, 1)],
)
def test_a_refusal_is_not_the_last_word_while_k3s_comes_up(
    bench: Bench, notes: FileNotes, *, active: str, up_for_s: int, times: int
) -> None:
    since = str(int((time.monotonic() - up_for_s) * 1e6))
    bench.unit("k3s.service", ActiveState=active, ActiveEnterTimestampMonotonic=since)
    bench.tell("refuse", "REFUSED\nREFUSED\n")
    state = settle(bench, INSTALL, notes).state
    assert (state, len(bench.said("asked"))) == (ItemState.APPLIED if times == 3 else ItemState.REJECTED, times)


@pytest.mark.parametrize(
    ("end", "code", "restored"),
    [("ROLLED_BACK", ResultCode.ERROR, True), ("INCONSISTENT", ResultCode.INCONSISTENT, False)],
)
def test_what_is_undone_is_failed_and_restored(
    bench: Bench, notes: FileNotes, *, end: str, code: ResultCode, restored: bool
) -> None:
    bench.tell("end", end)
    bench.tell("why", "k3s is not well")
    settlement = settle(bench, INSTALL, notes)
    assert (settlement.state, settlement.code, settlement.restored) == (ItemState.FAILED, code, restored)
    assert settlement.text == "k3s is not well"


def test_an_installer_that_cannot_be_started_is_said(bench: Bench, notes: FileNotes) -> None:
    (bench.fake / "bin/edgegpu").unlink()
    settlement = settle(bench, INSTALL, notes)
    assert (settlement.state, settlement.restored) == (ItemState.FAILED, True)
    assert "No such file" in settlement.text


@pytest.mark.parametrize("hold", ["BEFORE", *STATES, "COMMITTED", "MARKS"])
@pytest.mark.parametrize("one", [INSTALL, item("policy", policy="spread")], ids=["sharing", "policy"])
def test_killed_while_the_installer_works_its_end_is_found(
    bench: Bench, notes: FileNotes, *, one: AskedItem, hold: str
) -> None:
    die_while(bench, one, notes, hold)
    first = id_of(notes)
    release = threading.Timer(0.2, bench.untell, (f"hold-{hold}",))
    release.start()
    assert settle(bench, one, notes).state is ItemState.APPLIED
    release.join()
    by_name = [line for line in bench.said("done") if line.endswith(first)]
    assert len(by_name) == 1
    assert len(bench.said("done")) == (2 if one is INSTALL else 1)  # sharing once more, for the marks


@pytest.mark.parametrize("hold", [*STATES, "BEFORE", "COMMITTED"])
def test_killed_with_the_installer_it_is_what_the_journal_says(bench: Bench, notes: FileNotes, *, hold: str) -> None:
    one = item("policy", policy="spread")
    die_while(bench, one, notes, hold)
    first = id_of(notes)
    os.kill(bench.installer_pid(), signal.SIGKILL)
    bench.untell(f"hold-{hold}")
    undo = threading.Timer(0.2, rolled_back, (bench, first))
    if hold in STATES:
        undo.start()
    settlement = settle(bench, one, notes)
    if hold in STATES:
        assert (settlement.state, settlement.restored) == (ItemState.FAILED, True)
        assert settlement.text == "its author died"
        undo.join()
    else:
        assert settlement.state is ItemState.APPLIED
    assert [line.endswith(first) for line in bench.said("done")] == [True]


def rolled_back(bench: Bench, id_: str) -> None:
    """Do as edgegpu-recover does."""
    path = bench.layout.tx / "state"
    journal = TransactionJournal(bench.layout.tx)
    journal.log(f"{id_} install ROLLED_BACK its author died")
    lines = [line for line in path.read_text().splitlines() if not line.startswith(("state=", "why="))]
    new = path.with_name("new")
    new.write_text("\n".join([*lines, "state=ROLLED_BACK", "why=its author died", ""]))
    new.rename(path)


def test_killed_before_the_installer_was_started_it_is_begun(bench: Bench, notes: FileNotes) -> None:
    notes.write({"transaction": "sharing-3-abcdefgh", "done": False})
    assert settle(bench, INSTALL, notes).state is ItemState.APPLIED
    assert bench.said("done") == ["install --yes --json --transaction-id sharing-3-abcdefgh"]


def test_an_installer_that_dies_without_a_word_is_begun_once_more(bench: Bench, notes: FileNotes) -> None:
    bench.tell("hold-BEFORE")
    found: list[Settlement] = []
    thread = threading.Thread(target=lambda: found.append(settle(bench, INSTALL, notes)))
    thread.start()
    for count in (1, 2):
        wait_for(lambda wanted=count: len(bench.said("asked")) == wanted)  # type: ignore[misc]
        os.kill(bench.installer_pid(), signal.SIGKILL)
    thread.join()
    assert (found[0].state, found[0].code, found[0].restored) == (ItemState.FAILED, ResultCode.ERROR, True)
    assert bench.said("done") == []


def test_after_a_crash_a_refusal_takes_nothing_back(bench: Bench, notes: FileNotes) -> None:
    die_while(bench, INSTALL, notes, "MARKS")
    os.kill(bench.installer_pid(), signal.SIGKILL)
    bench.untell("hold-MARKS")
    bench.tell("refuse", "REFUSED\n" * 2)
    assert settle(bench, INSTALL, notes).state is ItemState.APPLIED
    assert len(bench.said("done")) == 2


def test_the_agent_ends_and_the_installer_goes_on(bench: Bench, notes: FileNotes) -> None:
    bench.tell("hold-SWAPPED")

    def end() -> None:
        bench.comes("at-SWAPPED")
        bench.stop.set()

    stop = threading.Thread(target=end)
    stop.start()
    with pytest.raises(ActionStopped):
        settle(bench, INSTALL, notes)
    stop.join()
    bench.untell("hold-SWAPPED")
    bench.comes("at-MARKS")
    assert str(TransactionJournal(bench.layout.tx).state_of(id_of(notes))) == "COMMITTED"


# --- unit size


@pytest.fixture
def plugin(bench: Bench) -> Iterator[list[str]]:
    """A plugin on its socket; its rows of pods, as JSON."""
    pods: list[str] = []
    path = bench.layout.plugin_socket
    path.parent.mkdir(parents=True)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            rows = f'"cards": [{{"healthy": true}}], "pods": [{",".join(pods)}]'
            body = f'{{"v": 1, "version": "1", "unit_mib": 256, {rows}, "kubelet": {{"registered": true}}}}'
            self.wfile.write(f"HTTP/1.0 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield pods
        server.shutdown()
        thread.join()


def test_another_unit_is_set_where_nobody_holds_shares(bench: Bench, notes: FileNotes, plugin: list[str]) -> None:
    assert settle(bench, item("unit_size", mib=256), notes).state is ItemState.APPLIED
    assert bench.said("asked") == []
    plugin.append('{"namespace": "n", "pod": "p", "state": "allocated"}')
    settlement = settle(bench, item("unit_size", mib=512), notes)
    assert (settlement.state, settlement.code) == (ItemState.REJECTED, ResultCode.PRECHECK)
    assert "n/p" in settlement.text
    plugin.clear()
    assert settle(bench, item("unit_size", mib=512), notes).state is ItemState.APPLIED
    assert bench.said("done")[0].startswith("install --yes --unit-mib 512")


def test_without_the_plugins_word_the_unit_stays(bench: Bench, notes: FileNotes) -> None:
    settlement = settle(bench, item("unit_size", mib=512), notes)
    assert (settlement.state, settlement.code) == (ItemState.REJECTED, ResultCode.PRECHECK)
