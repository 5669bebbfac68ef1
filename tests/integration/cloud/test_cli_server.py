"""`edgegpu-cloud --server`: the commands print the same of a controller here and by the API of one elsewhere."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from kits.clipair import Pair, made_pair
from kits.cloudcli import run
from kits.console import ANNA, OTTO
from kits.details import box, card, pod, reported, saying
from kits.todaysstores import TodaysStores

from edgegpu_cloud.alerts.service import AlertTask
from edgegpu_cloud.cli.common import EXIT_WAITING
from edgegpu_cloud.cli.remote.client import TOKEN, TOKEN_FILE
from edgegpu_cloud.console.context import fleet_of
from edgegpu_cloud.enrolment.install_lines import enrolment_address
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_cloud.layout import AlertConfig, CloudLayout, TokenConfig, WebhookConfig
from edgegpu_cloud.store.records import BoxEvent, EnrolmentAttempt
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.evidence import ContainerEvidence
from edgegpu_sync.topics import TopicKind

USAGE_ERROR = 2


def heard(name: str, *, cluster: str) -> BoxDetails:
    """Return the last messages of a box with a pod."""
    pods = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 10, 1))}
    details = box(name, (card("0"), card("1", units=20)), pods, cluster=cluster)
    return saying(details, TopicKind.STATUS, state="birth", capabilities=["evidence.check"])


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, todays_stores: TodaysStores) -> Iterator[Pair]:
    with made_pair(tmp_path, monkeypatch, todays_stores) as pair:
        for number, name in enumerate(("hall-1", "hall-2")):
            device = pair.site.add(number, name, site="hall")
            pair.site.report(device, heard(name, cluster=f"{number}" * 36))
        pair.site.address = enrolment_address(CloudLayout(pair.folder), "https://localhost:8443")
        yield pair


SAME: tuple[Sequence[str], ...] = (
    ("boxes", "--json"),
    ("boxes", "-l", "site=hall", "-o", "wide"),
    ("boxes", "-l", "site=yard"),
    ("box", "hall-1", "--json"),
    ("box", "nobody"),
    ("limits", "show", "hall-1", "--json"),
    ("limits", "set", "hall-1", "asr", "--container", "main", "--memory", "4", "--preview", "--json"),
    ("limits", "set", "hall-1", "asr", "--container", "main", "--memory", "900", "--preview"),
    ("limits", "forget", "hall-1", "default/asr"),
    ("sharing", "show", "hall-1", "--json"),
    ("commands", "--json"),
    ("apps",),
    ("apps", "--boxes", "--json"),
    ("rollouts", "list", "--json"),
    ("rollouts", "show", "7"),
    ("rollouts", "start", "sharing", "--policy", "spread", "--all", "--preview", "--json"),
)
"""Commands that change nothing."""


@pytest.mark.parametrize("words", SAME, ids=" ".join)
def test_what_is_read_is_the_same_here_and_there(pair: Pair, words: Sequence[str]) -> None:
    here, there = pair.here(*words), pair.there(*words)
    assert (there.code, there.out) == (here.code, here.out), there.err
    its_own = "edgegpu-cloud: the controller is not running, nothing is sent or heard: `edgegpu-cloud serve`\n"
    assert bool(there.err) == bool(here.err.replace(its_own, "")), "only who is there sees whether it runs"


def waiting(pair: Pair) -> str:
    """Let a box wait for a person; return its id."""
    (token,) = pair.here("tokens", "--json").json or [{"id": "0" * 12}]
    asked = {"host": "new", "name": "", "instance": "ab" * 32, "address": "10.1.2.3", "versions": {"agent": "0.2.0"}}
    one = EnrolmentAttempt(id="c0ffee" * 5, token=token["id"] * 5, digest="d" * 64, asked=asked, at_s=pair.site.now_s)
    with pair.site.store.write() as tx:
        tx.enrolments.add_request(one)
    return one.id


@pytest.fixture
def used(pair: Pair) -> Pair:
    """Return a controller that was worked with: limits, an operation, an alert, evidence."""
    site = pair.site
    hall = site.api().get("/boxes/hall-1").json()["device"]
    fleet = fleet_of(site.store, OTTO, clock=site.clock)
    reports = ((10, {"state": "Applied"}), (900, {"state": "Rejected", "code": "NEVER_FITS"}), (4, None))
    for units, report in reports:
        limits = ContainerLimits(namespace="default", app="asr", container="main", memory_units=units, core=1)
        rev = fleet.set_limits(hall, limits).rev
        if report is not None:
            item = {"rev": rev, **report}
            told = reported(
                heard("hall-1", cluster="0" * 36), cluster="0" * 36, rev=rev, app_limits__default__asr__main=item
            )
            site.report(hall, told)
        site.now_s += 60
    change = {"kind": "command", "op": "doctor.run"}
    site.api("otto").post("/operations", json={"change": change, "labels": "site=hall"})
    fleet_of(site.store, ANNA, clock=site.clock).revoke("hall-2")
    while OperationRunner(site.store, clock=site.clock).step():
        pass
    with site.store.write() as tx:
        tx.notes.alarm("card.lost", device=hall, text="card 1 fell off the bus", now_s=site.now_s)
        seen = {"uid": "u1", "namespace": "default", "pod": "asr-5d98c8c9f7-zfpmp", "container": "main"}
        more = {"held": ["GPU-0"], "seen": ["GPU-0", "GPU-1"], "verdict": "more", "lines": "GPU 0: T4"}
        tx.telemetry.put_evidence(
            hall, [ContainerEvidence.model_validate({**seen, **more}, strict=False)], now_s=site.now_s
        )
        tx.notes.alarm("broker.DROPS", device="", text="the broker has dropped 7 messages", now_s=site.now_s)
    AlertTask(site.store, site.alert_config, controller="controller-1", clock=site.clock).look()
    assert pair.here("enrol", "--name", "hall-9", "--label", "site=hall", "--expires", "2h").code == 0
    waiting(pair)
    return pair


USED: tuple[Sequence[str], ...] = (
    ("limits", "show", "hall-1", "--json"),
    ("limits", "history", "hall-1", "default/asr", "--json"),
    ("limits", "history", "hall-1", "asr", "--container", "main"),
    ("limits", "history", "hall-1", "default/other"),
    ("operations", "list", "--json"),
    ("operations", "list", "--limit", "1"),
    ("operations", "show", "OPERATION", "--json"),
    ("operations", "show", "OPERATION", "--outcome", "refused"),
    ("operations", "show", "OPERATION", "--limit", "1"),
    ("operations", "show", "nothing", "--json"),
    ("operations", "show", "no/thing", "--json"),
    ("operations", "cancel", "OPERATION", "--json"),
    ("alerts", "list", "--json"),
    ("alerts", "list", "hall-1"),
    ("alerts", "list", "--all", "--json"),
    ("alerts", "list", "nobody", "--json"),
    ("alerts", "silence", "99", "--json"),
    ("alerts", "test", "--json"),
    ("evidence", "hall-1", "--json"),
    ("evidence", "hall-1"),
    ("evidence", "nobody", "--json"),
    ("evidence", "hall-2", "--check", "--json"),
    ("alarms", "--json"),
    ("alarms",),
    ("alarms", "--seen", "99", "--json"),
    ("audit", "--json"),
    ("audit", "--box", "hall-1", "--what", "box.spec"),
    ("audit", "--by", "nobody"),
    ("audit", "--limit", "2", "--json"),
    ("confirm", "hall-1", "--json"),
    ("confirm", "--all"),
    ("tokens", "--json"),
    ("tokens",),
    ("tokens", "--take-back", "0123", "--json"),
    ("pending", "--json"),
    ("pending",),
    ("approve", "abcd", "--json"),
    ("enrol", "--name", "no name", "--json"),
    ("enrol", "--for", "nobody", "--json"),
)
"""Commands of which the API has all that they print, and which change nothing."""


def test_what_came_of_it_is_the_same_here_and_there(used: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "egt_anna")
    operation = used.here("operations", "list", "--json").json[0]["operation"]["id"]
    for given in USED:
        words = [operation if one == "OPERATION" else one for one in given]
        here, there = used.here(*words), used.there(*words)
        assert (there.code, there.out, there.err) == (here.code, here.out, here.err), words
        assert len(there.out) > len("[]\n"), words


def test_limits_of_many_boxes_are_one_operation_from_there_too(pair: Pair) -> None:
    words = ("limits", "set", "-l", "site=hall", "asr", "--memory", "4", "--yes")
    started = pair.there(*words)
    assert (started.code, started.out.splitlines()[1:]) == (
        0,
        ["BOX     OUTCOME  WHY", "hall-1  QUEUED   -", "hall-2  QUEUED   -"],
    )
    (one,) = pair.here("operations", "list", "--json").json
    id_, args = one["operation"]["id"], one["operation"]["args"]
    assert (one["operation"]["by"], args["container"], args["memory_units"]) == ("otto", "main", 4)
    assert f"operations show {id_}" in started.err, "it is stored, whatever becomes of this command"
    OperationRunner(pair.site.store, clock=pair.site.clock).step()
    assert pair.here("operations", "show", id_, "--json").json["outcomes"] == {"STORED": 2}
    late = pair.there(*words, "--wait", "--timeout", "1s", "--json")
    assert (late.code, late.json["outcomes"], len(late.json["results"])) == (EXIT_WAITING, {"QUEUED": 2}, 2)


@pytest.mark.parametrize(
    ("words", "args"),
    [
        (("command", "doctor.run", "--valid", "2h"), {"op": "doctor.run", "args": {}, "wait_s": 7_200}),
        (("uninstall", "--yes", "--valid", "2h"), {"wait_s": 7_200}),
        (
            ("sharing", "set", "--exclude", "0"),
            {"policy": None, "exclude": ["0"], "isolation": None, "unit_mib": None},
        ),
    ],
    ids=["command", "uninstall", "sharing"],
)
def test_other_changes_of_many_boxes_are_one_operation_from_there_too(
    pair: Pair, words: Sequence[str], args: dict[str, object]
) -> None:
    fleet_of(pair.site.store, ANNA, clock=pair.site.clock).revoke("hall-2")
    late = pair.there(*words, "-l", "site=hall", "--wait", "--timeout", "1s", "--json")
    assert (late.code, late.json["outcomes"]) == (EXIT_WAITING, {"QUEUED": 1}), "without the revoked one"
    (one,) = pair.here("operations", "list", "--json").json
    assert f"operations show {one['operation']['id']}" in late.err
    assert (one["operation"]["by"], one["operation"]["args"]) == ("otto", args)
    assert one["operation"]["filter"] == {"selector": "site=hall", "askable": True}
    assert pair.there(*words, "-l", "site=yard").code == 1


def test_a_box_without_the_card_is_refused_and_the_others_are_not(pair: Pair) -> None:
    pair.site.report(ids(pair)[1], box("hall-2", (card("0"),), cluster="1" * 36))
    words = ("sharing", "set", "-l", "site=hall", "--exclude", "1", "--yes", "--wait", "--timeout", "1s", "--json")
    id_ = pair.there(*words).json["operation"]["id"]
    OperationRunner(pair.site.store, clock=pair.site.clock).step()
    stored, refused = pair.here("operations", "show", id_, "--json").json["results"]
    assert (stored["name"], stored["outcome"]) == ("hall-1", "STORED")
    assert (refused["name"], refused["outcome"]) == ("hall-2", "REFUSED")
    assert refused["text"] == "cannot exclude 1 on hall-2: there is no such card"
    assert refused["remedy"] == "it has 0 (GPU-0)"


def test_limits_of_many_boxes_whose_app_has_other_containers_are_not_guessed(pair: Pair) -> None:
    other = box("hall-2", (card("0"),), {"u2": pod("asr-5d98c8c9f7-k2x8v", ("decoder", "0", 4, 1))}, cluster="1" * 36)
    pair.site.report(ids(pair)[1], other)
    for asked in (pair.here, pair.there):
        done = asked("limits", "set", "-l", "site=hall", "asr", "--memory", "4", "--yes")
        assert (done.code, "it has decoder, main" in done.err, "--container decoder" in done.err) == (1, True, True)
    assert pair.here("operations", "list", "--json").json == []


def test_an_alert_is_silenced_and_a_check_is_asked_for_from_there(used: Pair) -> None:
    number = str(used.there("alerts", "list", "--json").json[0]["alert"]["number"])
    assert "is silent until" in used.there("alerts", "silence", number, "--for", "2h").out
    assert "silenced until" in used.here("alerts", "list").out
    assert used.there("alerts", "silence", number, "--for", "0s").code == 0
    assert used.here("alerts", "list", "--json").json[0]["alert"]["silenced_by"] == "otto"
    hall = used.there("box", "hall-1", "--json").json["box"]["device"]
    used.site.connect(hall)
    waiting = used.there("evidence", "hall-1", "--check", "--timeout", "1s")
    assert waiting.code == EXIT_WAITING
    (id_,) = used.here("evidence", "hall-1", "--json").json["checking"]
    assert used.there("evidence", "hall-1", "--json").json["checking"] == [id_]
    assert used.here("commands", "hall-1", "--json").json[0]["op"] == "evidence.check"


def test_a_box_is_enrolled_from_there(pair: Pair) -> None:
    pair.site.token_config = TokenConfig(lasts_s=7_200, uses=3)
    made = pair.there("enrol", "--label", "site=hall", "--json").json
    here = pair.here("enrol", "--label", "site=hall", "--json").json
    assert (made.keys(), made["uses"]) == (here.keys(), 3), "what is left out is as its configuration has it"
    parts = {"url": "https://localhost:8443", "ca_sha256": here["ca_sha256"], "pin": here["pin"]}
    assert {name: made[name] for name in parts} == parts
    assert made["line"] == here["line"].replace(here["token"], made["token"])
    assert made["expires_at"] == int(pair.site.now_s + 7_200)
    told = pair.there("enrol", "--name", "hall-1", "--count", "1", "--approve")
    assert "Each box waits for a yes" in told.out
    assert "there is a box hall-1" in told.err
    first = pair.here("tokens", "--json").json[0]
    left = pair.there("tokens", "--take-back", first["id"][:6], "--json").json
    assert first["id"] not in [one["id"] for one in left]
    assert left == pair.here("tokens", "--json").json
    again = pair.there("enrol", "--for", "hall-1", "--json").json
    assert again["uses"] == 1


@pytest.mark.parametrize(("verb", "state"), [("approve", "APPROVED"), ("refuse", "REFUSED")])
def test_a_box_that_waits_is_decided_from_there(pair: Pair, verb: str, state: str) -> None:
    id_ = waiting(pair)
    done = pair.there(verb, id_[:8], "--json")
    assert (done.code, done.json) == (0, {"id": id_, "state": state}), done.out
    late = pair.here(verb, id_[:8])
    assert late.code == 1
    assert pair.there(verb, id_[:8]).err == late.err


def test_a_box_that_is_restored_goes_on_and_an_alarm_is_seen_from_there(used: Pair) -> None:
    with used.site.store.write() as tx:
        held = next(one for one in tx.boxes.get(ids(used)).values() if one.name == "hall-1")
        tx.boxes.put([replace(held, sequence=replace(held.sequence, restored=True))])
    rev = used.here("box", "hall-1", "--json").json["box"]["rev"]
    (confirmed,) = used.there("confirm", "--all", "--json").json
    assert (confirmed["name"], confirmed["restored"], confirmed["rev"] > rev) == ("hall-1", False, True)
    numbers = [str(one["number"]) for one in used.there("alarms", "--json").json]
    assert used.there("alarms", "--seen", numbers[0], "--json").json == used.here("alarms", "--json").json
    assert len(used.here("alarms", "--json").json) == len(numbers) - 1


def ids(pair: Pair) -> list[DeviceId]:
    return [DeviceId(one["device"]) for one in pair.here("boxes", "--json").json]


def test_a_box_is_revoked_and_forgotten_from_there(used: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = used.there("revoke", "hall-1", "--yes", "--json")
    assert (refused.code, "your role" in refused.json["error"]) == (1, True), "an operator may not"
    monkeypatch.setenv(TOKEN, "egt_anna")
    assert used.there("revoke", "hall-1", "--yes", "--reload", "true").code == USAGE_ERROR
    assert "--yes" in used.there("revoke", "hall-1", "--json").json["remedy"]
    device = used.here("box", "hall-1", "--json").json["box"]["device"]
    assert used.here("box", "hall-1", "--json").json["box"]["state"] == "ENROLLED"
    revoked = used.there("revoke", "hall-1", "--yes")
    assert revoked.out.startswith("revoked hall-1: it is ignored from now on\n")
    assert revoked.out.endswith("then: edgegpu-cloud kick hall-1\n")
    assert used.here("box", "hall-1", "--json").json["box"]["state"] == "REVOKED"
    done = used.there("revoke", "hall-2", "--yes", "--json").json
    assert (done["name"], done["crl"], done["cut"]) == ("hall-2", None, False)
    kicked = used.there("kick", "hall-1")
    assert (kicked.code, "the controller's keys" in kicked.err) == (1, True)
    assert "'hall' was typed" in run("--server", used.url, "boxes", "forget", "hall-1", stdin="hall\n").err
    forgotten = run("--server", used.url, "boxes", "forget", "hall-1", stdin="hall-1\n")
    assert f"forgot hall-1 ({device})" in forgotten.out
    assert [one["name"] for one in used.here("boxes", "--json").json] == ["hall-2"]


def test_people_are_not_managed_from_there_and_it_says_where(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "egt_anna")
    for words in (("list",), ("add", "bea"), ("tokens", "anna")):
        done = pair.there("people", *words, "--json")
        assert (done.code, "the API has no accounts" in done.json["error"]) == (1, True)
        assert "page" in done.json["remedy"]
        assert "without --server" in done.json["remedy"]


def completed(pair: Pair, *words: str) -> list[str]:
    """Return what bash is offered for the last word, of a controller elsewhere."""
    line = ("edgegpu-cloud", "--server", pair.url, *words)
    bash = {"_EDGEGPU_CLOUD_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(line), "COMP_CWORD": str(len(line) - 1)}
    command = [sys.executable, "-m", "edgegpu_cloud.cli.app"]
    env = {**os.environ, "EDGEGPU_CLOUD": str(pair.folder / "none"), **bash}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60).stdout.split()


def test_the_shell_completes_what_is_there(used: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed(used, "box", "hall-") == ["hall-1", "hall-2"]
    assert completed(used, "limits", "set", "hall-1", "d") == ["default/asr"]
    assert used.there("sharing", "set", "hall-1", "--policy", "spread").code == 0
    assert completed(used, "sharing", "forget", "hall-1", "p") == ["policy"]
    assert completed(used, "sharing", "forget", "nobody", "p") == []
    monkeypatch.setenv(TOKEN, "egt_nobody")
    assert completed(used, "box", "hall-") == []


def test_all_events_of_a_box_are_shown_there(pair: Pair) -> None:
    (device, *_) = ids(pair)
    one = BoxEvent(device=device, kind="probe", level="info", text="", about="", box_at=0, at_s=pair.site.now_s)
    many = [replace(one, text=f"event {number}") for number in range(300)]
    with pair.site.store.write() as tx:
        tx.notes.add_events(many)
    here, there = (how("box", device, "--since", "1h", "--json").json["events"] for how in (pair.here, pair.there))
    assert len(there) == len(many)
    assert there == here


def test_the_webhook_is_an_admins_and_its_address_stays_there(used: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = ("https://hooks.example.com/services/T0K3N",)
    used.site.alert_config = AlertConfig(webhook=WebhookConfig(urls=urls, secret="a secret of sixteen"))  # noqa: S106
    monkeypatch.setenv(TOKEN, "egt_anna")
    sent = used.there("alerts", "test", "--json").json
    assert sent == {"urls": ["hooks.example.com"], "waiting": 1, "error": ""}
    assert "1 message for the webhook not delivered yet" in used.there("alerts", "list").err
    monkeypatch.setenv(TOKEN, "egt_otto")
    assert used.there("alerts", "test").code == 1
    listed = used.there("alerts", "list")
    assert (listed.code, listed.err) == (0, ""), "an operator sees no webhook, and the list all the same"


def test_what_is_changed_there_stands_here(pair: Pair) -> None:
    done = pair.there("limits", "set", "hall-1", "default/asr", "--container", "main", "--memory", "4", "--json")
    assert (done.code, done.json["rev"]) == (0, 1)
    words = ("limits", "show", "hall-1", "--json")
    assert pair.here(*words).json == pair.there(*words).json
    assert pair.there("sharing", "set", "hall-1", "--policy", "spread").code == 0
    assert pair.there("label", "hall-1", "rack=3", "--json").json["labels"] == {"site": "hall", "rack": "3"}
    queued = pair.there("command", "hall-2", "doctor.run", "--json").json
    assert pair.here("commands", "--json").json[0]["by"] == "otto"
    assert pair.there("cancel", queued["id"], "--json").json["cancelled"]
    started = pair.there("rollouts", "start", "sharing", "--policy", "best-fit", "--all", "--yes", "--json").json
    assert pair.here("rollouts", "list", "--json").json[0]["number"] == started["number"]
    assert pair.there("rollouts", "pause", str(started["number"]), "--json").json["state"] == "PAUSED"
    shown = ("rollouts", "show", str(started["number"]), "--json")
    assert pair.here(*shown).json == pair.there(*shown).json
    assert pair.there("limits", "forget", "hall-1", "default/asr", "--json").json == {
        "box": "hall-1",
        "items": ["app_limits/default/asr/main"],
        "rev": 3,
    }


@pytest.mark.parametrize(
    "words", [("backup", "x"), ("broker",), ("serve",), ("migrate",), ("people", "list")], ids=" ".join
)
def test_what_works_with_the_controllers_files_says_so(pair: Pair, words: Sequence[str]) -> None:
    done = pair.there(*words)
    assert (done.code, "without --server" in done.err) == (1, True), done.err


def test_who_may_not_change_and_who_is_not_known_hears_it(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "egt_vera")
    refused = pair.there("label", "hall-1", "rack=3")
    assert (refused.code, "your role" in refused.err) == (1, True)
    monkeypatch.setenv(TOKEN, "egt_nobody")
    unknown = pair.there("boxes", "--json")
    assert (unknown.code, "does not know this token" in unknown.json["error"]) == (1, True)
    assert "egt_nobody" not in unknown.out + unknown.err
    assert run("--server", "http://127.0.0.1", "boxes").code == 1
    assert "cannot reach" in run("--server", "https://127.0.0.1:1", "boxes").err


def test_a_token_stands_in_a_file_that_nobody_else_reads(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("egt_otto\n")
    monkeypatch.delenv(TOKEN)
    monkeypatch.setenv(TOKEN_FILE, str(file))
    file.chmod(0o644)
    assert "chmod 600" in pair.there("boxes").err
    file.chmod(0o600)
    assert pair.there("boxes").code == 0
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "none"))
    assert "cannot read a token" in pair.there("boxes").err
