"""Whatever a box says, a page has it as text: no element and no attribute of the answered HTML comes from a box."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from kits.console import ConsoleSite
from kits.consolepages import PAGES, POSTED, Places
from kits.details import box, card, pod, reported, saying
from kits.people import LOCAL, PASSWORD
from kits.stores import open_store
from pydantic import ValidationError

from edgegpu_cloud.alerts.service import AlertTask
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.phrases import Verbatim
from edgegpu_cloud.store.operations.records import BoxOutcome
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import (
    BoxEvent,
    CommandHistoryLine,
    EnrolledBox,
    EnrolmentAttempt,
    StoredCommand,
)
from edgegpu_cloud.store.rollouts.records import RolloutBoxState
from edgegpu_sync.ids import command_id, device_id, op_name
from edgegpu_sync.messages.evidence import ContainerEvidence
from edgegpu_sync.messages.telemetry import (
    TRANSACTION,
    CardReport,
    CardShare,
    HealthPart,
    MemoryUse,
    PodAlloc,
    TransactionReport,
)
from edgegpu_sync.rules.ops import OPS
from edgegpu_sync.rules.tracking import TrackedCommand
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kits.consolepages import PostedPage
    from pydantic import BaseModel

    from edgegpu_sync.ids import DeviceId

EVIL = "evil"


def hostile(key: str) -> str:
    """Return a text that breaks out of whatever does not escape it: of text, of attributes, of scripts and comments."""
    tag = f"{EVIL}-{key}"
    ends = "</title></textarea></script>-->"
    return f'seen-{key} "\'><{tag} {tag}=1>{ends}<img src=x onerror={EVIL}()> {tag}="1" \'%(x)s'


class Breakouts(HTMLParser):
    """Elements and attributes of a page that no page of ours has: those named by `hostile`, and what runs scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if EVIL in tag or tag == "img":
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            if EVIL in name or name.startswith("on") or name == "style" or set(name) & set("\"'<>"):
                self.found.append(f"<{tag} {name}>")
            if name in {"href", "src", "action", "formaction", "hx-get"} and (value or "").strip().lower().startswith(
                "javascript:"
            ):
                self.found.append(f"<{tag} {name}={value}>")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem and EVIL in data:
            self.found.append(f"in <{self.cdata_elem}>")


@pytest.mark.parametrize(
    "page",
    [
        "<p>{}</p>",
        '<p title="{}">a</p>',
        "<p title='{}'>a</p>",
        "<p title={}>a</p>",
        "<title>{}</title>",
        "<textarea>{}</textarea>",
        '<script>const name = "{}";</script>',
    ],
)
def test_a_page_that_does_not_escape_is_found(page: str) -> None:
    assert Breakouts(page.format(hostile("x"))).found


@pytest.mark.parametrize("page", ['<a href="javascript:{}()">a</a>', '<a href=" JavaScript:{}()">a</a>'])
def test_an_address_that_runs_a_script_is_found(page: str) -> None:
    assert Breakouts(page.format(EVIL)).found


def test_a_page_that_escapes_is_fine() -> None:
    text = hostile("x").replace("&", "&amp;").replace("<", "&lt;").replace('"', "&#34;").replace("'", "&#39;")
    assert Breakouts(f"<p title=\"{text}\" data-x='{text}'>{text}</p>").found == []


