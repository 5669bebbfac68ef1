"""No secret in logs, pages, the API, command lines or files: a day on a real controller, then all of it is searched.

What shows a secret for a reason names it with `shows=`, once each: the answer that begins a session (its cookie), the
page of a one-time link (its form sends the code back), and the answers in which a link or a token was made.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import os
import re
import secrets
import stat
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import urllib3
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fastapi.routing import APIRoute
from kits.cloudday import DaySite, code_in
from kits.enrol import Box
from kits.livebox import LiveBox
from kits.mqtt import wait_for
from kits.secretbook import Outputs, SecretBook
from kits.webhooks import receiving
from kits.webvisitor import Answer, ApiClient, Person
from markupsafe import escape

from edgegpu_base.x509 import key_pem
from edgegpu_cloud.console.api.app import make_api
from edgegpu_cloud.console.web import ROUTERS
from edgegpu_cloud.enrolment.bodies import EnrolmentGranted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROLES = ("anna", "olga", "vera")
"""An admin, an operator, a viewer."""

pytestmark = pytest.mark.timeout(600)

PATH = "the path of a webhook"
STREAMS = {"/live", "/api/v1/events"}


class Day:
    """What is done on a controller in a day; each secret is written down as it is made."""

    def __init__(self, work: Path, hook: tuple[str, str]) -> None:
        self.site, self.work = DaySite(work), work
        self.book = self.site.book
        self.people: dict[str, Person] = {}
        self.now: dict[str, str] = {}
        self.programs: dict[str, ApiClient] = {}
        self.hook, self.webhook = hook[0].rpartition("/")[0], ""
        self.first = self.site.init()
        secret = self.book.add("the webhook's secret", f"signs {secrets.token_hex(16)}")
        self.book.add("the webhook's path", hook[0].partition("/hook/")[2])
        self.site.configure(*hook, secret)
        self.office = self.site.box("a box")
        self.device = ""
        self.modes: dict[Path, tuple[int, int]] = {}
        self.live = ExitStack()

    def password(self, whose: str) -> str:
        """Return a new password with characters that each form of writing escapes."""
        return self.book.add(f"a password of {whose}", f'"{whose}" & <{secrets.token_hex(8)}> +ä% \\ "')

    # people

    def comes_in(self, who: str, code: str, link: str) -> None:
        """Use a one-time link: once with passwords that differ, then rightly."""
        person = self.people[who] = self.site.person(who)
        person.get(f"/link?code={code}", shows=[link])
        password = self.password(who)
        form = {"code": code, "name": who, "password": password}
        assert person.post("/link", {**form, "again": self.password(who)}, shows=[link]).status == 400
        person.enter("/link", {**form, "again": password})
        self.now[who] = password
        assert person.get(f"/link?code={code}", shows=[link]).status == 400, "it was used"

    def made_link(self, answer: Answer, name: str) -> str:
        return self.book.add(name, code_in(answer.text))

    def signs_in(self) -> None:
        """Bring the first admin in, then the others; some sign-ins fail."""
        self.comes_in("anna", self.first, "the first admin's link")
        for who, role in (("olga", "operator"), ("vera", "viewer")):
            link = f"the link of {who}"
            made = self.people["anna"].post("/people", {"name": who, "role": role}, shows=[link])
            self.comes_in(who, self.made_link(made, link), link)
        stranger = self.site.person("a stranger")
        for name in ("anna", "nobody"):
            wrong = self.password("a stranger")
            assert stranger.post("/sign-in", {"name": name, "password": wrong}).status == 401
        typed = self.book.add("a password that was typed as the name", secrets.token_hex(16))
        shown = ["a password that was typed as the name"]  # the form keeps the name, for who has typed it
        assert stranger.post("/sign-in", {"name": typed, "password": typed}, shows=shown).status == 401
        assert stranger.get("/link?code=" + secrets.token_urlsafe(32)).status == 400

    def invites(self) -> None:
        """Make a link on the command line that nobody uses, and one for the first admin where there is one."""
        name = "a link of the command line"
        self.book.add(name, code_in(self.site.cli("people", "add", "otto", "--json", shows=[name])))
        self.site.cli("people", "link", code=1)

    def changes_passwords(self) -> None:
        """Change passwords, by oneself and by a link; end sessions; send a form when the session has ended."""
        anna, vera = self.people["anna"], self.people["vera"]
        current, new = self.now["vera"], self.password("vera")
        for given in (self.password("vera"), current):
            vera.post("/account/password", {"current": given, "password": new, "again": new})
        name = "another link of vera"
        code = self.made_link(anna.post("/people/vera/link", {}, shows=[name]), name)
        assert anna.post("/people/vera/sessions/end", {}).status == 303
        late = {"current": new, "password": self.password("vera"), "again": self.password("vera")}
        answer = vera.post("/account/password", late)
        assert (answer.status, "A password is not kept" in answer.text) == (401, True)
        assert (
            'name="next" value="/account"' in vera.post("/account/password", late, referer=f"{vera.url}/account").text
        )
        answer = vera.post("/account/language", {"language": "en"})
        assert 'name="kept.language" value="en"' in answer.text
        form = {"name": "vera", "password": new, "next": "/account/language", "kept.language": "en"}
        answer = vera.enter("/sign-in", {**form, "kept.again": self.password("vera")})
        assert 'name="language" value="en"' in answer.text
        link = self.site.person("vera at home")
        password = self.password("vera")
        link.enter("/link", {"code": code, "password": password, "again": password})
        password = self.password("vera")
        self.site.cli("people", "reset-password", "vera", "--stdin", stdin=f"{password}\n")
        vera.enter("/sign-in", {"name": "vera", "password": password})
        self.now["vera"] = password

    # tokens

    def makes_tokens(self) -> None:
        """Make an API token for each role, on the page and on the command line, and enrolment tokens in every way."""
        for who, role in zip(ROLES, ("admin", "operator", "viewer"), strict=True):
            name = f"the API token of {who}"
            answer = self.people[who].post("/account/tokens", {"name": "program", "role": role}, shows=[name])
            self.programs[who] = self.site.program(f"{who}'s program", self.book.add(name, api_token_in(answer.text)))
        name = "an API token of the command line"
        said = self.site.cli("people", "tokens", "olga", "--add", "prometheus", "--json", shows=[name])
        self.book.add(name, json.loads(said)["token"])
        self.site.cli("people", "tokens", "olga", "--revoke", "prometheus")
        wrong = self.book.add("an API token that nobody knows", f"egt_{secrets.token_urlsafe(32)}")
        self.programs["nobody"] = self.site.program("nobody's program", wrong)
        self.programs["no token"] = self.site.program("a program without a token", "")

    def enrol_token(self, how: str) -> str:
        """Make an enrolment token in a way, and return it."""
        name, form = f"an enrolment token ({how})", {"name": "hall", "boxes": "2"}
        olga, program = self.people["olga"], self.programs["olga"]
        match how:
            case "page":
                text = enrol_token_in(olga.post("/enrol/tokens", form, shows=[name]).text)
            case "approval":
                text = enrol_token_in(olga.post("/enrol/tokens", {**form, "approval": "true"}, shows=[name]).text)
            case "file":
                answer = olga.post("/enrol/tokens", {**form, "each": "true"}, shows=[name])
                rows = list(csv.DictReader(io.StringIO(answer.text)))
                text = [self.book.add(name, one["token"]) for one in rows][-1]
            case "replace":
                text = enrol_token_in(olga.post(f"/boxes/{self.device}/replace", {}, shows=[name]).text)
            case "API":
                key = self.book.add("an idempotency key", secrets.token_hex(16))
                for _ in range(2):
                    answer = program.post("/enrolment/tokens", {"uses": 5}, shows=[name], idempotency_key=key)
                text = answer.json["token"]
            case _:
                text = json.loads(self.site.cli("enrol", "--count", "5", "--json", shows=[name]))["token"]
        return self.book.add(name, text)

    # boxes

    def asks(self, box: Box, status: int) -> Any:  # noqa: ANN401  (whatever the controller answers)
        """Ask to be enrolled as a box does."""
        for what, pem in (("TLS", key_pem(box.tls)), ("signing", sign_pem(box))):
            self.book.add_key(f"a box's {what} key", pem)
        answer = self.office.send("POST", "/v1/enrol", json.dumps(box.ask()).encode())
        assert answer.status == status, answer.text
        return answer.json

    def takes_boxes_in(self) -> None:
        """Enrol boxes: one that stays on the link, one that waits for a person, some that are refused."""
        hand = Box(self.enrol_token("page"))
        granted = EnrolmentGranted.model_validate_json(json.dumps(self.asks(hand, 200)))
        self.device = granted.device
        self.live.enter_context(LiveBox(self.work / "box", hand, granted))
        self.wait_online()
        waiting = Box(self.enrol_token("approval"), host="asr-7")
        self.asks(waiting, 202)
        (attempt,) = self.programs["olga"].get("/enrolment/attempts").json["items"]
        self.people["olga"].post(f"/enrol/waiting/{attempt['id']}/approve", {})
        self.asks(waiting, 200)
        once = self.enrol_token("file")
        with self.site.refusing("alert_deliveries"):  # the message about the alarm cannot be stored
            for status in (200, 403):
                self.asks(Box(once, host="plant"), status)
            wait_for(lambda: b"cannot look for alerts" in self.site.log("serve.log"), what="an alert's message")
        self.asks(Box(self.book.add("an enrolment token that nobody knows", secrets.token_hex(16))), 401)
        self.asks(Box(self.enrol_token("API"), instance=hand.instance, host="another"), 403)
        self.enrol_token("replace")
        self.enrol_token("command line")
        self.office.send("POST", f"/v1/enrol?token={once}", b"{")
        self.office.send("POST", "/v1/renew", json.dumps({"token": once}).encode(), edgegpu_signature=once)

    def wait_online(self) -> None:
        path = f"/boxes/{self.device}"
        wait_for(lambda: bool(self.programs["anna"].get(path).json["connected"]), what="the box is online")

    # changes

    def changes_boxes(self) -> None:
        """Set limits with `--server`, roll settings out, run an operation, send a test to the webhook."""
        token = self.work / "token"
        token.touch(mode=0o600)
        token.write_text(self.book.texts["the API token of olga"])
        env = {"EDGEGPU_CLOUD_TOKEN_FILE": str(token), "EDGEGPU_CLOUD_CA": str(self.site.ca)}
        there = ("--server", self.site.console_url)
        limits = ("limits", "set", "hall-1", "default/asr", "--container", "main", "--memory", "4", "--wait")
        self.site.cli(*there, *limits, env=env)
        start = ("rollouts", "start", "sharing", "--policy", "spread", "--box", "hall-1", "--yes", "--wait")
        self.site.cli(*there, *start, env=env)
        token.write_text(self.book.add("a wrong API token", f"egt_{secrets.token_urlsafe(32)}"))
        self.site.cli(*there, "boxes", env=env, code=1)
        change = {"kind": "command", "op": "doctor.run"}
        made = self.programs["olga"].post("/operations", {"change": change, "devices": [self.device]})
        assert made.status == 202, made.text
        ended = {"DONE", "FAILED"}
        wait_for(
            lambda: self.programs["olga"].get(f"/operations/{made.json['id']}").json["state"] in ended, what="its end"
        )
        assert self.people["anna"].post("/alerts/test", {}).status == 303

    def makes_webhooks(self) -> None:
        """Make webhooks on the page and by the API; some are refused, one gets a test."""
        anna, name, url, typed = self.people["anna"], "the secret of a webhook", self.new_hook(), [PATH]
        answer = anna.post("/alerts/webhooks", {"url": url}, shows=[name])
        (secret,) = re.findall(r"<pre><code>([0-9a-f]{64})</code></pre>", answer.text)
        self.book.add(name, secret)
        assert anna.post("/alerts/webhooks", {"url": url}, shows=typed).status == 400, "the form keeps what was typed"
        with self.site.refusing("webhooks"):
            assert anna.post("/alerts/webhooks", {"url": self.new_hook()}, shows=typed).status == 400
        key, body = self.book.add("an idempotency key", secrets.token_hex(16)), {"url": self.new_hook()}
        for _ in range(2):
            answer = self.programs["anna"].post("/alerts/webhooks", body, shows=[name], idempotency_key=key)
        self.book.add(name, answer.json["secret"])
        self.webhook = answer.json["id"]
        assert self.programs["olga"].post("/alerts/webhooks", {"url": self.new_hook()}).status == 403
        assert anna.post(f"/alerts/webhooks/{self.webhook}/test", {}).status == 303

    def new_hook(self) -> str:
        """Return another address of the receiver; its path is a secret."""
        return f"{self.hook}/{self.book.add(PATH, secrets.token_hex(16))}"

    def has_sent(self) -> bool:
        return not any(one["waiting"] for one in self.programs["anna"].get("/alerts/webhooks").json)

    def backs_up(self) -> None:
        """Write a backup, and fail to read it with another passphrase."""
        files = {}
        for name in ("right", "wrong"):
            path = files[name] = self.work / f"{name}-passphrase"
            path.touch(mode=0o600)
            path.write_text(self.book.add("a passphrase of the backup", secrets.token_urlsafe(24)) + "\n")
        backup = str(self.work / "edgegpu.backup")
        self.site.cli("backup", backup, "--passphrase-file", str(files["right"]))
        again = ("restore", "--yes", backup, "--folder", str(self.work / "restored"))
        self.site.cli(*again, "--passphrase-file", str(files["wrong"]), code=1)

    # what goes wrong

    def store_refuses(self) -> None:
        """Let the store refuse each row with a secret in it: pages, the API, boxes and commands meet the fault."""
        olga, vera, new = self.people["olga"], self.people["vera"], self.password("vera")
        tables = ("accounts", "web_sessions", "api_tokens", "one_time_links", "tokens", "requests", "idempotency_keys")
        waiting = Box(self.enrol_token("command line"))
        with self.site.refusing(*tables):
            statuses = [
                self.people["anna"].post("/people/vera/link", {}).status,
                self.people["anna"].post("/people", {"name": "paul", "role": "viewer"}).status,
                vera.post("/sign-in", {"name": "vera", "password": self.now["vera"]}).status,
                vera.post("/account/password", {"current": self.now["vera"], "password": new, "again": new}).status,
                olga.post("/account/tokens", {"name": "another", "role": "viewer"}).status,
                olga.post("/enrol/tokens", {"boxes": "1"}).status,
                self.programs["olga"].post("/enrolment/tokens", {}, idempotency_key=secrets.token_hex(16)).status,
            ]
            assert all(status >= 400 for status in statuses), statuses
            self.asks(waiting, 503)
            self.site.cli("people", "reset-password", "vera", code=1)
            self.site.cli("enrol", code=1)
        self.asks(waiting, 200)

    def serve_fails(self) -> None:
        """Let requests meet a fault that nobody foresaw, then let the console's process die."""
        vera, typed = self.people["vera"], {"name": "vera", "password": self.now["vera"]}
        with self.site.broken_account("vera"):
            answers = [vera.get("/account"), vera.post("/sign-in", typed), self.programs["vera"].get("/boxes")]
            answers += [self.site.person("a late visitor").post("/sign-in", typed)]
        assert [one.status for one in answers] == [500] * len(answers)
        self.site.crash("edgegpu-console")
        wait_for(lambda: self.answers(vera), what="the console is back")

    def answers(self, person: Person) -> bool:
        try:
            return person.get("/account").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    # what people and programs read

    def reads_pages(self) -> None:
        """Get every page as each role and as nobody, and whatever paths the pages link to."""
        stranger, filled = self.site.person("nobody"), self.filled(console_paths())
        for who in ROLES:
            person, seen, left = self.people[who], set[str](), sorted(filled)
            while left:
                path = left.pop()
                if path in seen or path.startswith("/static/"):
                    continue
                seen.add(path)
                if path in STREAMS:
                    assert person.listen(path) == 200
                    continue
                answer = person.get(path)
                refused = path == "/link" or path.endswith(("/undo", "/confirm"))  # of a command, without a question
                most = 400 if who == "anna" and path in filled and not refused else 500
                assert answer.status < most, (who, path)
                left += [html.unescape(one) for one in re.findall(r'href="(/[^"#?]*)', answer.text)]
        for path in sorted(filled - STREAMS):
            stranger.get(path)

    def reads_api(self) -> None:
        """Get every path of the API as each role, with a wrong token and without one; then the metrics."""
        paths = [f"/api/v1{path}" for path in self.filled(api_paths())]
        for who, program in self.programs.items():
            for path in [*paths, "/api/v1/openapi.json", "/metrics", "/readyz", "/no/such"]:
                if path in STREAMS:
                    program.listen(path)
                    continue
                status = program.send("GET", path).status
                assert status < 500, (who, path)
                assert who != "anna" or status in {200, 404} or path.endswith("/undo"), (path, status)

    def filled(self, templates: set[str]) -> set[str]:
        """Return paths with what there is in the place of their parameters."""
        program = self.programs["anna"]
        last = {
            name: program.get(path).json["items"][0]
            for name, path in (("command", "/commands"), ("operation", "/operations"), ("rollout", "/rollouts"))
        }
        (attempt, *_) = self.programs["anna"].get("/enrolment/tokens").json["items"]
        values = {
            "device": self.device,
            "box": self.device,
            "namespace": "default",
            "app": "asr",
            "container": "main",
            "name": "vera",
            "number": str(last["rollout"]["number"]),
        }
        own = {"/enrol/tokens/{id_}": attempt["id"], "/commands/{id_}": last["command"]["id"]}
        own["/alerts/webhooks/{id_}/delete"] = self.webhook
        paths = set()
        for template in templates:
            id_ = own.get(template, last["operation"]["id"])
            paths.add(template.format(**values, id_=id_))
        return paths


