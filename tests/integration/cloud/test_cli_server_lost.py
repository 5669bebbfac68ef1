"""`edgegpu-cloud --server` over a bad network: an answer is lost, the request is sent again, and it is done once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pytest
from kits.cert import Authority
from kits.cloudcli import Done, run
from kits.console import ConsoleSite
from kits.details import box, card, pod
from kits.faultproxy import FaultProxy
from kits.stores import open_store

from edgegpu_cloud.cli.remote.client import CA_FILE, TOKEN, TOKEN_FILE, ApiClient
from edgegpu_cloud.console.api.problems import problem
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.idempotency import TAKEN_OVER_S

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Loss = Literal["cut", "302", "502", "503", "504", "in flight"]
SEEN = "idempotency-key"


@dataclass
class LossyApp:
    """An application of which answers are lost: it has done what was asked when the connection is cut.

    `losses` are those of the next requests; `keys` the keys of all requests that change something.
    """

    app: ASGIApp
    cut: Callable[[], object] = lambda: None
    losses: list[Loss] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "GET":
            await self.app(scope, receive, send)
            return
        self.keys.append({name.decode(): value.decode() for name, value in scope["headers"]}[SEEN])
        if not self.losses:
            await self.app(scope, receive, send)
            return
        loss = self.losses.pop(0)

        if loss == "in flight":
            await problem(409, "IN_FLIGHT", "it is being done")(scope, receive, send)
            return

        if loss == "302":
            headers = [(b"location", b"https://elsewhere.example.com/")]
            await send({"type": "http.response.start", "status": 302, "headers": headers})
            await send({"type": "http.response.body"})
            return

        async def swallow(_: Message) -> None:
            pass

        await self.app(scope, receive, swallow)
        if loss == "cut":
            await asyncio.to_thread(self.cut)
            return
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": int(loss), "headers": headers})
        await send({"type": "http.response.body", "body": b"<h1>Bad gateway</h1>"})


@dataclass(frozen=True)
class Far:
    """A controller behind a proxy that loses answers."""

    url: str
    site: ConsoleSite
    lossy: LossyApp
    ca: str

    def run(self, *words: str) -> Done:
        return run("--server", self.url, *words)

    def audited(self, what: str) -> int:
        """Return how many changes of a kind were made."""
        return len(self.site.api().get(f"/audit?what={what}").json()["items"])


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    store = open_store(tmp_path / "controller.db")
    site = ConsoleSite(store, now_s=time.time())
    device = site.add(1, "hall-1", site="hall")
    pods = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 10, 1))}
    site.report(device, box("hall-1", (card("0"),), pods, cluster="0" * 36))
    authority = Authority("authority")
    ca = tmp_path / "ca.crt"
    ca.write_text(authority.pem)
    monkeypatch.setenv(CA_FILE, str(ca))
    monkeypatch.setenv(TOKEN, "egt_otto")
    lossy = LossyApp(site.app)
    api, site.app = site.app, lossy
    with site.served(tmp_path, authority) as url, FaultProxy(int(url.rpartition(":")[2])) as proxy:
        site.app = api  # what this test asks itself is not lost
        lossy.cut = proxy.cut
        yield Far(f"https://127.0.0.1:{proxy.port}", site, lossy, str(ca))
    store.close()


@pytest.mark.parametrize("loss", ["cut", "502", "503", "504", "in flight"])
def test_a_change_whose_answer_is_lost_is_stored_once(far: Far, loss: Loss) -> None:
    far.lossy.losses = [loss]
    done = far.run("command", "hall-1", "doctor.run", "--json")
    assert done.code == 0, done.err + done.out
    (stored,) = far.run("commands", "--json").json
    assert stored["id"] == done.json["id"], "the answer is that of the one that was stored"
    first, again = far.lossy.keys
    assert first == again
    far.lossy.losses = [loss, loss]
    words = ("limits", "set", "hall-1", "default/asr", "--container", "main", "--memory", "4", "--json")
    assert far.run(*words).json["rev"] == 1
    assert far.audited("box.spec") == 1
    far.lossy.losses = [loss]
    assert far.run("limits", "forget", "hall-1", "default/asr", "--json").json["rev"] == 2
    far.lossy.losses = [loss]
    assert far.run("label", "hall-1", "rack=3").code == 0
    assert far.audited("box.labels") == 1


def test_two_requests_of_one_text_are_two_changes(far: Far) -> None:
    words = ("limits", "set", "hall-1", "default/asr", "--container", "main", "--memory", "4", "--json")
    assert [far.run(*words).json["rev"] for _ in range(2)] == [1, 2], "the same limits again are tried again"


def test_what_is_lost_for_good_is_told_after_some_tries(far: Far) -> None:
    pauses: list[float] = []
    client = ApiClient(far.url, "egt_otto", ca=far.ca, sleep=pauses.append)
    far.lossy.losses = ["cut"] * 10
    with pytest.raises(CloudError, match="cannot reach") as caught:
        client.send("POST", "/boxes/hall-1/commands", {"op": "doctor.run"})
    assert "may have been made" in caught.value.remedy
    assert (len(far.lossy.keys), len(set(far.lossy.keys))) == (len(pauses) + 1, 1)
    assert pauses == sorted(pauses)
    far.lossy.losses = ["503"] * 10
    with pytest.raises(CloudError, match="status 503") as caught:
        client.send("POST", "/boxes/hall-1/commands", {"op": "doctor.run"})
    assert "may have been made" in caught.value.remedy
    far.lossy.losses.clear()
    client.close()
    assert len(far.run("commands", "--json").json) == 2, "each change was made once"


def test_a_try_that_died_is_waited_for_until_the_controller_takes_it_over(far: Far) -> None:
    pauses: list[float] = []
    client = ApiClient(far.url, "egt_otto", ca=far.ca, sleep=pauses.append)
    far.lossy.losses = ["in flight"] * 16
    assert client.send("POST", "/boxes/hall-1/commands", {"op": "doctor.run"})["id"]
    assert sum(pauses) > TAKEN_OVER_S
    assert len(set(far.lossy.keys)) == 1
    far.lossy.losses = ["in flight"] * 100
    with pytest.raises(CloudError, match="being done") as caught:
        client.send("POST", "/boxes/hall-1/commands", {"op": "doctor.run"})
    assert "may have been made" in caught.value.remedy
    far.lossy.losses.clear()
    client.close()


def test_an_answer_that_sends_elsewhere_is_no_success(far: Far) -> None:
    far.lossy.losses = ["302"]
    done = far.run("label", "hall-1", "rack=3")
    assert done.code == 1
    assert "https://elsewhere.example.com/" in done.err
    assert far.audited("box.labels") == 0


def test_a_token_that_is_more_than_one_word_is_refused_and_not_printed(
    far: Far, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(TOKEN, "egt_otto\nsecret-second")
    done = far.run("boxes", "--json")
    assert done.code == 1
    assert "not one word" in done.out + done.err
    assert "egt_otto" not in done.out + done.err
    monkeypatch.delenv(TOKEN)
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text("# mine\negt_otto\n")
    monkeypatch.setenv(TOKEN_FILE, str(file))
    done = far.run("boxes")
    assert done.code == 1
    assert "not one word" in done.err
    assert "egt_otto" not in done.out + done.err


def test_who_is_not_there_is_told_at_once() -> None:
    pauses: list[float] = []
    client = ApiClient("https://127.0.0.1:1", "egt_otto", sleep=pauses.append)
    for method in ("GET", "POST"):
        with pytest.raises(CloudError, match="cannot reach") as caught:
            client.send(method, "/boxes")
        assert "does it run" in caught.value.remedy
    assert pauses == []
    client.close()
