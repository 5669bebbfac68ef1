"""`edgegpu status`, `pods` and `version` against a server on a Unix socket: words, JSON, exit status."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from kits.cli import CARD_0, CARD_1, card, document, edgegpu, plugin, pod

from edgegpu_core.injection import Injection
from edgegpu_core.reasons import cardless

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "6bd5fb6c-5bf4-e74a-8987-d93912fd9df9"

STATUS = f"""\
box-1  server  edgegpu 0.1.0  policy first-fit  1 unit = 256 MiB
driver     560.35.03
injection  cdi (containerd reads /var/run/cdi)
kubelet    registered in 12 ms
API        connected
extender   127.0.0.1:8787

card 0  Tesla P4  {CARD_0}
  5 of 29 units free, core 98 of 100 free
  [AAAABBBBBBBBBBBBBBBBBBBB.....]
  A     4 units  core 1    baetyl-edge/face  main
  B    20 units  core 1    baetyl-edge/plate  main

card 1  Tesla P4  {CARD_1}  out of order
  29 units, none of them offered now
  [xxxxxxxxxxxxxxxxxxxxxxxxxxxxx]

waiting for a card
  baetyl-edge/soon  main  3 units  core 1  Pending

Pending
  baetyl-edge/large  main  40 units  core 30
    needs 40 vcuda-memory and 30 vcuda-core on one card; card 0 has 5 free
  and 3 more pods

Problems
  card 1 is out of order ({CARD_1})
  baetyl-edge/lone container main is refused: needs 30 vcuda-memory on one card; card 0 has 5 free
"""
BUSY = document(
    cards=[card(CARD_0, free=5, core_free=98), card(CARD_1, healthy=False)],
    pods=[
        pod("face", 4, CARD_0),
        pod("plate", 20, CARD_0),
        pod("lone", 30, state="refused", reason="needs 30 vcuda-memory on one card; card 0 has 5 free"),
        pod("soon", 3, state="waiting", phase="Pending"),
    ],
    pending=[
        pod(
            "large",
            40,
            core=30,
            state="pending",
            phase="Pending",
            reason="needs 40 vcuda-memory and 30 vcuda-core on one card; card 0 has 5 free",
        )
    ],
    pending_more=3,
)


def test_status_shows_cards_holders_and_what_is_wrong(short_tmp: Path) -> None:
    with plugin(short_tmp, BUSY) as socket:
        done = edgegpu("status", "--socket", socket)
    assert (done.out, done.err, done.code) == (STATUS, "", 1)


def test_status_shows_who_runs_on_a_card_that_is_gone_or_excluded(short_tmp: Path) -> None:
    others = [
        {"index": "2", "uuid": "GPU-2", "name": "Tesla P4", "gone": True},
        {"index": "3", "uuid": "GPU-3", "name": "Tesla P4", "gone": False},
    ]
    rows = [pod("face", 20, state="lost", reason="its card 2 is gone; delete it"), pod("plate", 4)]
    for row, other in zip(rows, others, strict=True):
        row["cards"] = [other]
    with plugin(short_tmp, document(pods=rows, other_cards=others)) as socket:
        done = edgegpu("status", "--socket", socket)
    assert "\ncard 2  Tesla P4  GPU-2  gone\n  A    20 units  core 1    baetyl-edge/face  main  its card is" in done.out
    assert "\ncard 3  Tesla P4  GPU-3  not offered; its pods count against the other cards\n" in done.out
    assert "\n  B     4 units  core 1    baetyl-edge/plate  main" in done.out
    assert "face container main: its card 2 is gone; delete it; until it goes, its 20 units count" in done.out
    assert done.code == 1


def test_status_names_the_container_that_runs_without_its_card(short_tmp: Path) -> None:
    """The plugin's own words for it are the problem; the line of the holder says it beside the bar."""
    without = pod("face", 4, CARD_0, state="cardless", reason=cardless("main", ["0"], Injection.CDI))
    with plugin(short_tmp, document(pods=[without, pod("plate", 20, CARD_1)])) as socket:
        done = edgegpu("status", "--socket", socket)
    lines = done.out.splitlines()
    assert "  A     4 units  core 1    baetyl-edge/face  main  runs without its card" in lines
    assert "  B    20 units  core 1    baetyl-edge/plate  main" in lines
    problems = lines[lines.index("Problems") + 1 :]
    assert problems == [f"  baetyl-edge/face: {without['reason']}"]
    assert done.code == 1


