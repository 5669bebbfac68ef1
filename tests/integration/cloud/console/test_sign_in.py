"""Sign-in: the first administrator's link, sessions, forms that come too late; and `serve` as a process."""

import asyncio
import re
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from kits.cloudcli import ok
from kits.console import ConsoleSite
from kits.people import CheapHasher
from kits.stores import open_store
from kits.todaysstores import TodaysStores
from starlette.testclient import TestClient

from edgegpu_cloud.console.forwarded import ForwardedAddresses
from edgegpu_cloud.console.people_visitors import PeopleVisitors
from edgegpu_cloud.console.visitor import SESSION_COOKIE
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.layout import CloudLayout, ConsoleConfig, load, proxy_secret
from edgegpu_cloud.people.passwords import HashGate, Passwords
from edgegpu_cloud.people.people import People
from edgegpu_sim.ports import free_port

PASSWORD = "four words are enough here"  # noqa: S105  (a test's)
ROOT = Access("root")


@pytest.fixture
def site(todays_stores: TodaysStores) -> Iterator[ConsoleSite]:
    with todays_stores.opened() as store:
        site = ConsoleSite(store)
        site.use(PeopleVisitors(site.people))
        yield site


def make_admin(site: ConsoleSite, client: TestClient) -> None:
    code = site.people.first_admin_link(by=ROOT)
    page = client.get("/link", params={"code": code})
    assert "The first administrator" in page.text
    form = {"code": code, "name": "anna", "password": PASSWORD, "again": PASSWORD}
    answer = client.post("/link", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/"), answer.text


def csrf(client: TestClient) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', client.get("/").text)
    assert found is not None
    return found[1]


def test_the_first_administrator_comes_in_by_a_link_that_is_good_once(site: ConsoleSite) -> None:
    with site.client("") as client:
        make_admin(site, client)
        assert client.get("/").status_code == 200
        assert client.get("/link", params={"code": "guessed"}).status_code == 400
        answer = client.post("/sign-out", data={"csrf": csrf(client)})
        assert answer.headers["location"] == "/sign-in"
        assert client.get("/").status_code == 303


def test_passwords_that_differ_or_are_weak_keep_the_link_good(site: ConsoleSite) -> None:
    with site.client("") as client:
        code = site.people.first_admin_link(by=ROOT)
        form = {"code": code, "name": "anna", "password": PASSWORD}
        assert "The two passwords differ" in client.post("/link", data={**form, "again": "x"}).text
        weak = client.post("/link", data={**form, "password": "short", "again": "short"})
        assert (weak.status_code, 'value="anna"' in weak.text) == (400, True)
        assert client.post("/link", data={**form, "again": PASSWORD}).status_code == 303


def test_a_wrong_password_and_a_wrong_name_read_the_same_and_no_cookie_is_set(site: ConsoleSite) -> None:
    with site.client("") as admin, site.client("") as client:
        make_admin(site, admin)
        texts = set()
        for name in ("anna", "bert"):
            answer = client.post("/sign-in", data={"name": name, "password": "wrong wrong wrong"})
            assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
            texts.add(answer.text.replace(name, ""))
        assert len(texts) == 1
        answer = client.post("/sign-in", data={"name": "anna", "password": PASSWORD, "next": "/?q=hall"})
        assert answer.headers["location"] == "/?q=hall"
        cookie = answer.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("secure", "httponly", "samesite=lax", "path=/"))


@pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example", "/\\evil.example", "/\r\nX: 1"])
def test_a_sign_in_leads_to_no_other_host(site: ConsoleSite, back: str) -> None:
    with site.client("") as admin, site.client("") as client:
        make_admin(site, admin)
        answer = client.post("/sign-in", data={"name": "anna", "password": PASSWORD, "next": back})
        assert answer.headers["location"] == "/"


def test_too_many_tries_are_answered_with_the_seconds_to_wait(site: ConsoleSite) -> None:
    with site.client("") as client:
        for _ in range(200):
            answer = client.post("/sign-in", data={"name": "anna", "password": "wrong wrong wrong"})
            if answer.status_code == 429:
                break
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1


def test_a_form_that_comes_after_the_session_is_kept_and_sent_again(site: ConsoleSite) -> None:
    with site.client("") as client:
        client.headers["sec-fetch-site"] = "same-origin"
        make_admin(site, client)
        token = csrf(client)
        session = client.cookies[SESSION_COOKIE]
        site.people.sign_out(session)
        late = client.post("/some/form", data={"csrf": token, "memory": "10"})
        assert late.status_code == 404  # no such page: nothing to keep
        late = client.post("/sign-out", data={"csrf": token, "memory": "10", "note": '"><b>'})
        assert late.status_code == 401
        kept = dict(re.findall(r'name="(kept\.[^"]+)" value="([^"]*)"', late.text))
        assert kept == {"kept.memory": "10", "kept.note": "&#34;&gt;&lt;b&gt;"}
        form = {"name": "anna", "password": PASSWORD, "next": "/sign-out", "kept.memory": "10"}
        again = client.post("/sign-in", data=form)
        assert again.status_code == 200
        assert 'name="memory" value="10"' in again.text
        assert 'action="/sign-out"' in again.text


