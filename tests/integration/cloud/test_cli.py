"""An operator's days: a controller from nothing, a box that is taken in, limits, commands, revocation, backup."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import typer
from kits.backups import passphrase_words
from kits.child import ENDS_S, running_child
from kits.cloudcli import ok, run
from kits.cloudprocess import CONTROLLER, HTTPS, Cloud, parts, running
from kits.enrol import Box
from kits.livebox import LiveBox, enrol, post
from kits.mqtt import wait_for

from edgegpu_cloud.cli.common import opened
from edgegpu_cloud.cli.requests.following import finish
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_sync.rules.settle import Settlement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with running(tmp_path_factory.mktemp("cloud")) as made:
        yield made


# a box, from the line to its revocation


def test_an_everyday_run(cloud: Cloud) -> None:
    with cloud.live("asr-hall") as live:
        wait_for(lambda: cloud.box("asr-hall")["capacity"] is not None, what="it has told of its cards")
        heads, row = cloud.ok("boxes").out.splitlines()
        assert heads.split() == ["NAME", "STATE", "SEEN", "CARDS", "FREE", "HEALTH", "PROBLEMS", "WAITING", "CLUSTER"]
        assert (row.split()[:2], "2      116 of 120" in row) == (["asr-hall", "online"], True), row

        shown = cloud.ok("box", "asr-hall").out
        assert (" of 60" in shown, "healthy" in shown, "health: " in shown, " ," in shown) == (True, True, True, False)

        done = cloud.run("limits", "set", "asr-hall", "asr", "--memory", "61", "--core", "1", "--preview")
        assert done.code == 1
        assert "does not fit: 61 units" in done.out
        assert "node box-1 card 1: 60 units" in done.out
        fits = cloud.ok("limits", "set", "asr-hall", "asr", "--memory", "60", "--core", "1", "--preview", "--json").json
        assert (fits["answer"], fits["need_units"]) == ("fits", 60)
        assert cloud.box("asr-hall")["rev"] == 0, "a preview changes nothing"

        done = cloud.ok("limits", "set", "asr-hall", "default/asr", "--memory", "10", "--core", "1", "--wait")
        assert "Applied" in done.out
        assert "Applied" in cloud.ok("limits", "show", "asr-hall").out

        live.box.verdict = lambda _: Settlement.rejected("NO_ROOM", "needs 50 on one card")
        done = cloud.run("limits", "set", "asr-hall", "asr", "--memory", "50", "--core", "1", "--wait")
        assert done.code == 1
        assert "Rejected: NO_ROOM: needs 50 on one card" in done.out
        shown = cloud.ok("limits", "show", "asr-hall", "--json").json
        assert (shown[0]["memory_units"], shown[0]["report"]["code"]) == (50, "NO_ROOM")
        (shown,) = cloud.ok("limits", "show", "asr-hall", "--preview", "--json").json
        assert (shown["report"]["code"], shown["preview"]["answer"]) == ("NO_ROOM", "fits")
        assert "fits  " in cloud.ok("limits", "show", "asr-hall", "--preview").out

        live.box.verdict = lambda _: Settlement.applied()
        done = cloud.ok("limits", "forget", "asr-hall", "asr", "--json")
        assert done.json["items"] == ["app_limits/default/asr/main"]
        assert cloud.ok("limits", "show", "asr-hall", "--json").json == []
        wait_for(lambda: cloud.box("asr-hall")["applied_rev"] == done.json["rev"], what="the box has settled the rest")
        assert cloud.run("limits", "forget", "asr-hall", "asr").code == 1
        done = cloud.ok("uninstall", "asr-hall", "--yes", "--wait")
        assert (done.out, done.err.partition(": ")[0]) == ("SUCCEEDED\n", "sharing.uninstall for asr-hall")
        assert cloud.ok("install", "asr-hall", "--wait", "--json").json["state"] == "SUCCEEDED"
        done = cloud.ok("command", "asr-hall", "k3s.restart", "--yes", "--wait", "--json")
        assert (done.json["op"], done.json["state"]) == ("k3s.restart", "SUCCEEDED")
        listed = cloud.ok("commands", "asr-hall", "--json").json
        assert [one["op"] for one in listed] == ["k3s.restart", "sharing.install", "sharing.uninstall"]
        assert listed[0]["by"].startswith("operator ")
        assert cloud.ok("watch", listed[0]["id"][:20], "--json").json["ended"]
    wait_for(lambda: not cloud.box("asr-hall")["online"], what="the will says that it is gone")


def test_boxes_are_labelled_and_selected_and_the_list_goes_on(cloud: Cloud) -> None:
    for name in ("north", "south"):
        words = ("enrol", "--name", name, "--label", "site=pole")
        enrol(cloud.url, cloud.ca, Box(cloud.ok(*words, "--json").json["token"], host=name))

    def named(selector: str) -> list[str]:
        return [one["name"] for one in cloud.ok("boxes", "-l", selector, "--json").json]

    assert named("site=pole") == ["north", "south"]
    assert cloud.ok("label", "north", "cold=very", "site=n").out == "north: cold=very,site=n\n"
    assert (named("site=pole"), named("cold"), named("site in (n,pole),!cold")) == (["south"], ["north"], ["south"])
    cloud.ok("label", "-l", "cold", "site=pole", "cold-")
    assert (named("site=pole"), named("cold")) == (["north", "south"], [])
    for wrong, why in ((["-l", "=a"], "not a term"), (["-l", "none=x"], "none has these labels")):
        done = cloud.run("label", *wrong, "a=b")
        assert (done.code, why in done.err) == (1, True), done.err
    assert cloud.run("label", "north").code == 2

    command = [sys.executable, "-m", "edgegpu_cloud.cli.app", "boxes", "-l", "site=pole", "-o", "wide", "-w"]
    env = {**os.environ, "EDGEGPU_CLOUD": str(cloud.folder)}
    with running_child(command, env=env) as (process, lines):
        assert [lines.readline().split()[0] for _ in range(3)] == ["NAME", "north", "south"]
        cloud.ok("label", "south", "rack=9")
        changed = lines.readline()
        process.send_signal(signal.SIGINT)
        assert (changed.split()[0], "rack=9,site=pole" in changed, process.wait(ENDS_S)) == ("south", True, 130)


def completed(cloud: Cloud, *words: str) -> list[str]:
    """Return what bash is offered for the last word."""
    env = {
        **os.environ,
        "EDGEGPU_CLOUD": str(cloud.folder),
        "_EDGEGPU_CLOUD_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("edgegpu-cloud", *words)),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, "-m", "edgegpu_cloud.cli.app"]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60).stdout.split()


def test_the_shell_completes_boxes_and_apps(cloud: Cloud) -> None:
    with cloud.live("typed") as live:
        wait_for(lambda: cloud.box("typed")["capacity"] is not None, what="it has told of its cards")
        assert completed(cloud, "box", "ty") == ["typed"]
        assert completed(cloud, "limits", "set", "ty") == ["typed"]
        assert completed(cloud, "limits", "set", "typed", "d") == ["default/asr"]
        assert completed(cloud, "command", "typed", "k3s") == ["k3s.restart"]
        assert live
    (cloud.work / "empty").mkdir()
    assert completed(replace(cloud, folder=cloud.work / "empty"), "box", "ty") == []


def test_https_falls_and_is_started_again_while_the_boxes_are_served(cloud: Cloud) -> None:
    with cloud.live("steady"):
        before, enrols, asked = parts(cloud), cloud.log().count(b"boxes enrol at"), cloud.log().count(b"asking")
        assert before.keys() == {HTTPS, CONTROLLER}
        os.kill(before[HTTPS], signal.SIGKILL)
        assert cloud.ok("command", "steady", "k3s.restart", "--yes", "--wait", "--json").json["state"] == "SUCCEEDED"
        wait_for(lambda: b"HTTPS has ended (signal 9): started again" in cloud.log(), what="it is told")
        wait_for(lambda: cloud.log().count(b"boxes enrol at") > enrols, what="it is started again")
        assert cloud.enrols("late")
        after = parts(cloud)
        assert (after[CONTROLLER], after[HTTPS] != before[HTTPS]) == (before[CONTROLLER], True)
        assert cloud.log().count(b"asking") == asked, "the link was never lost"


def test_serve_ends_where_a_part_cannot_begin(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:  # noqa: S104  (as `serve` does)
        port = taken.getsockname()[1]
        ok("init", "--name", "127.0.0.1", "--https-port", str(port), "--no-console", folder=tmp_path / "cloud")
        words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--folder", str(tmp_path / "cloud")]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, f"cannot listen on 0.0.0.0 port {port}" in done.stderr) == (1, True), done.stderr
    assert "Traceback" not in done.stderr
    assert run("serve", "--no-link", "--no-https", folder=tmp_path / "cloud").code == 2


def test_how_a_box_shares_its_cards(cloud: Cloud) -> None:
    with cloud.live("sharer") as live:
        done = cloud.run("sharing", "set", "sharer", "--unit-mib", "512", "--policy", "first-fit", "--preview")
        assert done.code == 1
        assert "policy: as it is\nunit_size: rejected: pods hold shares" in done.out
        assert cloud.box("sharer")["rev"] == 0, "a preview changes nothing"
        done = cloud.ok(
            "sharing", "set", "sharer", "--policy", "spread", "--exclude", "1", "--exclude", "GPU-0", "--wait"
        )
        assert [line.split(": ")[1:] for line in done.out.splitlines()[1:]] == [["Applied"], ["Applied"]]
        shown = cloud.ok("sharing", "show", "sharer", "--json").json
        items = {one["item"]: one for one in shown["items"]}
        assert (shown["rev"], shown["applied_rev"]) == (1, 1)
        assert items["exclusions"]["desired"]["cards"] == ["1", "GPU-0"]
        assert (items["policy"]["desired"]["policy"], items["policy"]["report"]["state"]) == ("spread", "Applied")
        assert (items["policy"]["now"], items["unit_size"]["now"]) == ("first-fit", 256), "what it has told itself"
        assert (items["unit_size"]["desired"], items["unit_size"]["report"]) == (None, None)

        cloud.ok("sharing", "set", "sharer", "--exclude", "none", "--wait")
        live.box.verdict = lambda _: Settlement.rejected("PRECHECK", "pods hold shares: n/p")
        done = cloud.run("sharing", "set", "sharer", "--unit-mib", "512", "--wait")
        assert (done.code, "unit_size: Rejected: PRECHECK: pods hold shares: n/p" in done.out) == (1, True)
        rows = {row.split()[0]: row for row in cloud.ok("sharing", "show", "sharer").out.splitlines()[2:]}
        assert "512 MiB" in rows["unit_size"]
        assert "pods hold shares" in rows["unit_size"]
        assert re.fullmatch(r"exclusions +none +[-0-9]+ [0-9:]+ +[-0-9]+ [0-9:]+ +Applied .*", rows["exclusions"]), (
            rows["exclusions"]
        )
        again = cloud.run("sharing", "set", "sharer", "--unit-mib", "512", "--wait", "--json")
        assert (again.code, again.json["items"]["unit_size"]["retry"]) == (1, 1), "asked for again it is tried again"

        for wrong in (["--policy", "worst-fit"], ["--exclude", "none", "--exclude", "0"], ["--isolation", "vm"], []):
            assert cloud.run("sharing", "set", "sharer", *wrong).code == 1
        assert cloud.box("sharer")["rev"] == 4, "what was refused is no revision"
    wait_for(lambda: not cloud.box("sharer")["online"], what="it is gone")
    done = cloud.run("sharing", "set", "sharer", "--policy", "best-fit", "--wait", "--timeout", "1s")
    assert (done.code, "sharing show sharer" in done.err) == (3, True)


def test_what_the_doctor_of_a_box_has_found_is_printed_and_is_the_exit_status(cloud: Cloud) -> None:
    with cloud.live("ill") as live:
        trouble = {"name": "k3s", "level": "broken", "text": "it does not answer", "remedy": "systemctl start k3s"}
        live.box.answers["doctor.run"] = {"version": "1", "level": "broken", "checks": 14, "troubled": [trouble]}
        done = cloud.run("command", "ill", "doctor.run", "--wait")
        lines = done.out.splitlines()
        assert (done.code, lines[0]) == (1, "SUCCEEDED")
        assert lines[1:] == ["  broken: k3s: it does not answer", "    Fix: systemctl start k3s", "  14 checks made"]
        id_ = cloud.ok("commands", "ill", "--json").json[0]["id"]
        assert "Fix: systemctl start k3s" in cloud.run("watch", id_).out
        cloud.ok("label", "ill", "ward=1")
        done = cloud.run("command", "-l", "ward=1", "doctor.run", "--wait")
        assert (done.code, done.out.splitlines()[2:]) == (1, ["ill  APPLIED  broken: 1 finding", "ill:", *lines[1:]])
        live.box.answers["doctor.run"] = {"version": "1", "level": "ok", "checks": 14, "troubled": []}
        (found,) = cloud.ok("command", "-l", "ward=1", "doctor.run", "--wait", "--json").json["results"]
        assert (found["name"], found["outcome"], found["data"]["level"]) == ("ill", "APPLIED", "ok")
        assert cloud.ok("watch", found["command"]).out == "SUCCEEDED\n  all is well\n  14 checks made\n"
    assert cloud.run("command", "doctor.run").code == 2
    assert cloud.run("commands", "--since", "soon").code == 2


def test_a_typo_is_told_at_once_and_what_can_be_inferred_is_done(cloud: Cloud) -> None:
    with cloud.live("typist") as live:
        wait_for(lambda: cloud.box("typist")["capacity"] is not None, what="it has told of its cards")
        done = cloud.ok("limits", "set", "typist", "asr", "--memory", "5")
        assert done.out.splitlines() == ["app_limits/default/asr/main on typist: requested, revision 1", "Applied"]
        (item,) = cloud.ok("limits", "show", "typist", "--json").json
        assert (item["container"], item["core"]) == ("main", 1)

        live.box.verdict = lambda _: Settlement.rejected("PRECHECK", "there is no Deployment default/ars")
        done = cloud.run("limits", "set", "typist", "ars", "--memory", "5", "--core", "1")
        assert done.code == 1
        assert "almost so called: default/asr" in done.err
        fix = "edgegpu-cloud limits forget typist default/ars --container ars"
        assert "Rejected: PRECHECK: there is no Deployment default/ars" in done.out
        assert fix in done.out
        assert f"Fix: ask for something else, or take it back: {fix}" in cloud.ok("box", "typist").out
        assert (cloud.box("typist")["problems"], cloud.box("typist")["waiting"]) == (1, 0)
        live.box.verdict = lambda _: Settlement.applied()
        cloud.ok("limits", "set", "typist", "ars", "--container", "main", "--memory", "5", "--core", "1", "--wait")
        wait_for(lambda: cloud.box("typist")["problems"] == 0, what="the request with the wrong name is gone")
        assert len(cloud.ok("limits", "show", "typist", "--json").json) == 2

        done = cloud.run("sharing", "set", "typist", "--exclude", "7")
        told = ("there is no such card" in done.err, "it has 0 (GPU-0), 1 (GPU-1)" in done.err)
        assert (done.code, *told) == (1, True, True)
        done = cloud.run("sharing", "set", "typist", "--isolation", "limiter")
        assert (done.code, "its agent is older" in done.err) == (1, True)
        assert cloud.ok("sharing", "show", "typist", "--json").json["rev"] == cloud.box("typist")["rev"]

        live.box.verdict = lambda _: Settlement.rejected("PRECHECK", "no")
        assert cloud.run("sharing", "set", "typist", "--policy", "spread").code == 1
        assert "sharing forget typist policy" in cloud.ok("sharing", "show", "typist").out
        cloud.ok("sharing", "forget", "typist", "policy")
        wait_for(lambda: cloud.box("typist")["problems"] == 0, what="nothing is requested any more")
        assert "was not requested" in cloud.run("sharing", "forget", "typist", "policy").err


def test_limits_are_set_on_all_boxes_with_a_label(cloud: Cloud) -> None:
    with cloud.live("east") as east, cloud.live("west") as west:
        for name in ("east", "west"):
            cloud.ok("label", name, "wing=new")
            wait_for(lambda: cloud.box(name)["capacity"] is not None, what="it has told of its cards")  # noqa: B023
        words = ("limits", "set", "-l", "wing=new", "asr", "--yes", "--memory")
        done = cloud.run(*words, "61", "--preview")
        assert done.code == 1
        table = done.out.partition("units/core on all boxes")[0].splitlines()
        assert [line.split()[:2] for line in table[1:]] == [["east", "does"]]
        rooms = cloud.ok(*words, "60", "--preview", "--json").json
        assert [(one["box"], one["answer"]) for one in rooms] == [("east", "fits")], "they are one cluster"
        east.cluster("11111111-0d0e-4a57-9a0e-1f8d2f7c9b11")
        accept = ("boxes", "cluster", "east", "--accept")
        wait_for(lambda: cloud.run(*accept).code == 0, what="it has reported a cluster of its own")
        assert cloud.box("east")["cluster"].startswith("1111")
        rooms = cloud.ok(*words, "60", "--preview", "--json").json
        assert [(one["box"], one["answer"]) for one in rooms] == [("east", "fits"), ("west", "fits")]
        west.box.verdict = lambda _: Settlement.rejected("NO_ROOM", "needs 60 on one card")
        done = cloud.run(*words, "60", "--wait")
        assert done.code == 1
        assert [line.split()[:2] for line in done.out.splitlines()[2:]] == [["east", "APPLIED"], ["west", "REJECTED"]]
        assert ("NO_ROOM: needs 60" in done.out, "1 APPLIED, 1 REJECTED" in done.err) == (True, True), "its progress"
        one, *_ = cloud.ok("operations", "list", "--json").json
        assert done.out.startswith(f"operation {one['operation']['id']}: limits for 2 boxes\n")
        west.box.verdict = lambda _: Settlement.applied()
        again = cloud.ok(*words, "60", "--wait", "--json").json
        assert (again["outcomes"], [one["name"] for one in again["results"]]) == ({"APPLIED": 2}, ["east", "west"])
        shown = cloud.ok("limits", "show", "-l", "wing=new", "--json").json
        assert [(one["box"], one["memory_units"]) for one in shown] == [("east", 60), ("west", 60)]
        words = ("sharing", "set", "-l", "wing=new", "--policy", "spread", "--yes")
        for asked in (words, ("uninstall", "-l", "wing=new", "--yes"), ("install", "-l", "wing=new", "--yes")):
            assert cloud.ok(*asked, "--wait", "--json").json["outcomes"] == {"APPLIED": 2}, asked
        gone = cloud.ok("limits", "forget", "-l", "wing=new", "asr", "--json").json
        assert [(one["box"], one["items"]) for one in gone] == [
            (n, ["app_limits/default/asr/main"]) for n in ("east", "west")
        ]
        assert cloud.run("limits", "forget", "-l", "wing=new", "asr").code == 1
    assert cloud.run("limits", "set", "-l", "wing=new", "east", "asr", "--memory", "1").code == 2


def test_who_fights_for_limits_is_asked_for_and_kept(cloud: Cloud) -> None:
    words = ("limits", "set", "drifter", "asr", "--core", "1", "--wait", "--memory")
    with cloud.live("drifter"):
        cloud.ok(*words, "4", "--on-drift", "enforce")
        cloud.ok(*words, "5", "--live")
        (item,) = cloud.ok("limits", "show", "drifter", "--json").json
        assert (item["memory_units"], item["on_drift"], item["live"]) == (5, "enforce", True)
        cloud.ok(*words, "5", "--on-drift", "report")
        (item,) = cloud.ok("limits", "show", "drifter", "--json").json
        assert (item["on_drift"], item["rev"], item["retry"], item["live"]) == ("report", 3, 0, False)
        for never, why in (("kube-system/asr", "never changed"), ("ASR", "no name of an app")):
            for more in ((), ("--preview",)):
                done = cloud.run("limits", "set", "drifter", never, "--memory", "1", "--core", "1", *more)
                assert (done.code, why in done.err) == (1, True), done.err


def test_a_command_to_a_box_that_is_away_times_out_with_3_and_is_cancelled(cloud: Cloud) -> None:
    hand = Box(cloud.ok("enrol", "--name", "away", "--json").json["token"])
    enrol(cloud.url, cloud.ca, hand)
    done = cloud.run("command", "away", "doctor.run", "--wait", "--timeout", "1s")
    assert done.code == 3
    assert "not online" in done.err
    assert "edgegpu-cloud watch" in done.err
    assert "there is a box away" in cloud.ok("enrol", "--name", "away").err
    for wrong in ("-x", "a b", "", "\x1b[2J"):
        done = cloud.run("rename", "away", "--", wrong)
        assert (done.code, "1 to 63 letters, digits" in done.err) == (1, True), wrong
    assert "another box is called so" in cloud.run("rename", "away", "drifter").err
    id_ = cloud.ok("commands", "away", "--json").json[0]["id"]
    cloud.ok("cancel", id_)
    assert cloud.ok("commands", "away", "--json").json[0]["cancelled"]
    done = cloud.run("limits", "set", "away", "asr", "--memory", "1", "--core", "1")
    assert done.code == 1
    assert "reported its cluster" in done.err
    done = cloud.run("limits", "set", "away", "asr", "--memory", "1", "--core", "1", "--preview")
    assert "has not told yet what cards" in done.err


def test_who_ends_the_waiting_by_ctrl_c_is_told_that_the_command_goes_on(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    hand = Box(cloud.ok("enrol", "--name", "far", "--json").json["token"])
    enrol(cloud.url, cloud.ca, hand)

    def ctrl_c(_: float) -> None:
        raise KeyboardInterrupt

    with opened(cloud.folder) as made:
        made.fleet = Fleet(made.store, clock=time.time, by="anna", sleep=ctrl_c)
        id_ = made.fleet.command("far", "doctor.run", {})
        for as_json in (False, True):
            with pytest.raises(typer.Exit) as end:
                finish(made, id_, 60, as_json=as_json)
            said = capsys.readouterr()
            assert (end.value.exit_code, f"it goes on: edgegpu-cloud watch {id_}" in said.err) == (130, True)
            assert (json.loads(said.out)["id"] if as_json else said.out) == (id_ if as_json else "")


def test_a_box_waits_for_a_yes(cloud: Cloud) -> None:
    token = cloud.ok("enrol", "--count", "2", "--expires", "7d", "--approve", "--json").json["token"]
    good, bad = Box(token, host="good"), Box(token, host="bad")

    def asked(box: Box) -> tuple[int, dict[str, Any]]:
        return post(cloud.url, cloud.ca, "/v1/enrol", json.dumps(box.ask()).encode())

    assert [asked(good)[0], asked(bad)[0]] == [202, 202]
    waiting = {one["host"]: one["id"] for one in cloud.ok("pending", "--json").json}
    assert sorted(waiting) == ["bad", "good"]
    assert "good" in cloud.ok("pending").out
    cloud.ok("approve", waiting["good"][:10])
    cloud.ok("refuse", waiting["bad"])
    assert asked(good)[0] == 200
    assert asked(bad)[1]["code"] == "REFUSED"
    assert cloud.ok("pending").out == "no box waits\n"
    done = cloud.run("approve", waiting["bad"])
    assert (done.code, "REFUSED already" in done.err) == (1, True)
    assert cloud.run("approve", "zz").code == 1


def test_a_token_is_taken_back(cloud: Cloud) -> None:
    token = cloud.ok("enrol", "--count", "5", "--name", "lost", "--json").json["token"]
    (listed,) = [one for one in cloud.ok("tokens", "--json").json if one["name"] == "lost"]
    assert (listed["uses"], listed["used"]) == (5, 0)
    assert "lost" in cloud.ok("tokens").out
    cloud.ok("tokens", "--take-back", listed["id"])
    status, denied = post(cloud.url, cloud.ca, "/v1/enrol", json.dumps(Box(token).ask()).encode())
    assert (status, denied["code"]) == (403, "TOKEN_EXPIRED")
    assert "lost" not in cloud.ok("tokens").out
    assert cloud.run("tokens", "--take-back", listed["id"]).code == 1
    for alarm in cloud.ok("alarms", "--json").json:
        cloud.ok("alarms", "--seen", str(alarm["number"]))


def test_a_token_that_is_used_twice_is_an_alarm(cloud: Cloud) -> None:
    token = cloud.ok("enrol", "--json").json["token"]
    enrol(cloud.url, cloud.ca, Box(token, host="first"))
    status, denied = post(cloud.url, cloud.ca, "/v1/enrol", json.dumps(Box(token).ask()).encode())
    assert (status, denied["code"]) == (403, "TOKEN_USED")
    (alarm,) = cloud.ok("alarms", "--json").json
    assert alarm["kind"] == "enrol.TOKEN_USED"
    assert "TOKEN_USED" in cloud.ok("alarms").out
    assert cloud.ok("alarms", "--seen", str(alarm["number"])).out == "no alarms\n"


def test_a_revoked_box_is_ignored_and_comes_back_with_a_token_of_its_own(cloud: Cloud) -> None:
    with cloud.live("stolen") as live:
        assert cloud.run("revoke", "stolen").code == 1, "without a yes it is not done"
        assert "not revoked" in cloud.run("kick", "stolen").err
        ups, downs = live.ups, len(live.downs)
        cloud.ok("revoke", "stolen", "--yes", "--reload", f"kill -HUP {cloud.processes[0].pid}")
        wait_for(
            lambda: len(live.downs) >= downs + 2, what="it is put out, tries again, and is not let in", timeout_s=30
        )
        assert live.ups == ups, live.downs
        assert any("stolen" in row and "REVOKED" in row for row in cloud.ok("boxes").out.splitlines())
        done = cloud.run("command", "stolen", "doctor.run")
        assert (done.code, "is revoked" in done.err) == (1, True)
        done = cloud.run("limits", "set", "stolen", "asr", "--memory", "1", "--core", "1")
        assert (done.code, "is revoked" in done.err) == (1, True)
        instance = live.box.instance
    cloud.ok("kick", "stolen")
    for words in (("revoke", "stolen", "--json"), ("revoke", "stolen")):
        done = cloud.run(*words)
        assert (done.code, "--yes" in done.out + done.err) == (1, True)
    done = cloud.run("revoke", "stolen", "--yes", "--json", "--reload", "false")
    assert (done.code, "ended with 1" in done.json["error"]) == (1, True)
    key = cloud.folder / "ca/boxes.key"
    good = key.read_text()
    key.write_text("broken")
    done = cloud.run("revoke", "stolen", "--yes")
    key.write_text(good)
    assert ("stolen is revoked and ignored" in done.err, str(key) in done.err) == (True, True), done.err
    again = Box(cloud.ok("enrol", "--for", "stolen", "--json").json["token"], instance=instance)
    granted = enrol(cloud.url, cloud.ca, again)
    assert (granted.device, granted.enrolment) == (live.box.device, 2)
    with LiveBox(cloud.work / "back", again, granted) as live:
        wait_for(lambda: cloud.box("stolen")["online"], what="it is back")
        forget_online(cloud, live)
    anew = enrol(
        cloud.url, cloud.ca, Box(cloud.ok("enrol", "--name", "stolen", "--json").json["token"], instance=instance)
    )
    assert (anew.device != granted.device, anew.enrolment) == (True, 1)
    assert (cloud.box("stolen")["rev"], cloud.box("stolen")["items"]) == (0, {})


def forget_online(cloud: Cloud, live: LiveBox) -> None:
    device = live.box.device
    done = cloud.run("boxes", "forget", "stolen")
    assert (done.code, "--yes" in done.err, "stolen" in done.out) == (1, True, True)
    assert "'stole' was typed" in run("boxes", "forget", "stolen", folder=cloud.folder, stdin="stole\n").err
    assert cloud.run("boxes", "--json", "forget", "stolen").code == 2, "an option of the list would be passed over"
    assert cloud.box("stolen")["online"]
    ups, downs = live.ups, len(live.downs)
    reload = f"kill -HUP {cloud.processes[0].pid}"
    ok("boxes", "forget", "stolen", "--reload", reload, folder=cloud.folder, stdin="stolen\n")
    assert not any("stolen" in row for row in cloud.ok("boxes").out.splitlines())
    cloud.ok("kick", device)
    wait_for(lambda: len(live.downs) >= downs + 2, what="it is put out, and not let in", timeout_s=30)
    assert live.ups == ups, live.downs
    assert cloud.run("kick", "0123456789abcdef").code == 1, "no box ever had this id"


def test_keys_are_rotated_and_boxes_follow(cloud: Cloud) -> None:
    with cloud.live("follower") as live:
        before = cloud.ok("keys", "show", "--json").json
        done = cloud.ok("keys", "rotate", "--drop-old", "--json").json
        assert done["version"] == before["sets"][-1]["version"] + 1
        assert done["signing_key"] != before["signing_key"]
        wait_for(lambda: live.box.ring.version == done["version"], what="the box has followed the chain")
        done = cloud.ok("command", "follower", "doctor.run", "--wait", "--timeout", "20s", "--json")
        assert done.json["state"] == "SUCCEEDED"


def test_a_backup_is_a_controller(cloud: Cloud, tmp_path: Path) -> None:
    words = passphrase_words(tmp_path)
    cloud.ok("backup", str(tmp_path / "all.backup"), *words)
    assert (tmp_path / "all.backup").stat().st_mode & 0o777 == 0o600
    ok("restore", "--yes", str(tmp_path / "all.backup"), *words, folder=tmp_path / "back")
    names = [one["name"] for one in ok("boxes", "--json", folder=tmp_path / "back").json]
    assert names == [one["name"] for one in cloud.ok("boxes", "--json").json]
    assert (tmp_path / "back/broker/data").is_dir()
    assert ok("keys", "show", "--json", folder=tmp_path / "back").json["in_effect"]
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "all.backup")
    for other in ("pipe", "link", "back", "-"):
        done = cloud.run("backup", other if other == "-" else str(tmp_path / other), *words)
        assert (done.code, "not a regular file" in done.err or "standard output" in done.err) == (1, True), other
    assert ((tmp_path / "pipe").is_fifo(), (tmp_path / "link").is_symlink()) == (True, True)