def test_sources_that_are_silent_are_named_with_their_last_word(short_tmp: Path) -> None:
    """k3s is down: what came of the API server and of kubelet is as it was, and nothing follows of it."""
    rows = [
        pod("face", 4, CARD_0, state="held", phase="Gone", reason="kubelet is silent: whether …"),
        pod("", 20, CARD_1, state="unknown", phase="Unknown", namespace="", reason="the API server is silent, and …"),
    ]
    silence = {"why": "connection refused", "heard_at": 1_767_225_600}
    heard = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1_767_225_600))
    down = document(
        pods=rows,
        pending=[],
        kubelet={"registered": False, "waiting_for": "kubelet", "silent": "waiting for kubelet"},
        api={"synced": True, "problem": "connection refused", "silent": silence},
        pending_silent=silence,
    )
    with plugin(short_tmp, down) as socket:
        listed = edgegpu("pods", "--socket", socket)
        status = edgegpu("status", "--socket", socket)
        found = json.loads(edgegpu("pods", "--json", "--socket", socket).out)["silent"]
    lines = (
        "kubelet is silent: waiting for kubelet; which pods hold which units is as it was then",
        f"API server is silent, heard last at {heard}: connection refused; names and phases of pods are as they were",
        f"watch of Pending pods is silent, heard last at {heard}: connection refused; the list of them is as it was",
    )
    for line in lines:
        assert line in listed.out
        assert line in status.out
    assert "API        silent: connection refused" in status.out
    assert "kubelet is silent: whether it has freed the units is not known" in status.out
    assert "kubelet has not freed the units yet" not in status.out
    assert [one["source"] for one in found] == ["kubelet", "API server", "watch of Pending pods"]
    assert [one["heard_at"] for one in found] == [None, 1_767_225_600, 1_767_225_600]


def test_status_calls_a_pod_gone_whatever_else_the_plugin_says_of_the_api(short_tmp: Path) -> None:
    """The problem may be one of an event or a deletion: a row is `held` only where the pods have been read."""
    rows = [pod("face", 4, CARD_0, state="held", phase="Gone"), pod("plate", 20, CARD_1, state="unknown")]
    api = {"synced": True, "problem": "cannot delete pod baetyl-edge/soon: Forbidden"}
    with plugin(short_tmp, document(pods=rows, api=api)) as socket:
        done = edgegpu("status", "--socket", socket)
    assert "face  main  its pod is gone; kubelet has not freed the units yet\n" in done.out
    assert "plate  main  what its pod does is not known yet\n" in done.out
    assert "API        connected: cannot delete pod baetyl-edge/soon: Forbidden\n" in done.out


@pytest.mark.parametrize(
    ("waits", "why", "words"),
    [
        (True, "", "yes"),
        (False, "kubelet did not read /k/state", "no: kubelet did not read /k/state"),
        (None, "kubelet has not started since the plugin did", "not known: kubelet has not started since the"),
    ],
)
def test_status_says_whether_kubelet_waits_for_the_devices(
    short_tmp: Path, *, waits: bool | None, why: str, words: str
) -> None:
    kubelet = {"registered": True, "registered_ms": 12.3, "start_wait": {"waits": waits, "why": why}}
    with plugin(short_tmp, document(kubelet=kubelet)) as socket:
        done = edgegpu("status", "--socket", socket)
    assert f"start      kubelet waits for the devices: {words}" in done.out
    assert done.code == 0


def test_status_of_a_node_where_all_is_well_exits_0(short_tmp: Path) -> None:
    with plugin(short_tmp, document()) as socket:
        done = edgegpu("status", "--socket", socket)
    assert done.code == 0
    assert "Problems" not in done.out
    assert "\x1b" not in done.out


def test_status_says_that_any_process_may_call_the_extender(short_tmp: Path) -> None:
    with plugin(
        short_tmp, document(extender={"listen": "127.0.0.1:8787", "healthy": True, "insecure": True})
    ) as socket:
        done = edgegpu("status", "--socket", socket)
    assert "insecure: any process of this box may call it" in done.out


def test_status_in_json_is_the_plugins_document_and_the_problems(short_tmp: Path) -> None:
    with plugin(short_tmp, BUSY) as socket:
        done = edgegpu("status", "--json", "--socket", socket)
    said = json.loads(done.out)
    assert [text.partition(" ")[0] for text in said.pop("problems")] == ["card", "baetyl-edge/lone"]
    assert (said, done.code) == (BUSY, 1)