class HostileBox:
    """A console with a box that says nothing but hostile texts, wherever the protocol takes any text."""

    def __init__(self, site: ConsoleSite) -> None:
        self.site = site
        site.people.redeem(site.people.create("anna", role=Role.ADMIN, by=LOCAL), "", PASSWORD)
        self.device: DeviceId = device_id(f"{1:016d}")
        enrolled = EnrolledBox(
            device=self.device,
            enrolment=1,
            public="A" * 43,
            instance="ab" * 32,
            name=hostile("name"),
            labels={"site": "hall", "note": hostile("label")},
            host=hostile("host"),
        )
        with site.store.write() as tx:
            add_box(tx, enrolled, Author(hostile("author"), site.now_s))
        self._report()
        self.places = Places(site, self.device)
        self._happen()
        self._commands()
        self._rolled_out()
        AlertTask(site.store, site.alert_config, controller="controller-1", clock=site.clock).look()

    def _report(self) -> None:
        site, device = self.site, self.device
        rev = Fleet(site.store, clock=site.clock, by="anna").set_settings(device, SharingSettings(policy="spread"))
        cards = (card("0", name=hostile("card")), card("1", healthy=False, text=hostile("fault")))
        said = box("hall-1", cards, {"u1": pod("asr-0", ("main", "0", 4, 1))}, driver=hostile("driver"))
        drifted = {"type": "Drifted", "manager": hostile("manager"), "text": hostile("drift")}
        failed = {"state": "Failed", "rev": rev, "code": "VERIFY", "text": hostile("outcome"), "conditions": [drifted]}
        said = reported(said, cluster=hostile("cluster"), rev=rev, policy=failed)
        parts = [{"name": "k3s", "state": "bad", "text": hostile("part")}]
        said = saying(said, TopicKind.HEALTH, state="bad", parts=parts)
        versions = {"agent": hostile("agent"), "plugin": hostile("plugin")}
        said = saying(said, TopicKind.STATUS, state="birth", versions=versions, capabilities=list(OPS))
        site.report(device, said)
        site.connect(device)

    def _happen(self) -> None:
        told = TransactionReport(
            id="b",
            op="upgrade",
            author="person",
            user=hostile("user"),
            result="ROLLED_BACK",
            why=hostile("why"),
            version=hostile("version"),
            before=hostile("before"),
        )
        plain: dict[str, Any] = {"device": self.device, "level": "warning", "box_at": 1, "at_s": self.site.now_s}
        event = BoxEvent(**plain, kind="drift", text=hostile("event"), about=hostile("about"))
        transaction = told.model_dump(mode="json")
        ended = BoxEvent(**plain, kind=TRANSACTION, text=hostile("ended"), about=told.id, transaction=transaction)
        seen = {"uid": "u1", "namespace": "default", "pod": "asr-0", "container": "main", "verdict": "own"}
        lines = {"lines": hostile("lines"), "text": hostile("evidence")}
        evidence = ContainerEvidence.model_validate({**seen, "held": ["GPU-0"], **lines}, strict=False)
        asked = {name: hostile(name) for name in ("address", "instance", "name")} | {"host": hostile("newcomer")}
        with self.site.store.write() as tx:
            tx.notes.add_events([event, ended])
            tx.notes.alarm("disk.FULL", device=self.device, text=hostile("alarm"), now_s=self.site.now_s)
            tx.telemetry.put_evidence(self.device, [evidence], now_s=self.site.now_s)
            [token] = tx.enrolments.tokens()
            new = EnrolmentAttempt(
                id="ef" * 16, token=token.digest, digest="cd" * 32, asked=asked, at_s=self.site.now_s
            )
            tx.enrolments.add_request(new)

    def _commands(self) -> None:
        told = {"name": hostile("check"), "text": hostile("finding"), "remedy": hostile("remedy")}
        id_ = command_id("command-of-doctor-run")
        tracked = TrackedCommand(
            id=id_,
            op=op_name("doctor.run"),
            args={},
            due_at_s=9.0,
            seq=1,
            state=CommandState.SUCCEEDED,
            text=hostile("result"),
        )
        command = StoredCommand(
            device=self.device,
            tracked=tracked,
            by=hostile("by"),
            at_s=5.0,
            data={"level": "broken", "troubled": [{"level": "broken", **told}]},
            attempts=1,
            ended_at_s=7.0,
        )
        line = CommandHistoryLine(command=id_, at_s=6.0, state=CommandState.RUNNING, text=hostile("step"))
        with self.site.store.write() as tx:
            tx.commands.add(command)
            tx.commands.heard([line])

    def _rolled_out(self) -> None:
        """Let a box of the rollout and of the operation have failed with a message."""
        number, operation = int(self.places.words["ROLLOUT"]), self.places.words["OPERATION"]
        message, failed = Verbatim(hostile("message")), RolloutBoxState.FAILED
        with self.site.store.write() as tx:
            rows = tx.rollouts.boxes(number, limit=10)
            tx.rollouts.put_boxes([replace(one, state=failed, message=message, name=hostile("row")) for one in rows])
            rollout = tx.rollouts.get(number)
            assert rollout is not None
            tx.rollouts.put(replace(rollout, reason=Verbatim(hostile("reason"))))
            boxes = tx.operations.boxes(operation, limit=10)
            tx.operations.put([replace(one, outcome=BoxOutcome.REFUSED, text=hostile("refused")) for one in boxes])


SHOWN = (
    *("name", "label", "host", "agent", "plugin", "cluster", "author"),
    *("card", "fault", "part", "outcome"),
    *("event", "alarm", "user", "why", "version", "before", "lines"),
    *("newcomer", "address"),
    *("check", "finding", "remedy", "result", "by", "step"),
    *("message", "row", "reason", "refused"),
)
"""The texts of the box that stand on one of the pages at least: each of them came as far as that."""