def console_paths() -> set[str]:
    """Return the paths of all pages, as the console has them."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    return {route.path for route in routes if "GET" in (route.methods or ())}


def api_paths() -> set[str]:
    """Return the paths that the API is read at."""
    return {path for path, methods in make_api().openapi()["paths"].items() if "get" in methods}


def modes_below(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return mode and owner of a folder and of what is in it."""
    found = {path: path.lstat() for path in (folder, *folder.rglob("*"))}
    return {path: (stat.S_IMODE(one.st_mode), one.st_uid) for path, one in found.items()}


def sign_pem(box: Box) -> str:
    """Return the key by which a box signs, PEM."""
    return box.sign.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def api_token_in(text: str) -> str:
    found = re.search(r"egt_[\w-]{43}", text)
    assert found is not None, text[-2_000:]
    return found[0]


def enrol_token_in(text: str) -> str:
    found = re.search(r"EDGEGPU_TOKEN=([a-z2-7]{32})", text)
    assert found is not None, text[-2_000:]
    return found[1]


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    work = tmp_path_factory.mktemp("day")
    with receiving(work) as receiver:
        path = f"/hook/{secrets.token_hex(16)}"
        made = Day(work, (receiver.url.partition("/hook")[0] + path, receiver.ca))
        try:
            made.site.start()
            made.signs_in()
            made.makes_tokens()
            made.takes_boxes_in()
            made.changes_boxes()
            made.makes_webhooks()
            made.invites()
            made.site.add_stored()
            made.changes_passwords()
            made.backs_up()
            made.store_refuses()
            made.serve_fails()
            made.site.add_stored()
            made.reads_pages()
            made.reads_api()
            wait_for(made.has_sent, what="each webhook was told", timeout_s=120)
            assert len(receiver.got) > 1
            made.modes = modes_below(made.site.layout.folder)
        finally:
            made.live.close()
            made.site.end()
        for headers, body in receiver.got:
            made.site.outputs.add("a message of the webhook", json.dumps([headers, body]).encode())
        yield made