def test_a_server_without_cards_shows_the_nodes_of_its_extender(short_tmp: Path) -> None:
    nodes = [{"name": "box-2", "cards": 1, "units": 94, "units_free": 3}]
    with plugin(short_tmp, document(role="extender-only", cards=[], pods=[], nodes=nodes)) as socket:
        done = edgegpu("status", "--socket", socket)
    assert "  box-2  1 card  3 of 94 units free\n" in done.out
    assert "kubelet" not in done.out
    assert done.code == 0


@pytest.mark.parametrize("env", [{"COLUMNS": "20"}, {"COLUMNS": "45"}, {"TERM": "dumb"}, {"LC_ALL": "C"}])
def test_status_stands_narrow_and_plain_terminals(short_tmp: Path, env: dict[str, str]) -> None:
    with plugin(short_tmp, BUSY) as socket:
        done = edgegpu("status", "--socket", socket, env=env)
    assert (done.code, done.err) == (1, "")
    assert CARD_0 in done.out
    bars = [line for line in done.out.splitlines() if line.startswith("  [")]
    assert max(map(len, bars)) <= int(env.get("COLUMNS", "100"))


def test_colours_are_for_those_who_want_them(short_tmp: Path) -> None:
    with plugin(short_tmp, document()) as socket:
        bright = edgegpu("status", "--socket", socket, env={"FORCE_COLOR": "1", "TERM": "xterm-256color"})
        plain = edgegpu("status", "--socket", socket, env={"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm"})
    assert "\x1b[1;36m" in bright.out
    assert "36m" not in plain.out


def test_pods_is_a_table_that_a_pipe_gets_whole(short_tmp: Path) -> None:
    with plugin(short_tmp, BUSY) as socket:
        done = edgegpu("pods", "--socket", socket)
    rows = [line.split(None, 8) for line in done.out.splitlines()]
    assert rows[0] == ["NAMESPACE", "POD", "CONTAINER", "CARD", "UUID", "UNITS", "CORE", "STATE", "REASON"]
    assert rows[1] == ["baetyl-edge", "face", "main", "0", CARD_0, "4", "1", "allocated"]
    assert rows[3] == ["baetyl-edge", "lone", "main", "-", "-", "30", "1", "refused", BUSY["pods"][2]["reason"]]
    assert rows[5] == ["baetyl-edge", "large", "main", "-", "-", "40", "30", "pending", BUSY["pending"][0]["reason"]]
    assert done.err == "and 3 more Pending pods\n"
    assert done.code == 0


def test_pods_of_one_namespace_in_json(short_tmp: Path) -> None:
    elsewhere = pod("other", 8, CARD_1, namespace="prod", core=30)
    with plugin(short_tmp, document(pods=[pod("face", 4, CARD_0), elsewhere])) as socket:
        done = edgegpu("pods", "--json", "-n", "prod", "--socket", socket)
        none = edgegpu("pods", "-n", "void", "--socket", socket)
    assert json.loads(done.out) == {
        "v": 1,
        "node": "box-1",
        "pods": [
            {
                "namespace": "prod",
                "pod": "other",
                "uid": "uid-other",
                "container": "main",
                "units": 8,
                "core": 30,
                "cards": [{"index": "1", "uuid": CARD_1, "given_mib": 8 * 256, "used_mib": None, "processes": None}],
                "phase": "Running",
                "state": "allocated",
                "reason": "",
                "isolation": None,
            }
        ],
        "measured_at": None,
        "others": [],
        "silent": [],
    }
    assert (none.out, none.code) == ("no pod on box-1 in namespace void asks for a share of a card\n", 0)


def used(uid: str, mib: int | None, card: str = CARD_0, *, n: int = 1, container: str = "main") -> dict[str, Any]:
    whole = {"card": card, "uid": uid, "container": container, "processes": n, "memory_mib": mib}
    return {name: value for name, value in whole.items() if value not in ("", None)}


MEASURED = document(
    pods=[
        pod("face", 4, CARD_0),
        pod("plate", 20, CARD_0),
        pod("train", 0, CARD_1, core=100),
        pod("mute", 4, CARD_1),
        pod("new", 4, CARD_1),
    ],
    memory_use={
        "at": 1_790_000_000,
        "containers": [
            used("uid-face", 1_536),
            used("uid-plate", 0, n=0),
            used("uid-train", 700, CARD_1, n=2),
            used("uid-mute", None, CARD_1),
            used("", 110, n=2, container=""),
            used("uid-stranger", 2_048, CARD_1, container=""),
        ],
    },
)


