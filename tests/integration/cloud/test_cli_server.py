"""`edgegpu-cloud --server`: the commands print the same of a controller here and by the API of one elsewhere."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from kits.cert import Authority
from kits.cloudcli import Done, ok, run
from kits.console import ConsoleSite
from kits.details import box, card, pod

from edgegpu_cloud.cli.remote.client import CA_FILE, TOKEN, TOKEN_FILE
from edgegpu_cloud.layout import CloudLayout
from edgegpu_cloud.store.store import ControllerStore


@dataclass(frozen=True)
class Pair:
    """A controller's folder, and the URL of its console."""

    folder: Path
    url: str
    site: ConsoleSite

    def here(self, *words: str) -> Done:
        return run(*words, folder=self.folder)

    def there(self, *words: str) -> Done:
        return run("--server", self.url, *words)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    folder = tmp_path / "cloud"
    ok("init", "--name", "localhost", "--folder", str(folder))
    store = ControllerStore.open_file(CloudLayout(folder).database)
    site = ConsoleSite(store)
    for number, name in enumerate(("hall-1", "hall-2")):
        device = site.add(number, name, site="hall")
        pods = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 10, 1))}
        site.report(device, box(name, (card("0"), card("1", units=20)), pods, cluster=f"{number}" * 36))
    authority = Authority("authority")
    (tmp_path / "ca.crt").write_text(authority.pem)
    monkeypatch.setenv(CA_FILE, str(tmp_path / "ca.crt"))
    monkeypatch.setenv(TOKEN, "egt_otto")
    monkeypatch.setenv("EDGEGPU_DEBUG", "")
    with site.served(tmp_path, authority) as url:
        yield Pair(folder, url, site)
    store.close()


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
    started = pair.there("rollouts", "start", "sharing", "--policy", "best-fit", "--all", "--json").json
    assert pair.here("rollouts", "list", "--json").json[0]["number"] == started["number"]
    assert pair.there("rollouts", "pause", str(started["number"]), "--json").json["state"] == "PAUSED"
    shown = ("rollouts", "show", str(started["number"]), "--json")
    assert pair.here(*shown).json == pair.there(*shown).json
    assert pair.there("limits", "forget", "hall-1", "default/asr", "--json").json == {
        "box": "hall-1",
        "items": ["app_limits/default/asr/main"],
        "rev": 3,
    }


@pytest.mark.parametrize("words", [("backup", "x"), ("broker",), ("serve",), ("migrate",), ("tokens",)], ids=" ".join)
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
