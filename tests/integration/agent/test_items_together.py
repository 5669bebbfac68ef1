"""Sharing and its settings in one document are one state, in whichever order they were asked for."""

from __future__ import annotations

import json
import os
import signal
import socketserver
import subprocess
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from integration.settlingkit import die_while, id_of, settle
from kits.acts import EDGEGPU, Bench, FileNotes, item
from kits.worker import Box, Wire, fast_folder, wired

from edgegpu_agent.actions.registry import standard_settlers
from edgegpu_agent.actions.settlers import SharingOfBox
from edgegpu_installer.transaction.lock import LOCK, locked
from edgegpu_sync.messages.spec import AskedItem, Exclusions, PolicyItem, Sharing, Spec, UnitSize
from edgegpu_sync.messages.uplink import Condition, ItemState
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.states import ResultCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edgegpu_agent.ports import Settlers, SharingProbe

YAML = "/etc/edgegpu/plugin.yaml"
PLUGIN = "/etc/systemd/system/edgegpu-plugin.service"
TURNS = f"""\
    unit=$FAKE_ROOT{PLUGIN}
    case "$verb $end" in
    "uninstall COMMITTED") rm "$unit" ;;
    "install COMMITTED") : > "$unit" ;;
    esac
    at "$end"
"""
COMES_AND_GOES = EDGEGPU.replace('    at "$end"\n', TURNS)


