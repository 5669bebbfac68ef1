"""HAProxy as docs/examples/haproxy.cfg has it, before two web processes on one PostgreSQL."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from kits import haproxy
from kits.browser import browser
from kits.cloudcli import ok
from kits.haproxy import DEBIANS, FILE, HOST, OWNER, PAST_IT, STRANGER, ProxySite, need_haproxy, proxy_site, session_of
from kits.mqtt import wait_for
from playwright.sync_api import BrowserContext, Page, expect

from edgegpu_cloud.console.visitor import SESSION_COOKIE
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.http.server import CONNECTIONS
from edgegpu_cloud.layout import CloudLayout, load, store_url
from edgegpu_cloud.store.records import EnrolledBox
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.ids import device_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kits.postgres import PostgresServer

pytestmark = pytest.mark.timeout(600)
WRONG = "not the password"
AGAIN_MS = 30_000
CROWD, GREEDY, SLOW = "127.0.0.6", "127.0.0.7", "127.0.0.8"


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[ProxySite]:
    with proxy_site(tmp_path_factory.mktemp("proxied"), postgres_server.new_database()) as site:
        yield site


@pytest.fixture
def store(proxied: ProxySite) -> Iterator[ControllerStore]:
    """Yield the store of both processes."""
    layout = CloudLayout(proxied.folder)
    found = ControllerStore.open(store_url(layout, load(layout.config).database), create=False)
    yield found
    found.close()


def add(store: ControllerStore, number: int, name: str) -> None:
    """Enrol a box."""
    device = device_id(f"{number:016d}")
    box = EnrolledBox(device=device, enrolment=1, public="A" * 43, instance="ab" * 32, name=name, labels={})
    with store.write() as tx:
        add_box(tx, box, Author("setup", time.time()))


def sign_ins(store: ControllerStore, since: int) -> list[tuple[str, Any]]:
    """Return what the audit has of sign-ins after an entry, oldest first: result and address."""
    with store.read() as tx:
        found = [one for one in reversed(tx.notes.audits(limit=1_000)) if one.number > since]
    return [(one.detail["result"], one.detail["address"]) for one in found if "address" in one.detail]


def newest(store: ControllerStore) -> int:
    with store.read() as tx:
        return max((one.number for one in tx.notes.audits(limit=1)), default=0)


def test_a_sign_in_through_one_process_is_valid_at_the_other(proxied: ProxySite) -> None:
    for console in proxied.consoles:
        session = session_of(proxied.sign_in(at=console))
        asked = [*proxied.consoles, 0, 0]
        assert [proxied.ask("/", at=at, session=session).status for at in asked] == [200] * 4
    assert proxied.ask("/", session="").status == 303
    names = [f"consoles/console-{number} " in proxied.log for number in (1, 2)]
    assert names == [True, True]


def test_a_lock_and_the_audit_have_the_clients_address_and_none_that_it_claims(
    proxied: ProxySite, store: ControllerStore
) -> None:
    claims = {"X-Forwarded-For": OWNER}
    since = newest(store)
    wait_for(
        lambda: proxied.sign_in(WRONG, source=STRANGER, headers=claims).status == 429, what="the stranger is shut out"
    )
    assert set(sign_ins(store, since)) == {("refused", STRANGER)}
    since = newest(store)
    session_of(proxied.sign_in())  # whose address has signed in before
    assert sign_ins(store, since) == [("done", OWNER)]


def test_who_is_no_proxy_forwards_nothing(proxied: ProxySite, store: ControllerStore) -> None:
    since = newest(store)
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
        value = f"for={OWNER}" if header == "Forwarded" else OWNER
        answer = proxied.sign_in(WRONG, at=proxied.consoles[0], source=PAST_IT, headers={header: value})
        assert answer.status in {401, 429}
    assert {address for _, address in sign_ins(store, since)} <= {PAST_IT}
    answer = proxied.ask(
        "/sign-in",
        {"name": "nobody", "password": WRONG},
        at=proxied.consoles[0],
        source=PAST_IT,
        session="",
        headers={"X-Forwarded-For": OWNER},
    )
    assert answer.status == 401
    assert sign_ins(store, since)[-1] == ("refused", PAST_IT)


def test_a_process_on_the_proxys_machine_forwards_nothing_without_the_secret(
    proxied: ProxySite, store: ControllerStore
) -> None:
    """From the proxy's own address, which each user of the machine can send from."""
    for shown in ("", "a guess", "x" * 40):
        since = newest(store)
        headers = {"X-Forwarded-For": "203.0.113.9", **({"X-Edgegpu-Proxy": shown} if shown else {})}
        name = {"name": f"nobody-{len(shown)}", "password": WRONG}
        answer = proxied.ask("/sign-in", name, at=proxied.consoles[0], source=HOST, session="", headers=headers)
        assert answer.status == 401
        assert sign_ins(store, since) == [("refused", HOST)]