def test_what_is_put_out_has_no_secret_where_it_is_not_shown_for_a_reason(day: Day) -> None:
    assert day.site.outputs.leaks(day.book) == []


AT_REST = {
    "a password's hash": {"controller.db"},
    "a session's hash": {"controller.db"},
    "an API token's hash": {"controller.db"},
    "a link's hash": {"controller.db"},
    "an enrolment token's hash": {"controller.db"},
    "the webhook's secret": {"controller.yaml"},
    "the webhook's path": {"controller.yaml", "controller.db"},
    "the secret of a webhook": {"controller.db"},
    PATH: {"controller.db"},
}
"""What lies in the controller's folder beside its keys: of what people and boxes show there are hashes alone."""


def test_the_files_have_hashes_alone_and_secrets_are_for_their_owner(day: Day) -> None:
    folder = day.site.layout.folder
    assert set(AT_REST) <= set(day.book.needles), "the day has made all of these"
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        name = str(path.relative_to(folder))
        for secret in day.book.found(path.read_bytes()):
            assert name in AT_REST.get(secret, {secret.removeprefix("the key "), "broker/server.key"}), (name, secret)
    keys = {path for path in day.modes if path.suffix == ".key"}
    private = {path for path in day.modes if path.name.startswith(("controller.db", "controller.yaml"))} | keys
    assert {path.name for path in private} > {"controller.db", "controller.db-wal", "signing.key", "boxes.key"}
    private |= {day.work / "edgegpu.backup"}
    modes = modes_below(day.work) | day.modes
    assert {path: modes[path] for path in private} == dict.fromkeys(private, (0o600, os.geteuid()))
    folders = {folder, *(path.parent for path in keys)}
    assert {path: modes[path] for path in folders} == dict.fromkeys(folders, (0o700, os.geteuid()))


@pytest.mark.parametrize(
    "written",
    [
        str,
        quote,
        lambda text: json.dumps({"a": text}),
        lambda text: base64.b64encode(f"anna:{text}!".encode()).decode(),
        lambda text: base64.urlsafe_b64encode(f"{text}!".encode()).decode(),
        lambda text: text.encode().hex(),
        lambda text: f'<input value="{escape(text)}">',
        repr,
    ],
)
def test_the_search_finds_a_secret_however_it_is_written(written: Callable[[str], str]) -> None:
    book, outputs = SecretBook(), Outputs()
    text = book.add("it", '"four" boxes\\ & <a> häll')
    outputs.add("here", f"before {written(text)} after".encode())
    outputs.add("there", b"nothing", shows=["it"])
    assert outputs.leaks(book) == ["here: it", "there does not show it"]