@dataclass
class RealBox(Box):
    """A worker whose settlers are a real box's, over a stand-in of the installer."""

    bench: Bench | None = None

    def settlers(self) -> Settlers:
        assert self.bench is not None
        return standard_settlers(self.bench.box())

    def sharing(self) -> SharingProbe:
        assert self.bench is not None
        return SharingOfBox(self.bench.layout)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A box without sharing."""
    made = Bench(tmp_path / "box")
    made.program(made.fake / "bin/edgegpu", COMES_AND_GOES)
    made.layout.at(PLUGIN).unlink()
    return made


@pytest.fixture
def plugin(bench: Bench) -> Iterator[None]:
    """It answers in the units that it was installed with; pods that waited have shares at once."""
    path = bench.layout.plugin_socket
    path.parent.mkdir(parents=True)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            unit_mib = 1024 if "--unit-mib 1024" in bench.said("done")[0] else 256
            pods = [{"namespace": "n", "pod": "p", "state": "allocated"}]
            body = json.dumps({"version": "1", "unit_mib": unit_mib, "pods": pods}).encode()
            self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield
        server.shutdown()
        thread.join()


@pytest.fixture
def wire(bench: Bench) -> Iterator[Wire]:
    with fast_folder() as folder:
        made = wired(RealBox(folder, bench=bench))
        yield made
        made.box.crash()


def settings(rev: int) -> Spec:
    return Spec(
        policy=PolicyItem(rev=rev, policy="spread"),
        exclusions=Exclusions(rev=rev, cards=("0",)),
        unit_size=UnitSize(rev=rev, mib=1024),
    )


def states(wire: Wire) -> dict[str, ItemState]:
    assert wire.controller.reported is not None
    return {name: item.state for name, item in wire.controller.reported.items.items()}


def desire(wire: Wire, spec: Spec) -> dict[str, ItemState]:
    wire.controller.desire(spec)
    wire.down += wire.controller.desired_message()
    wire.exchange()
    return states(wire)


def by_hand(bench: Bench, *words: str) -> None:
    """Run the command line as a person does."""
    program = bench.fake / "bin/edgegpu"
    subprocess.run(
        [program, *words, "--transaction-id", f"by-hand-{len(bench.said('done'))}"],
        env=bench.env,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def words(bench: Bench) -> list[str]:
    return [line.split(" --json")[0] for line in bench.said("done")]


ALL = dict.fromkeys(("sharing", "policy", "exclusions", "unit_size"), ItemState.APPLIED)


@pytest.mark.usefixtures("plugin")
def test_settings_that_came_before_sharing_are_not_lost(wire: Wire, bench: Bench) -> None:
    assert set(desire(wire, settings(1)).values()) == {ItemState.REJECTED}
    assert words(bench) == []
    assert desire(wire, settings(1).model_copy(update={"sharing": Sharing(rev=2, installed=True)})) == ALL
    assert words(bench)[0] == SET_UP
    assert wire.controller.reported is not None
    assert wire.controller.reported.applied_rev == 2


@pytest.mark.usefixtures("plugin")
def test_a_box_that_was_imaged_anew_comes_up_as_its_document_says(wire: Wire, bench: Bench) -> None:
    assert desire(wire, settings(1).model_copy(update={"sharing": Sharing(rev=1, installed=True)})) == ALL
    assert words(bench)[0] == SET_UP


@pytest.mark.usefixtures("plugin")
def test_sharing_first_and_settings_later_are_settled_each_by_itself(wire: Wire, bench: Bench) -> None:
    sharing = Sharing(rev=1, installed=True)
    assert desire(wire, Spec(sharing=sharing)) == {"sharing": ItemState.APPLIED}
    later = desire(wire, settings(2).model_copy(update={"sharing": sharing}))
    assert later == ALL | {"unit_size": ItemState.REJECTED}  # a pod holds shares
    assert words(bench) == ["install --yes", "install --yes --policy spread", "install --yes --exclude 0"]


@pytest.mark.usefixtures("plugin")
def test_sharing_that_goes_takes_its_settings_along_and_brings_them_back(wire: Wire, bench: Bench) -> None:
    wanted = settings(1)
    assert desire(wire, wanted.model_copy(update={"sharing": Sharing(rev=1, installed=True)})) == ALL
    gone = desire(wire, wanted.model_copy(update={"sharing": Sharing(rev=2, installed=False)}))
    assert gone == dict.fromkeys(ALL, ItemState.REJECTED) | {"sharing": ItemState.APPLIED}
    assert wire.controller.reported is not None
    assert wire.controller.reported.items["exclusions"].code == ResultCode.NOT_INSTALLED
    assert wire.controller.reported.applied_rev == 2
    told = [(line.about, line.state) for line in wire.box.journal.history(4)]
    assert told[-1] == ("sharing", "Applied")  # the newest stands first
    assert {about for about, state in told if state == "Rejected"} == {"policy", "exclusions", "unit_size"}
    before = len(words(bench))
    assert desire(wire, wanted.model_copy(update={"sharing": Sharing(rev=3, installed=True)})) == ALL
    assert words(bench)[before] == SET_UP


@pytest.mark.usefixtures("plugin")
def test_settings_stand_while_sharing_that_should_go_is_put_back(wire: Wire, bench: Bench) -> None:
    assert desire(wire, settings(1).model_copy(update={"sharing": Sharing(rev=1, installed=True)})) == ALL
    bench.tell("end", "ROLLED_BACK")
    stays = desire(wire, settings(1).model_copy(update={"sharing": Sharing(rev=2, installed=False)}))
    assert stays == ALL | {"sharing": ItemState.FAILED}


def arrives(wire: Wire, spec: Spec) -> None:
    """A revision comes, and its first item is begun; what it does is done when the executor runs."""
    wire.controller.desire(spec)
    for topic, payload in wire.controller.desired_message():
        wire.box.arrive(topic, payload)


GONE = dict.fromkeys(("policy", "exclusions", "unit_size"), ItemState.REJECTED)


@pytest.mark.usefixtures("plugin")
def test_settings_do_not_stand_where_an_uninstall_was_superseded_and_the_install_put_back(
    wire: Wire, bench: Bench
) -> None:
    assert desire(wire, settings(1).model_copy(update={"sharing": Sharing(rev=1, installed=True)})) == ALL
    arrives(wire, settings(1).model_copy(update={"sharing": Sharing(rev=2, installed=False)}))
    arrives(wire, settings(1).model_copy(update={"sharing": Sharing(rev=3, installed=True)}))
    assert wire.box.executor.run(), "the uninstall had begun"
    assert not bench.layout.has_sharing
    bench.tell("end", "ROLLED_BACK")
    wire.exchange()
    assert states(wire) == GONE | {"sharing": ItemState.FAILED}


@pytest.mark.usefixtures("plugin")
def test_settings_do_not_stand_where_nobody_asks_for_sharing_any_more(wire: Wire, bench: Bench) -> None:
    assert desire(wire, settings(1).model_copy(update={"sharing": Sharing(rev=1, installed=True)})) == ALL
    arrives(wire, settings(1).model_copy(update={"sharing": Sharing(rev=2, installed=False)}))
    assert wire.box.executor.jobs
    assert desire(wire, settings(1)) == GONE
    assert not bench.layout.has_sharing


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("installed", [True, None])
def test_sharing_that_is_taken_off_and_put_on_by_hand(wire: Wire, bench: Bench, *, installed: bool | None) -> None:
    sharing = None if installed is None else Sharing(rev=1, installed=installed)
    assert desire(wire, settings(1).model_copy(update={"sharing": Sharing(rev=1, installed=True)})) == ALL
    desire(wire, settings(1).model_copy(update={"sharing": sharing}))
    asked = states(wire)
    by_hand(bench, "uninstall", "--keep-agent", "--yes")
    wire.pass_time(2)
    assert states(wire) == dict.fromkeys(asked, ItemState.REJECTED)
    assert wire.controller.reported is not None
    assert {one.code for one in wire.controller.reported.items.values()} == {ResultCode.NOT_INSTALLED}
    by_hand(bench, "install", "--yes")
    wire.pass_time(2)
    assert states(wire) == asked


@pytest.mark.usefixtures("plugin")
def test_sharing_that_is_to_be_away_and_was_put_on_by_hand(wire: Wire, bench: Bench) -> None:
    assert desire(wire, Spec(sharing=Sharing(rev=1, installed=False))) == {"sharing": ItemState.APPLIED}
    by_hand(bench, "install", "--yes")
    wire.pass_time(2)
    assert wire.controller.reported is not None
    assert wire.controller.reported.items["sharing"].code == ResultCode.INSTALLED
    by_hand(bench, "uninstall", "--keep-agent", "--yes")
    wire.pass_time(2)
    assert states(wire) == {"sharing": ItemState.APPLIED}


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_nothing_is_told_of_a_change_that_is_under_way(wire: Wire, bench: Bench, verb: str) -> None:
    assert desire(wire, settings(1).model_copy(update={"sharing": Sharing(rev=1, installed=True)})) == ALL
    if verb == "install":
        by_hand(bench, "uninstall", "--keep-agent", "--yes")
        wire.pass_time(2)
    before = states(wire)
    with locked(bench.layout.at(LOCK)):
        by_hand(bench, verb, "--yes")
        wire.pass_time(2)
        assert states(wire) == before
    wire.pass_time(2)
    assert states(wire) == (ALL if verb == "install" else dict.fromkeys(ALL, ItemState.REJECTED))


def test_a_setting_that_was_changed_by_hand_is_told(wire: Wire, bench: Bench) -> None:
    bench.write(PLUGIN, "")
    wanted = Spec(policy=PolicyItem(rev=1, policy="spread"), exclusions=Exclusions(rev=1, cards=("0",)))
    assert set(desire(wire, wanted).values()) == {ItemState.APPLIED}
    bench.write(YAML, "version: 1\nplacement: {policy: best-fit, exclude: ['0']}\n")
    wire.pass_time(2)
    assert wire.controller.reported is not None
    policy, exclusions = (wire.controller.reported.items[name] for name in ("policy", "exclusions"))
    assert policy.conditions == (Condition(type="Drifted", text="on the box it is best-fit"),)
    assert (policy.state, exclusions.conditions) == (ItemState.APPLIED, None)
    bench.write(YAML, "version: 1\nplacement: {policy: spread, exclude: ['0']}\n")
    wire.pass_time(2)
    assert wire.controller.reported.items["policy"].conditions is None


# --- sharing's own part


INSTALL, UNINSTALL = item("sharing", installed=True), item("sharing", installed=False)
UNIT, CARDS, POLICY = item("unit_size", mib=1024), item("exclusions", cards=["0"]), item("policy", policy="spread")
OPEN, APPLIED = Settlement(state=ItemState.OPEN), Settlement.applied()
NOT_INSTALLED = Settlement.rejected(ResultCode.NOT_INSTALLED, "GPU sharing is not installed on this box")
OTHERWISE = Settlement.rejected(ResultCode.PRECHECK, "there is no card 7")
SET_UP = "install --yes --policy spread --exclude 0 --unit-mib 1024"


@dataclass
class DocumentNotes(FileNotes):
    """Notes that know the document."""

    document: list[tuple[AskedItem, Settlement]] = field(default_factory=list)

    def beside(self) -> list[tuple[AskedItem, Settlement]]:
        return self.document


@pytest.fixture
def notes(tmp_path: Path) -> DocumentNotes:
    return DocumentNotes(tmp_path / "note")


@pytest.mark.parametrize("stands", [OPEN, NOT_INSTALLED, APPLIED], ids=["imaged anew", "set before", "had it before"])
def test_sharing_comes_as_the_whole_document_says(bench: Bench, notes: DocumentNotes, stands: Settlement) -> None:
    unknown = AskedItem(name="gone", key=UNIT.key, item=None, unsupported="it is new")
    document = (INSTALL, item("isolation", mode="limiter"), POLICY, CARDS, UNIT, unknown)
    notes.document = [(one, stands) for one in document]
    assert settle(bench, INSTALL, notes).state is ItemState.APPLIED
    whole = SET_UP.replace("--yes", "--yes --isolation limiter")
    assert bench.said("done") == [f"{whole} --json --transaction-id {id_of(notes)}"]


def test_sharing_comes_with_mps_where_the_document_says_so(bench: Bench, notes: DocumentNotes) -> None:
    notes.document = [(item("isolation", mode="mps"), OPEN), (POLICY, OPEN), (CARDS, OPEN), (UNIT, OPEN)]
    assert settle(bench, INSTALL, notes).state is ItemState.APPLIED
    assert words(bench) == [SET_UP.replace("--yes", "--yes --isolation mps")]


def test_what_was_refused_for_another_reason_is_not_carried_along(bench: Bench, notes: DocumentNotes) -> None:
    notes.document = [(CARDS, OTHERWISE), (UNIT, OPEN)]
    assert settle(bench, INSTALL, notes).state is ItemState.APPLIED
    assert bench.said("done")[0].startswith("install --yes --unit-mib 1024 --json")


@pytest.mark.parametrize("hold", ["BEFORE", "COMMITTED"])
def test_killed_in_between_it_is_set_up_once(bench: Bench, notes: DocumentNotes, hold: str) -> None:
    notes.document = [(POLICY, OPEN), (CARDS, OPEN), (UNIT, OPEN)]
    die_while(bench, INSTALL, notes, hold)
    os.kill(bench.installer_pid(), signal.SIGKILL)
    bench.untell(f"hold-{hold}")
    assert settle(bench, INSTALL, notes).state is ItemState.APPLIED
    assert words(bench) == ([SET_UP] if hold == "BEFORE" else [SET_UP, "install --yes"])


def test_where_sharing_is_there_each_item_has_its_own_checks(bench: Bench, notes: DocumentNotes) -> None:
    bench.write(PLUGIN, "")
    notes.document = [(INSTALL, OPEN), (UNIT, OPEN)]
    assert settle(bench, INSTALL, notes).state is ItemState.APPLIED
    assert bench.said("done")[0].startswith("install --yes --json")


def test_sharing_that_goes_takes_nothing_along(bench: Bench, notes: DocumentNotes) -> None:
    notes.document = [(UNINSTALL, OPEN), (UNIT, OPEN)]
    assert settle(bench, UNINSTALL, notes).state is ItemState.APPLIED
    assert bench.said("done")[0].startswith("uninstall --keep-agent --yes --json")