def test_events_pass_as_they_come(proxied: ProxySite) -> None:
    connection = proxied.connection()
    connection.request("GET", "/live", headers={"Cookie": f"{SESSION_COOKIE}={proxied.session}"})
    stream = connection.getresponse()
    assert stream.readline() == b"event: hello\r\n"
    ok("enrol", "--name", "hall-1", folder=proxied.folder)
    events = (line for line in iter(stream.readline, b"") if line.startswith(b"data: ["))
    assert next(events) == b'data: ["all"]\r\n'  # it has not said which page it is for
    assert next(events) == b'data: ["enrol"]\r\n'
    connection.close()


def test_a_source_that_takes_all_connections_takes_them_from_itself(proxied: ProxySite) -> None:
    """The consoles cannot tell: each of their connections is the proxy's."""
    with ExitStack() as stack:
        connections = 0
        while (connection := proxied.handshake(CROWD)) is not None:
            stack.callback(connection.close)
            connections += 1
            assert connections <= haproxy.CONNECTIONS
        assert connections == haproxy.CONNECTIONS
        assert proxied.ask("/").status == 200, "others get in"

    def is_free_again() -> bool:
        connection = proxied.handshake(CROWD)
        if connection is not None:
            connection.close()
        return connection is not None

    wait_for(is_free_again, what="the places of the source are free again")


def test_a_source_that_asks_all_the_time_is_told_so_and_others_are_not(proxied: ProxySite) -> None:
    """The test's file counts over minutes, for a machine that answers slowly."""
    connection = proxied.connection(source=GREEDY)
    statuses: list[int] = []
    while 429 not in statuses:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
        assert len(statuses) <= 1_001
    connection.close()
    assert set(statuses[:-1]) == {200}
    assert len(statuses) == 1_001
    assert proxied.ask("/").status == 200


def test_a_form_that_never_ends_reaches_no_console(proxied: ProxySite) -> None:
    connection = proxied.handshake(SLOW)
    assert connection is not None
    head = f"POST /sign-in HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    connection.sendall(f"{head}Content-Length: 100\r\n\r\nname=".encode())
    connection.shutdown(socket.SHUT_WR)
    lines: list[str] = []

    def is_logged() -> bool:
        lines[:] = [line for line in proxied.log.splitlines() if line.startswith(f"{SLOW}:")]
        return bool(lines)

    wait_for(is_logged, what="the proxy has logged the request that broke off")
    connection.close()
    [line] = lines
    assert "/<NOSRV> " in line, line


def test_the_example_keeps_to_a_consoles_places() -> None:
    [most] = re.findall(r"(?m)^  default-server maxconn (\d+)$", FILE.read_text())
    assert int(most) < CONNECTIONS


@pytest.fixture
def context(proxied: ProxySite) -> Iterator[BrowserContext]:
    """Yield a Chromium that is signed in, in which streams may break."""
    with browser(proxied.url, proxied.session, expected=("net::ERR_",)) as found:
        yield found


def fleet_page(proxied: ProxySite, context: BrowserContext) -> Page:
    page = context.new_page()
    with page.expect_response("**/live?*"):
        page.goto(proxied.url)
    return page


def test_a_process_that_is_killed_costs_no_answer_no_session_and_no_page(
    proxied: ProxySite, store: ControllerStore, context: BrowserContext
) -> None:
    page = fleet_page(proxied, context)
    for number, console in enumerate(proxied.consoles, 11):
        proxied.kill(console)
        assert [proxied.ask("/").status for _ in range(10)] == [200] * 10
        session_of(proxied.sign_in())
        add(store, number, f"killed-{number}")
        expect(page.get_by_text(f"killed-{number}")).to_be_visible(timeout=AGAIN_MS)
        expect(page.locator("[data-link-state]")).to_be_hidden(timeout=AGAIN_MS)
        proxied.start(console)
        up = f"/console-{number - 10} is UP"
        wait_for(lambda up=up: up in proxied.log, what="the proxy has seen it")  # type: ignore[misc]  # mypy cannot infer a default's type


def test_a_process_that_stands_still_loses_its_pages_to_the_other(
    proxied: ProxySite, store: ControllerStore, context: BrowserContext
) -> None:
    page = fleet_page(proxied, context)
    for number, console in enumerate(proxied.consoles, 21):
        proxied.processes[console].send_signal(signal.SIGSTOP)
        add(store, number, f"stopped-{number}")
        expect(page.get_by_text(f"stopped-{number}")).to_be_visible(timeout=AGAIN_MS)
        proxied.processes[console].send_signal(signal.SIGCONT)
        wait_for(lambda console=console: proxied.is_ready(console), what="it goes on")  # type: ignore[misc]  # mypy cannot infer a default's type


def test_debians_own_configuration_takes_the_file_beside_it(proxied: ProxySite) -> None:
    if not DEBIANS.exists():
        pytest.skip(f"no {DEBIANS}: HAProxy is not Debian's")
    words = [need_haproxy(), "-c", "-f", str(DEBIANS), "-f", str(proxied.work / "edgegpu.cfg")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, "[WARNING]" in done.stderr) == (0, False), done.stderr
