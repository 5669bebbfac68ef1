"""`edgegpu-cloud people` and the first admin's link of `init`, as they are typed."""

import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from kits.cloudcli import ok, run
from kits.people import NOW_S, PASSWORD, StillClock

from edgegpu_cloud.people.errors import LinkRefusedError
from edgegpu_cloud.people.people import People
from edgegpu_cloud.store.store import ControllerStore

OTHER = "rain on a tin roof"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ok("init", "--name", "127.0.0.1", "--json", folder=tmp_path / "cloud")
    return tmp_path / "cloud"


def people(folder: Path) -> People:
    return People(ControllerStore.open_file(folder / "controller.db"), clock=StillClock(NOW_S))


def code_of(link: str) -> str:
    url = urlsplit(link)
    assert (url.scheme, url.netloc, url.path) == ("https", "127.0.0.1:8444", "/link")
    return parse_qs(url.query)["code"][0]


def test_init_prints_a_link_by_which_the_first_admin_comes_in(tmp_path: Path) -> None:
    folder = tmp_path / "cloud"
    link = ok("init", "--name", "127.0.0.1", "--json", folder=folder).json["admin_link"]
    another = ok("people", "link", "--json", folder=folder).json["link"]
    assert ok("people", "list", folder=folder).out == "no people yet\n"
    for one, is_good in ((link, False), (another, True)):
        done = redeem(folder, one)
        assert done is is_good
    (anna,) = ok("people", "list", "--json", folder=folder).json
    assert (anna["name"], anna["role"], anna["scope"], anna["state"]) == ("anna", "admin", "", "active")
    refused = run("people", "link", folder=folder)
    assert refused.code == 1
    assert "there is an admin, anna" in refused.err


def redeem(folder: Path, link: str) -> bool:
    """Use a link as the console does; return whether it was good."""
    with_store = People(ControllerStore.open_file(folder / "controller.db"), clock=StillClock(1.0))
    try:
        with_store.redeem(code_of(link), "anna", PASSWORD)
    except LinkRefusedError:
        return False
    return True


def test_a_controller_without_a_console_has_no_links(tmp_path: Path) -> None:
    folder = tmp_path / "cloud"
    assert ok("init", "--name", "127.0.0.1", "--no-console", "--json", folder=folder).json["admin_link"] == ""
    for words in (("people", "link"), ("people", "add", "bea")):
        refused = run(*words, folder=folder)
        assert refused.code == 1
        assert "serves no console" in refused.err
    assert ok("people", "list", "--json", folder=folder).json == []


def test_a_person_from_the_first_command_to_the_last(folder: Path) -> None:
    added = ok("people", "add", "Bea", "--role", "operator", "--scope", "site=hall", "--json", folder=folder).json
    assert (added["name"], added["role"], added["scope"]) == ("bea", "operator", "site=hall")
    assert "invited" in ok("people", "list", folder=folder).out
    ok("people", "reset-password", "bea", "--stdin", folder=folder, stdin=f"{OTHER}\n")
    signed_in = people(folder).sign_in("bea", OTHER, address="10.0.0.1")
    assert ok("people", "role", "bea", "admin", folder=folder).out == "bea is admin\n"
    assert ok("people", "scope", "bea", "", folder=folder).out == "bea sees all boxes\n"
    made = ok("people", "tokens", "bea", "--add", "ci", "--role", "viewer", "--days", "3", "--json", folder=folder).json
    assert made["token"].startswith("egt_")
    (listed,) = ok("people", "tokens", "bea", "--json", folder=folder).json
    assert listed["name"] == "ci"
    assert made["token"] not in str(listed)
    assert ok("people", "tokens", "bea", "--revoke", "ci", "--json", folder=folder).json == []
    ok("people", "reset-password", "bea", "--json", folder=folder)
    refused = run("people", "role", "bea", "viewer", folder=folder)
    assert refused.code == 1
    assert "no enabled admin" in refused.err
    assert people(folder).session(signed_in.session_token)
    redeem(folder, ok("people", "add", "anna", "--role", "admin", "--json", folder=folder).json["link"])
    ok("people", "disable", "bea", folder=folder)
    assert people(folder).session(signed_in.session_token) is None
    ok("people", "enable", "bea", folder=folder)
    assert run("people", "remove", "bea", "--json", folder=folder).code == 1
    assert ok("people", "remove", "bea", "--yes", "--json", folder=folder).json == {"name": "bea", "removed": True}
    assert [one["name"] for one in ok("people", "list", "--json", folder=folder).json] == ["anna"]


def test_sessions_are_listed_and_ended(folder: Path) -> None:
    ok("people", "add", "bea", folder=folder)
    ok("people", "reset-password", "bea", "--stdin", folder=folder, stdin=OTHER)
    store = ControllerStore.open_file(folder / "controller.db")
    for browser in ("Firefox", "Safari", "Chromium"):
        People(store, clock=time.time).sign_in("bea", OTHER, address="10.0.0.1", agent=browser)
    listed = ok("people", "sessions", "bea", "--json", folder=folder).json
    assert [one["agent"] for one in listed] == ["Firefox", "Safari", "Chromium"]
    left = ok("people", "sessions", "bea", "--end", listed[0]["id"], "--json", folder=folder).json
    assert [one["agent"] for one in left] == ["Safari", "Chromium"]
    assert ok("people", "sessions", "bea", "--end-all", folder=folder).out == "no sessions\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("add", "No Name"), "cannot call a person"),
        (("add", "bea", "--scope", "="), "cannot select boxes"),
        (("role", "nobody", "viewer"), "cannot find a person"),
        (("reset-password", "nobody"), "cannot find a person"),
        (("tokens", "nobody"), "cannot find a person"),
    ],
)
def test_what_cannot_be_is_said(folder: Path, words: tuple[str, ...], why: str) -> None:
    refused = run("people", *words, folder=folder)
    assert refused.code == 1
    assert why in refused.err
    assert "edgegpu-cloud: " in refused.err


def test_a_weak_password_is_refused(folder: Path) -> None:
    ok("people", "add", "bea", folder=folder)
    refused = run("people", "reset-password", "bea", "--stdin", folder=folder, stdin="short\n")
    assert refused.code == 1
    assert "fewer than 12 characters" in refused.err
    assert "short" not in refused.err.replace("cannot take this password", "")