TYPED, SHORT = quote(hostile("typed")), quote(hostile("t")[:20])
PART = quote(hostile("part").replace("/", ""), safe="")
REFLECTED = (
    f"/?q={TYPED}&labels={TYPED}&sort={SHORT}",
    f"/boxes/{PART}",
    f"/boxes/DEVICE?before={quote(hostile('b')[:40])}",
    f"/boxes/DEVICE/limits?app={TYPED}&namespace={TYPED}",
    f"/boxes/DEVICE/limits/default/asr/main?memory={TYPED}&core={TYPED}&also={TYPED}",
    f"/boxes/DEVICE/sharing?typed=yes&policy={TYPED}&unit_mib={TYPED}",
    f"/apps?q={TYPED}&labels={TYPED}&differs=yes",
    f"/alerts?q={TYPED}&kind={TYPED}",
    f"/audit?by={quote(hostile('a')[:100])}",
    f"/enrol/tokens/{PART}",
    f"/people/{PART}",
    f"/rollouts/new?what=limits&app={TYPED}&container={TYPED}&labels={TYPED}&first={TYPED}&waves={TYPED}",
    f"/rollouts/new?boxes={TYPED}&retries={TYPED}&retry_after={TYPED}&join_within={TYPED}&max_unavailable={TYPED}&on_drift={TYPED}",
    f"/rollouts/new?what=limits&app=asr&container={TYPED}&memory=4&counted={TYPED}&each={TYPED}",
    f"/rollouts/new?what=upgrade&version={TYPED}&url={TYPED}&sha256={TYPED}&signature={TYPED}",
    f"/rollouts/ROLLOUT?show={SHORT}",
    f"/operations?q={TYPED}&kind={SHORT}&box=DEVICE",
    f"/operations/new?kind=limits&which=all&q={TYPED}&app={TYPED}&memory={TYPED}&core={TYPED}&filled=yes",
    f"/operations/new?kind={TYPED}&which=all",
    f"/link?code={TYPED}",
    f"/sign-in?next=/{TYPED}",
    f"/sign-in?next=javascript:{EVIL}()",
)
"""Addresses with hostile texts in them: a link that a person is sent."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileBox]:
    # On SQLite: the texts are longer than the columns are wide that the protocol's checks keep them out of.
    store = open_store(tmp_path_factory.mktemp("hostile") / "controller.db")
    yield HostileBox(ConsoleSite(store))
    store.close()


@pytest.mark.parametrize("page", [*PAGES, *REFLECTED])
def test_no_element_and_no_attribute_of_a_page_comes_from_a_box(world: HostileBox, page: str) -> None:
    for person, language in (("anna", "en"), ("anna", "zh-CN"), ("vera", "en")):
        answer = world.site.client(person, language).get(world.places.at(page))
        assert answer.status_code < 500
        assert Breakouts(answer.text).found == [], (person, language)


@pytest.mark.parametrize("page", POSTED, ids=str)
def test_no_element_of_a_page_that_answers_a_form_comes_from_a_box(world: HostileBox, page: PostedPage) -> None:
    client, form = world.site.client(), world.places.form(page)
    kept = {"kept.note": hostile("kept"), f"kept.{hostile('field')}": "1"}
    for more in ({}, {name: hostile(name) for name in form if name not in {"csrf", "name", "password"}}):
        headers = {"sec-fetch-site": "same-origin"}
        answer = client.post(world.places.at(page.address), data={**form, **more, **kept}, headers=headers)
        assert answer.status_code < 500
        assert Breakouts(answer.text).found == []


def test_each_text_of_the_box_is_on_a_page(world: HostileBox) -> None:
    texts = "".join(world.site.client().get(world.places.at(page)).text for page in PAGES)
    assert [key for key in SHOWN if f"seen-{key} " not in texts] == []


NAMES: tuple[Callable[[str], BaseModel], ...] = (
    lambda text: PodAlloc(namespace=text, name="a", phase="Running", pieces=()),
    lambda text: PodAlloc(namespace="a", name=text, phase="Running", pieces=()),
    lambda text: PodAlloc(namespace="a", name="a", phase=text, pieces=()),
    lambda text: CardShare(container=text, card="GPU-0", memory_units=1, core=1),
    lambda text: CardShare(container="a", card=text, memory_units=1, core=1),
    lambda text: CardReport(uuid=text, label="0", name="a", memory_mib=1, units=1, healthy=True),
    lambda text: CardReport(uuid="GPU-0", label=text, name="a", memory_mib=1, units=1, healthy=True),
    lambda text: HealthPart(name=text, state="ok"),
    lambda text: MemoryUse(card="GPU-0", uid=text, container="a", processes=1),
    lambda text: MemoryUse(card="GPU-0", uid="u1", container=text, processes=1),
    lambda text: MemoryUse(card=text, processes=1),
)
"""What of a box stands in addresses and as ids on pages: pods, containers and cards, also of the memory use."""


@pytest.mark.parametrize("make", NAMES, ids=range(len(NAMES)))
def test_names_that_pages_make_addresses_of_are_refused_before_the_store(make: Callable[[str], BaseModel]) -> None:
    assert make("a-1")
    for text in (hostile("x"), 'a"b', "a'b", "a b", "a<b", "a&b", "javascript:alert(1)<"):
        with pytest.raises(ValidationError):
            make(text)