def test_pods_says_what_each_uses_of_what_it_was_given(short_tmp: Path) -> None:
    with plugin(short_tmp, MEASURED) as socket:
        done = edgegpu("pods", "--socket", socket, env={"TZ": "UTC"})
        bright = edgegpu(
            "pods", "--socket", socket, env={"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "200"}
        )
        narrow = edgegpu("pods", "--socket", socket, env={"FORCE_COLOR": "1", "TERM": "xterm-256color"})
    table, _, below = done.out.partition("\n\n")
    head, *rows = table.splitlines()
    at = slice(head.index("USES"), head.index("STATE"))
    assert {row.split()[1]: row[at].strip() for row in rows} == {
        "face": "1.5 GiB of 1 GiB (over)",
        "plate": "0 MiB of 5 GiB",
        "train": "700 MiB of 7.25 GiB",
        "mute": "not reported of 1 GiB",
        "new": "-",
    }
    assert "\x1b[31m1.5 GiB of 1 GiB" in bright.out, "more than it was given"
    assert "\x1b[31m700 MiB" not in bright.out
    assert f"card 0  {CARD_0}  uses 1.5 GiB of 1 GiB (over)" in " ".join(narrow.out.split(" ")).replace("\n", " ")
    assert below.splitlines() == [
        "card 0: 110 MiB used outside of pods (2 processes)",
        "card 1: 2 GiB used by the pod with the uid uid-stranger, outside of its shares (1 process)",
        "USES as measured at 14:13:20, twice a minute",
    ]


def test_selftest_says_what_was_found_and_what_to_do(short_tmp: Path) -> None:
    seen = {
        "at_s": 7,
        "context_mib": 525,
        "native_us": 182_000,
        "held_us": 183_500,
        "granted": {"plain": 3, "async": 3},
        "native_work_us": 100_040,
        "held_work_us": 455_960,
        "core_percent": 20,
    }
    good = {"index": "0", "card": CARD_0, "verdict": "passed", "reason": "", "remedy": "", **seen}
    bad = {"index": "1", "card": CARD_1, "verdict": "harmful", "reason": "it crashes", "remedy": "report it"}
    found = {"running": False, "ended": 0, "error": "", "cards": [good, bad]}
    with plugin(short_tmp, document(isolation="limiter", selftest=found)) as socket:
        done = edgegpu("selftest", "--last", "--socket", socket)
        said = edgegpu("selftest", "--last", "--json", "--socket", socket)
        whole = edgegpu("status", "--socket", socket)
        refused = edgegpu("selftest", "--socket", socket)
    assert done.code == said.code == 1
    assert "the first CUDA call took 182.0 ms, with the limiter 183.5 ms" in done.out
    assert "held within the limit: plain, async, and a second program" in done.out
    assert "a row of kernels took 100.0 ms, with a compute limit of 20 percent 456.0 ms" in done.out
    assert "not tried" not in done.out
    assert "harmful\n  it crashes\n  new containers get no limiter, and are degraded\n  to do: report it" in done.out
    assert [(one["index"], one["verdict"]) for one in json.loads(said.out)["cards"]] == [
        ("0", "passed"),
        ("1", "harmful"),
    ]
    assert "self-test  harmful: card 1: it crashes" in whole.out
    assert refused.code == 1
    assert "cannot try the limiter: nothing can be changed here" in refused.err
    with plugin(short_tmp, document(isolation="limiter", selftest=found | {"cards": [good]})) as socket:
        assert edgegpu("selftest", "--last", "--socket", socket).code == 0
        assert "self-test  passed" in edgegpu("status", "--socket", socket).out
    lacking = good | {"not_tried": {"graph": "the driver has no such function"}}
    with plugin(short_tmp, document(isolation="limiter", selftest=found | {"cards": [lacking]})) as socket:
        done = edgegpu("selftest", "--last", "--socket", socket)
        assert (done.code, "not tried: graph: the driver has no such function" in done.out) == (0, True)
        assert "self-test  passed (not tried: graph)" in edgegpu("status", "--socket", socket).out
    newer = good | {"cuda_version": 13060, "newer_driver": "the driver's CUDA 13.6 is newer"}
    with plugin(short_tmp, document(isolation="limiter", selftest=found | {"cards": [newer]})) as socket:
        done = edgegpu("selftest", "--last", "--socket", socket)
        said = edgegpu("selftest", "--last", "--json", "--socket", socket)
        assert "self-test  passed: the driver's CUDA 13.6 is newer" in edgegpu("status", "--socket", socket).out
    assert done.code == 0
    assert "the driver's CUDA 13.6 is newer: upgrade edgegpu; until then programs that it holds find none" in done.out
    assert json.loads(said.out)["cards"][0]["cuda_version"] == 13060
    with plugin(short_tmp, document()) as socket:  # a plugin of before
        assert "no card is offered" in edgegpu("selftest", "--last", "--socket", socket).out


def test_selftest_and_status_say_where_the_limiter_goes_by_names(short_tmp: Path) -> None:
    named = {"index": "0", "card": CARD_0, "verdict": "passed", "by_name": "the driver gives other addresses"}
    found = {"running": False, "ended": 0, "error": "", "cards": [named]}
    with plugin(short_tmp, document(isolation="limiter", selftest=found)) as socket:
        done = edgegpu("selftest", "--last", "--socket", socket)
        assert "self-test  passed: the driver gives other addresses" in edgegpu("status", "--socket", socket).out
    assert (done.code, "the driver gives other addresses: nothing: programs run" in done.out) == (0, True)


def test_pods_and_status_say_what_holds_each_to_its_memory(short_tmp: Path) -> None:
    units = {"limit_units": 4, "held_units": 4}
    cards = [{"card": CARD_0, "limit_mib": 1_024, "counted_mib": 320, **units, "core_percent": 30, "refusals": 0}]
    held = {
        "state": "enforced",
        "reason": "",
        "cards": cards,
        "limiter": "0.1.0",
        "private_tables": [TABLE],
        "notes": [],
    }
    live = held | {"cards": [cards[0] | {"limit_mib": 512, "limit_units": 2, "refusals": 7}]}
    loose = {"state": "degraded", "reason": "its pod was admitted before", "cards": [], "limiter": ""}
    loose |= {"private_tables": [], "notes": ["its NVIDIA_DRIVER_CAPABILITIES asks for video"]}
    rows = [
        pod("held", 4, CARD_0, isolation=held),
        pod("loose", 4, CARD_0, isolation=loose),
        pod("new", 4, CARD_0),
        pod("live", 4, CARD_0, isolation=live),
    ]
    with plugin(short_tmp, document(pods=rows, isolation="limiter", isolation_problem="no library")) as socket:
        done = edgegpu("pods", "--socket", socket)
        said = json.loads(edgegpu("pods", "--json", "--socket", socket).out)
        whole = edgegpu("status", "--socket", socket)
    head, *lines = done.out.splitlines()
    at = slice(head.index("HELD"), head.index("STATE"))
    assert [line[at].strip() for line in lines] == [
        "enforced (320 MiB of 1 GiB, core 30)",
        "degraded",
        "-",
        "enforced (320 MiB of 512 MiB, core 30; 2 of 4 units (live); 7 refused)",
    ]
    words = "its pod was admitted before; its NVIDIA_DRIVER_CAPABILITIES asks for video"
    assert f"not surely held to its memory: {words}" in lines[1]
    assert [row["isolation"] for row in said["pods"]] == [held, loose, None, live]
    assert "isolation  limiter: no library" in whole.out
    assert whole.code == 1
    assert "containers are not surely held to their memory: no library" in whole.out + whole.err
    with plugin(short_tmp, document(pods=[pod("off", 4, CARD_0, isolation=loose | {"state": "off"})])) as socket:
        assert "HELD" not in edgegpu("pods", "--socket", socket).out


def test_pods_in_json_has_the_use_too(short_tmp: Path) -> None:
    with plugin(short_tmp, MEASURED) as socket:
        done = json.loads(edgegpu("pods", "--json", "--socket", socket).out)
    assert done["measured_at"] == 1_790_000_000
    cards = {row["pod"]: row["cards"][0] for row in done["pods"]}
    given = {"given_mib": 1_024, "index": "0", "uuid": CARD_0}
    assert cards["face"] == {**given, "used_mib": 1_536, "processes": 1}
    assert (cards["mute"]["used_mib"], cards["mute"]["processes"]) == (None, 1)
    assert (cards["new"]["used_mib"], cards["new"]["processes"]) == (None, None)
    host = {"index": "0", "uuid": CARD_0, "uid": "", "container": "", "used_mib": 110, "processes": 2}
    assert done["others"][0] == host


def test_version_names_what_is_installed_and_what_runs(short_tmp: Path) -> None:
    alone = edgegpu("version", "--json", "--socket", short_tmp / "plugin.sock")
    with plugin(short_tmp, document(version="0.0.9")) as socket:
        both = edgegpu("version", "--socket", socket)
    said = json.loads(alone.out)
    assert said["plugin"] is None
    assert "not running" in said["problem"]
    assert alone.code == both.code == 0
    assert both.out.splitlines() == [
        f"edgegpu {said['version']}",
        "edgegpu-plugin 0.0.9 runs",
        "they differ: `systemctl restart edgegpu-plugin` starts what is installed",
    ]