def test_a_form_with_a_password_that_comes_after_the_session_is_not_kept(site: ConsoleSite) -> None:
    with site.client("") as client:
        client.headers["sec-fetch-site"] = "same-origin"
        form = {"current": PASSWORD, "password": "another one of mine", "again": "another one of mine"}
        for referer, back in (("https://console/account", "/account"), ("https://elsewhere/account", "/"), ("", "/")):
            late = client.post("/account/password", data=form, headers={"referer": referer})
            assert (late.status_code, "A password is not kept" in late.text) == (401, True)
            assert f'name="next" value="{back}"' in late.text
            assert not [one for one in (PASSWORD, "another one", "kept.") if one in late.text]
        make_admin(site, client)
        kept = {"kept.password": "another one of mine", "kept.memory": "10", "next": "/account/password"}
        again = client.post("/sign-in", data={"name": "anna", "password": PASSWORD, **kept})
        assert ('name="memory" value="10"' in again.text, "another one" in again.text) == (True, False)


def fetch(asked: str | urllib.request.Request, context: ssl.SSLContext) -> Any:  # noqa: ANN401  (as urllib has it)
    return urllib.request.urlopen(asked, context=context, timeout=20)  # noqa: S310  (https)


@contextmanager
def console_process(folder: Path) -> Iterator[str]:
    """Run the console of a folder as a process; yields its URL."""
    command = [
        sys.executable,
        "-m",
        "edgegpu_cloud.cli.app",
        "serve",
        "--folder",
        str(folder),
        "--no-link",
        "--no-https",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"the console is at (\S+)", process.stderr.readline())
            assert found is not None
            yield found[1]
        finally:
            process.terminate()
            assert process.wait(20) == 0


def test_serve_runs_the_console_beside_the_rest(tmp_path: Path) -> None:
    folder, port = tmp_path / "cloud", free_port()
    done = ok("init", "--name", "127.0.0.1", "--console-port", str(port), "--json", folder=folder)
    assert done.json["console"] == f"https://127.0.0.1:{port}"
    context = ssl.create_default_context(cafile=CloudLayout(folder).ca_cert("servers"))
    with console_process(folder) as url:
        assert url == f"https://127.0.0.1:{port}"
        with fetch(f"{url}/", context) as page:
            assert page.url.startswith(f"{url}/sign-in")
            assert "Sign in" in page.read().decode()
        with fetch(f"{url}/readyz", context) as page:
            assert page.read() == b"ok\n"


def test_that_many_sign_in_at_one_time_has_a_text_of_its_own(site: ConsoleSite) -> None:
    site.gate = HashGate(at_once=1, waiting=0)
    site.people = People(site.store, clock=site.clock, passwords=Passwords(CheapHasher(), site.gate))
    site.use(PeopleVisitors(site.people))
    code = site.people.first_admin_link(by=ROOT)
    with site.client("") as client:
        form = {"name": "anna", "password": PASSWORD}
        with site.gate.passing():
            answer = client.post("/sign-in", data=form)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert "Too many people sign in at this moment. Try again in 5 s." in answer.text
            assert "failed tries" not in answer.text
            assert "此刻登录的人太多" in site.client("", "zh").post("/sign-in", data=form).text
            late = client.post("/link", data={"code": code, "again": PASSWORD, **form})
            assert "too many sign-ins at once" in late.text
        assert client.post("/link", data={"code": code, "again": PASSWORD, **form}).status_code == 303, (
            "it is not used up"
        )


FORGED, SECRET = "203.0.113.9", "a-secret-of-thirty-two-characters"


