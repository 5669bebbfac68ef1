"""`edgegpu-cloud --server`: limits for more boxes than one request could name, through a real console and database."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.cert import Authority
from kits.cloudcli import Done, run
from kits.clusterboxes import ClusterBox, put_boxes
from kits.console import ConsoleSite
from kits.stores import open_store

from edgegpu_cloud.cli.remote.client import CA_FILE, TOKEN
from edgegpu_cloud.fleet.operations.box_set import MOST_BOXES
from edgegpu_cloud.fleet.operations.runner import OperationRunner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLUSTERS, WITH_AGENT = 1_100, 50
WORDS = ("limits", "set", "-l", "site=hall", "asr", "--memory", "4", "--core", "1")


def boxes() -> Iterator[ClusterBox]:
    """Yield a server of each cluster, one of them small; some have an agent beside it that holds the pod."""
    for number in range(CLUSTERS):
        server = ClusterBox(
            number=number,
            name=f"box-{number:04d}-server",
            cluster=f"{number:08d}",
            holder=True,
            labels={"site": "hall"},
            units=3 if number == CLUSTERS - 1 else 29,
        )
        yield server
        if number < WITH_AGENT:
            agent = f"box-{number:04d}-agent"
            yield replace(server, number=CLUSTERS + number, name=agent, holder=False, containers=("main",))


@pytest.fixture
def many(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ConsoleSite, str]]:
    """Serve the console of many boxes; yields it with its URL."""
    site = ConsoleSite(open_store(store_url), now_s=time.time())
    put_boxes(site.store, list(boxes()), now_s=site.now_s)
    authority = Authority("authority")
    (tmp_path / "ca.crt").write_text(authority.pem)
    monkeypatch.setenv(CA_FILE, str(tmp_path / "ca.crt"))
    monkeypatch.setenv(TOKEN, "egt_otto")
    with site.served(tmp_path, authority) as url:
        yield site, url
    site.store.close()


def test_settings_of_more_boxes_than_a_page_has_are_previewed(many: tuple[ConsoleSite, str]) -> None:
    _, url = many
    words = ("sharing", "set", "-l", "site=hall", "--policy", "spread", "--preview")
    expected = sorted(one.name for one in boxes() if one.labels.get("site") == "hall")
    shown = run("--server", url, *words, "--json")
    assert [one["box"] for one in shown.json] == expected, shown.err
    assert shown.code == 0
    assert len(expected) > MOST_BOXES
    assert {one["items"]["policy"]["answer"] for one in shown.json} == {"changed"}


def test_limits_of_more_boxes_than_a_request_names_are_one_operation(many: tuple[ConsoleSite, str]) -> None:
    site, url = many

    def there(*words: str) -> Done:
        return run("--server", url, *words)

    assert CLUSTERS > MOST_BOXES
    shown = there(*WORDS, "--preview", "--json")
    assert (shown.code, len(shown.json)) == (1, CLUSTERS), shown.err
    assert [one["box"] for one in shown.json] == [f"box-{number:04d}-server" for number in range(CLUSTERS)]
    assert [one["box"] for one in shown.json if one["answer"] != "fits"] == [f"box-{CLUSTERS - 1:04d}-server"]
    assert {one["need_units"] for one in shown.json} == {4}

    started = there(*WORDS, "--yes", "--json")
    assert (started.code, started.json["outcomes"]) == (0, {"QUEUED": CLUSTERS}), started.err
    operation = started.json["operation"]
    assert (operation["args"]["container"], operation["by"]) == ("main", "otto")
    assert operation["filter"] == {"selector": "site=hall", "askable": True, "one_of_each_cluster": True}
    assert {one["name"].rsplit("-", 1)[1] for one in started.json["results"]} == {"server"}
    runner = OperationRunner(site.store, clock=site.clock)
    steps = 0
    while runner.step():
        steps += 1
    assert steps == 4, "500, 500 and 100 boxes, and the end"
    assert there("operations", "show", operation["id"], "--json").json["outcomes"] == {"STORED": CLUSTERS}