@pytest.mark.parametrize(
    ("trusted", "secret", "shown", "known"),
    [
        ("", "", "", "127.0.0.1"),
        ("127.0.0.1", "", "", "127.0.0.1"),  # each user of this machine can send from there
        ("127.0.0.0/8", "", "", "127.0.0.1"),
        ("127.0.0.1", "", SECRET, "127.0.0.1"),
        ("127.0.0.1", SECRET, "", "127.0.0.1"),
        ("127.0.0.1", SECRET, f"{SECRET}x", "127.0.0.1"),
        ("10.1.0.7", SECRET, SECRET, "127.0.0.1"),
        ("127.0.0.1", SECRET, SECRET, FORGED),
    ],
)
def test_a_forwarded_address_counts_from_named_proxies_alone(
    tmp_path: Path, trusted: str, secret: str, shown: str, known: str
) -> None:
    folder, port = tmp_path / "cloud", free_port()
    ok("init", "--name", "127.0.0.1", "--console-port", str(port), folder=folder)
    layout = CloudLayout(folder)
    text = layout.config.read_text()
    if trusted:
        text = text.replace("  trusted_proxies: []", f"  trusted_proxies: [{trusted}]")
    if secret:
        file = tmp_path / "secret"
        file.touch(0o600)
        file.write_text(f"{secret}\n")
        text = text.replace("  proxy_secret_file: ''", f"  proxy_secret_file: {file}")
        assert str(file) in text
    layout.config.write_text(text)
    store = open_store(layout.database)
    people = People(store, clock=time.time)
    code = people.first_admin_link(by=ROOT)
    context = ssl.create_default_context(cafile=layout.ca_cert("servers"))
    form = urlencode({"code": code, "name": "anna", "password": PASSWORD, "again": PASSWORD}).encode()
    headers = {"X-Forwarded-For": FORGED, **({"X-Edgegpu-Proxy": shown} if shown else {})}
    with console_process(folder) as url:
        asked = urllib.request.Request(f"{url}/link", form, headers)  # noqa: S310  (https)
        fetch(asked, context).close()
    assert [one.address for one in people.sessions("anna", by=ROOT)] == [known]
    store.close()


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [("short\n", 0o600, "32 characters"), (f"{SECRET}\n", 0o644, "every user"), (f"\n{SECRET}", 0o600, "is empty")],
)
def test_a_secret_of_proxies_that_others_know_or_guess_is_refused(
    tmp_path: Path, text: str, mode: int, words: str
) -> None:
    file = tmp_path / "secret"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(CloudError, match=words):
        proxy_secret(ConsoleConfig(proxy_secret_file=str(file)))


def test_a_proxy_on_another_machine_is_believed_by_its_address() -> None:
    """Addresses of the documentation, which no machine has; the application sees no secret."""
    seen: list[tuple[str, list[bytes]]] = []

    async def application(scope: Any, _receive: object, _send: object) -> None:  # noqa: ANN401  (ASGI's)
        seen.append((scope["client"][0], [name for name, _ in scope["headers"]]))

    async def nothing(*_: object) -> Any:  # noqa: ANN401  (ASGI's)
        pytest.fail("nothing is read or sent")

    for proxies, client in ((["192.0.2.7"], "192.0.2.7"), (["192.0.2.7"], "192.0.2.8")):
        headers = [(b"x-forwarded-for", FORGED.encode()), (b"x-edgegpu-proxy", b"something")]
        scope = {"type": "http", "scheme": "https", "client": (client, 1), "headers": headers}
        asyncio.run(ForwardedAddresses(application, proxies=proxies)(scope, nothing, nothing))
    assert seen == [(FORGED, [b"x-forwarded-for"]), ("192.0.2.8", [b"x-forwarded-for"])]


def test_a_proxy_that_is_not_believed_is_named_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    """Everybody behind it is one address: who set it up reads why."""

    async def application(*_: object) -> Any:  # noqa: ANN401  (ASGI's)
        pass

    def ask(guard: ForwardedAddresses, client: str, *headers: tuple[bytes, bytes]) -> None:
        scope = {"type": "http", "scheme": "https", "client": (client, 1), "headers": list(headers)}
        asyncio.run(guard(scope, application, application))

    forwards = (b"x-forwarded-for", FORGED.encode())
    unnamed = ForwardedAddresses(application, proxies=[])
    ask(unnamed, "192.0.2.7")
    assert not caplog.records, "who forwards nothing is a browser"
    ask(unnamed, "192.0.2.7", forwards)
    ask(unnamed, "192.0.2.7", forwards)
    ask(unnamed, "192.0.2.8", forwards)
    secret = ForwardedAddresses(application, proxies=["192.0.2.0/24"], secret=SECRET)
    ask(secret, "192.0.2.9", forwards, (b"x-edgegpu-proxy", SECRET.encode()))
    ask(secret, "192.0.2.9", forwards)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" forwards")[0] for line in lines] == [
        "what 192.0.2.7",
        "what 192.0.2.8",
        "what 192.0.2.9",
    ]
    assert "console.trusted_proxies" in lines[0]
    assert "X-Edgegpu-Proxy" in lines[2]
    for number in range(100):
        ask(unnamed, f"198.51.100.{number}", forwards)
    assert len(caplog.records) < 20, "anybody may send that header"


def test_a_proxy_is_named_by_its_address(tmp_path: Path) -> None:
    ok("init", "--name", "127.0.0.1", folder=tmp_path / "cloud")
    config = CloudLayout(tmp_path / "cloud").config
    config.write_text(config.read_text().replace("  trusted_proxies: []", "  trusted_proxies: [proxy.example]"))
    with pytest.raises(CloudError, match=r"'proxy\.example' is not an address"):
        load(config)


def test_a_console_without_its_store_is_not_ready(tmp_path: Path) -> None:
    store = open_store(tmp_path / "controller.db")
    site = ConsoleSite(store)
    with site.client("") as client:
        assert client.get("/readyz").status_code == 200
        store.close()
        (tmp_path / "controller.db").write_bytes(b"this is no database" * 100)
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
