"""A Chinese page has no English sentence: every page and refused form, but for names, commands and words of boxes."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from kits.console import ConsoleSite
from kits.consolepages import PAGES, POSTED, Places, PostedPage
from kits.gallery import NAMESPACE, Gallery, returned_rollout
from kits.postgres import need, running

from edgegpu_cloud.alerts.service import AlertTask
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.phrases import Verbatim, phrase
from edgegpu_cloud.store.store import ControllerStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HIDDEN = {"code", "pre", "script", "style"}
SHOWN = ("aria-label", "title", "placeholder", "alt")
VOID = {"br", "col", "hr", "img", "input", "link", "meta"}
COMMAND = re.compile(r"`[^`]*`")
SENTENCE = re.compile(r"[A-Za-z][A-Za-z']*(?:[,.:;]? +[A-Za-z][A-Za-z']*){2,}")
ALLOWED = {
    "NVIDIA Tesla P": "the beginning of a card's name, NVIDIA Tesla P4",
    "NVIDIA TITAN RTX": "a card's name",
    "NVIDIA GeForce GTX": "the beginning of a card's name, NVIDIA GeForce GTX 1650",
}
"""English words on Chinese pages, with the reason."""
WORDS_OF_BOXES = {
    "XID 79: the card has fallen off the bus",
    "asked 2 minutes ago",
    "card 1 is out of order",
    "k3s did not become ready within 900 s",
    "needs 40 vcuda-memory on one card; card 0 has 29 free",
    "registered with kubelet",
    "running for 12 days",
    "the plugin does not come up with it",
}
"""What boxes of the gallery say in words that no code stands for: quoted on a Chinese page."""


class ReadTexts(HTMLParser):
    """The texts of a page that a person reads, without code: its own, and what it quotes as English."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.quotes: list[str] = []
        self._hidden: list[bool] = [False]
        self._quoted = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._quoted += tag == "q"
        hidden = tag in HIDDEN or (tag != "q" and given.get("lang") == "en") or self._hidden[-1]
        if not hidden:
            self.texts += [given[name] or "" for name in SHOWN if name in given]
        if tag not in VOID:
            self._hidden.append(hidden)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._hidden.pop()

    def handle_endtag(self, tag: str) -> None:
        self._quoted -= tag == "q"
        self._hidden.pop()

    def handle_data(self, data: str) -> None:
        if not self._hidden[-1]:
            (self.quotes if self._quoted else self.texts).append(data)


def english(page: str) -> set[str]:
    """Return the runs of three or more English words on a page, and quotes that are no words of boxes.

    The page's language is Chinese.
    """
    assert '<html lang="zh-Hans"' in page
    read = ReadTexts(page)
    found = {one for text in read.texts for one in SENTENCE.findall(COMMAND.sub("…", text))}
    return (found - set(ALLOWED)) | (set(read.quotes) - WORDS_OF_BOXES)


def test_english_is_found() -> None:
    page = '<html lang="zh-Hans"><p>文字 {}</p>'
    assert english(page.format("the box is")) == {"the box is"}
    assert english(page.format("<b title='no such box'>盒</b>")) == {"no such box"}
    for fine in ("Pod, DaemonSet", "`edgegpu agent status`", "<code>a b c</code>"):
        assert english(page.format(fine)) == set()
    assert english(page.format("<q lang='en'>no such</q>")) == {"no such"}, "a quote is a text that nobody translates"
    for fine in WORDS_OF_BOXES:
        assert english(page.format(f"<q lang='en'>{fine}</q>")) == set()


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    made = Gallery(tmp_path_factory.mktemp("gallery"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def places(gallery: Gallery) -> Places:
    return Places(gallery.site, gallery.devices["hall-2"])


MORE_PAGES = (
    "/boxes/DEVICE/sharing?typed=yes&unit_mib=1",
    "/boxes/DEVICE/sharing?typed=yes&exclude=0",
    "/boxes/DEVICE/sharing?typed=yes&policy=best-fit",
    "/boxes/DEVICE/sharing?typed=yes&isolation=limiter",
    "/boxes/DEVICE/sharing?typed=yes&isolation=mps",
    "/rollouts/new?what=limits&app=baetyl-edge/counter&memory=4&core=2",
    "/rollouts/new?what=sharing&policy=spread&exclude=0&unit_mib=512",
    "/boxes/DEVICE/limits/default/asr/main?memory=900",
    "/boxes/gate-2/limits/baetyl-edge/detector/main",
    "/boxes/DEVICE/limits/default/asr/main?memory=1&core=200",
    "/alerts?show=all",
    "/account",
)


@pytest.mark.parametrize("path", [*PAGES, *MORE_PAGES])
def test_every_page(gallery: Gallery, places: Places, path: str) -> None:
    with gallery.site.client(language="zh-CN") as client:
        for name in ("hall-2", "gate-2", "hall-3", "yard-2") if "DEVICE" in path else ("",):
            page = client.get(places.at(path.replace("DEVICE", gallery.devices.get(name, ""))))
            assert english(page.text) == set(), name


@pytest.mark.parametrize("page", POSTED, ids=str)
def test_every_page_that_answers_a_form(gallery: Gallery, places: Places, page: PostedPage) -> None:
    with gallery.site.client(language="zh-CN") as client:
        headers = {"sec-fetch-site": "same-origin"}
        answer = client.post(places.at(page.address), data=places.form(page), headers=headers)
        assert answer.status_code == 200
        assert english(answer.text) == set()


LIMITS = "/boxes/hall-2/limits/baetyl-edge/counter/main"
ROLLOUT = "/rollouts/new?what=limits&app=baetyl-edge/counter&memory=4"

REFUSED: tuple[tuple[str, dict[str, str] | None], ...] = (
    ("/?labels=site%3D((", None),
    ("/?at=guessed", None),
    ("/apps?labels=((", None),
    ("/boxes/nothing", None),
    ("/boxes/hall", None),
    ("/boxes/hall-2/limits?app=A_B", None),
    ("/boxes/hall-2/limits?app=a&namespace=kube-system", None),
    (f"{LIMITS}?memory=1.5", None),
    (f"{LIMITS}?memory=1&measure=MB", None),
    (f"{LIMITS}?memory=9999999", None),
    (f"{LIMITS}?memory=999999999&measure=GiB", None),
    (f"{LIMITS}?core=x", None),
    (f"{LIMITS}?on_drift=never", None),
    (f"{LIMITS}?also=((", None),
    ("/boxes/yard-3/limits/default/a/a?memory=1", None),
    (LIMITS, {}),
    (LIMITS, {"box": "x"}),
    (LIMITS, {"box": "hall-2:0:4", "core": "1"}),
    (LIMITS, {"box": "hall-2:99:4", "core": "1"}),
    (LIMITS, {"box": "hall-2:1:4", "core": "7000"}),
    ("/boxes/hall-2/limits/default/nothing/main/forget", {"rev": "0"}),
    ("/boxes/hall-2/sharing?typed=yes&unit_mib=x", None),
    ("/boxes/hall-2/sharing?typed=yes&exclude=7", None),
    ("/boxes/hall-2/sharing?typed=yes&exclude=x", None),
    ("/boxes/hall-2/sharing?typed=yes&isolation=x", None),
    ("/boxes/hall-2/sharing", {"rev": "99", "policy": "spread"}),
    ("/boxes/hall-2/sharing", {"rev": "1"}),
    ("/boxes/hall-2/commands", {"op": "rm"}),
    ("/boxes/hall-2/commands/none/cancel", {}),
    ("/boxes/gate-3/evidence", {}),
    ("/boxes/hall-2/unblock", {}),
    ("/boxes/hall-2/revoke", {"typed": "hall"}),
    ("/boxes/hall-2/forget", {"typed": "hall"}),
    ("/boxes/hall-2/replace", {"lasts_s": "1"}),
    ("/enrol/tokens", {"labels": "site"}),
    ("/enrol/tokens", {"labels": "site=a site=b"}),
    ("/enrol/tokens", {"labels": "site=ü"}),
    ("/enrol/tokens", {"name": "-"}),
    ("/enrol/tokens", {"boxes": "1001", "each": "true"}),
    ("/enrol/tokens/abc", None),
    ("/enrol/tokens/abcdefabcdef", None),
    ("/enrol/waiting/abc/approve", {}),
    ("/enrol/waiting/abcdefabcdef/refuse", {}),
    ("/people", {"name": "-"}),
    ("/people", {"name": "anna"}),
    ("/people", {"name": "bea", "scope": "(("}),
    ("/people", {"name": "bea", "language": "fr"}),
    ("/people/nobody", None),
    ("/people/anna/role", {"role": "viewer"}),
    ("/people/anna/scope", {"scope": "site=hall"}),
    ("/people/anna/disable", {}),
    ("/people/anna/remove", {"typed": "vera"}),
    ("/people/anna/remove", {"typed": "anna"}),
    ("/account/password", {"current": "wrong", "password": "a long password", "again": "a long password"}),
    ("/account/password", {"current": "wrong", "password": "a", "again": "b"}),
    ("/account/tokens", {"name": "-"}),
    ("/account/tokens", {"name": "a", "scope": "(("}),
    ("/account/tokens", {"name": "a", "days": "4000"}),
    ("/account/tokens/none/revoke", {}),
    ("/account/sessions/none/end", {}),
    ("/rollouts/99", None),
    (f"{ROLLOUT}&waves=0", None),
    (f"{ROLLOUT}&success=x", None),
    (f"{ROLLOUT}&success=0", None),
    (f"{ROLLOUT}&canary=x", None),
    (f"{ROLLOUT}&soak=999999", None),
    (f"{ROLLOUT}&labels=site%3Dnowhere", None),
    (f"{ROLLOUT}&first=nothing", None),
    (f"{ROLLOUT}&on_failure=x", None),
    ("/rollouts/new?what=limits&app=a/b/c", None),
    ("/rollouts/new?what=limits&app=A_B", None),
    ("/rollouts/new?what=sharing&exclude=x", None),
    ("/rollouts/new?what=sharing&unit_mib=x", None),
    ("/rollouts/new?what=sharing&labels=site%3Dhall", None),
    ("/rollouts", {"query": "what=sharing&policy=spread", "typed": "7"}),
    ("/rollouts", {"query": "what=sharing&policy=spread", "typed": "7", "seen": BoxSet.of(()).text}),
    ("/rollouts/99/pause", {"typed": "1"}),
    ("/alerts/webhooks/none/test", {}),
    ("/alerts/999", {"do": "seen"}),
    ("/alerts/999", {"do": "7200"}),
    ("/alerts/1", {"do": "99999999"}),
    ("/alerts/1", {"do": "x"}),
    ("/audit?before=x", None),
    ("/audit?before=-1", None),
    ("/rollouts/x", None),
    ("/alerts/0", {"do": "seen"}),
    ("/alerts?before=%3C", None),
    ("/apps?labels=" + "a" * 600, None),
    ("/boxes/hall-2/commands", {"op": "x" * 90}),
    ("/boxes/hall-2/commands", {"op": "a..b"}),
    ("/boxes/hall-2/sharing", {"policy": "spread"}),
    ("/account/tokens", {"name": "a", "role": "x"}),
    ("/account/tokens", {"name": "a", "days": "many"}),
    ("/enrol/tokens", {"boxes": "many"}),
    ("/link?code=x", None),
    ("/link", {"code": "x", "password": "a", "again": "b"}),
    ("/sign-in", {"name": "anna", "password": "wrong"}),
)
"""Requests of an admin that are refused, as paths and forms (None: a GET)."""


@pytest.mark.parametrize(("path", "form"), REFUSED)
def test_every_refusal(gallery: Gallery, path: str, form: dict[str, str] | None) -> None:
    with gallery.site.client(language="zh-CN") as client:
        if form is None:
            page = client.get(path)
        else:
            page = client.post(path, data={"csrf": "csrf-of-anna", **form}, headers={"origin": "https://console"})
        assert page.status_code >= 400 or 'role="alert"' in page.text, (page.status_code, page.headers)
        assert english(page.text) == set()


@pytest.mark.parametrize(
    ("path", "form", "chinese", "english_"),
    [
        ("/audit?before=x", None, "before:不是整数", "before: is not a whole number"),
        ("/boxes/hall-2/replace", {"lasts_s": "1"}, "lasts_s:必须不小于 60", "lasts_s: must be 60 or more"),
        ("/boxes/hall-2/sharing", {"policy": "spread"}, "rev:缺失", "rev: is missing"),
        ("/boxes/hall-2/commands", {"op": "x" * 90}, "op:最多 80 个字符", "op: must have 80 characters or fewer"),
        ("/account/tokens", {"name": "a", "role": "x"}, "role:必须是以下之一", "role: must be one of"),
    ],
)
def test_a_form_says_which_field_is_wrong(
    gallery: Gallery, path: str, form: dict[str, str] | None, chinese: str, english_: str
) -> None:
    for language, said in (("zh-CN", chinese.replace(":", "\N{FULLWIDTH COLON}")), ("en", english_)):
        with gallery.site.client(language=language) as client:
            whole = {"csrf": "csrf-of-anna", **(form or {})}
            origin = {"origin": "https://console"}
            page = client.get(path) if form is None else client.post(path, data=whole, headers=origin)
            assert said in page.text


@pytest.mark.parametrize(
    ("person", "path", "form"),
    [
        ("vera", "/people", None),
        ("vera", "/audit", None),
        ("vera", "/boxes/hall-2/commands", {"op": "doctor.run"}),
        ("vera", "/enrol/tokens", {"boxes": "1"}),
        ("otto", "/people", {"name": "bea"}),
        ("otto", "/boxes/hall-2/revoke", {"typed": "hall-2"}),
        ("otto", "/people/anna", None),
        ("", "/boxes/hall-2/commands", {"op": "doctor.run"}),
        ("anna", "/boxes/hall-2/commands", {"csrf": "another"}),
    ],
)
def test_what_a_person_may_not_do(gallery: Gallery, person: str, path: str, form: dict[str, str] | None) -> None:
    with gallery.site.client(person, language="zh-CN") as client:
        page = client.get(path) if form is None else client.post(path, data={"csrf": f"csrf-of-{person}", **form})
        assert page.status_code in {401, 403, 404}
        assert english(page.text) == set()


def test_a_form_of_an_earlier_session(gallery: Gallery) -> None:
    with gallery.site.client(language="zh-CN") as client:
        form = {"csrf": "another", "name": "press", "scope": "site=hall"}
        page = client.post("/account/tokens", data=form, headers={"origin": "https://console"})
    assert (page.status_code, "site=hall" in page.text, "anna" in page.text) == (403, True, True)
    assert english(page.text) == set()


def test_a_refusal_of_a_box_is_told_by_its_numbers(gallery: Gallery) -> None:
    path = f"/boxes/{gallery.devices['gate-2']}"
    told = "needs 40 vcuda-memory on one card; card 0 has 29 free"
    chinese = gallery.site.client(language="zh-CN").get(path).text
    assert "每个需要同一张显卡上的 40 个单位、算力 30" in chinese
    assert "显卡 0 有 29 个单位、算力 100" in chinese
    assert told not in chinese
    page = gallery.site.client().get(path).text
    assert "no room: 1 pod needs 40 units and core 30 on one card" in page
    assert not any(word in page for word in (told, "<q", "NO_ROOM", "vcuda-memory"))


def test_the_words_of_a_box_are_quotes_in_english(gallery: Gallery) -> None:
    path = f"/boxes/{gallery.devices['hall-3']}"
    told = "card 1 is out of order"
    assert f'<q lang="en">{told}</q>' in gallery.site.client(language="zh-CN").get(path).text
    page = gallery.site.client().get(path).text
    assert told in page
    assert "<q" not in page


def test_the_editor_says_why_limits_do_not_fit(gallery: Gallery) -> None:
    """The core's own verdict, where no amount of room helps and the page has no numbers of cards."""
    path = f"/boxes/{gallery.devices['hall-2']}/limits/{NAMESPACE}/counter/main?memory=4&core=150"
    page = gallery.site.client(language="zh-CN").get(path).text
    assert "请求 150 算力\N{FULLWIDTH COLON}超过一张显卡时只能按整卡请求" in page
    assert "asks 150 core: more than one card goes in whole cards only" in gallery.site.client().get(path).text


def test_a_day_and_a_moment_are_not_named_as_an_amount_that_was_there_before(gallery: Gallery) -> None:
    """English has one word for all three: in a history of limits it is what was there before."""
    with gallery.site.client(language="zh-CN") as client:
        audit, use = (client.get(path).text for path in ("/audit", f"/boxes/{gallery.devices['hall-2']}"))
    assert ("起始日期 <input" in audit, "截止日期 <input" in audit) == (True, True)
    assert '<th scope="col">时段起点</th>' in use
    assert '<th scope="col">原值</th>' not in use


def test_alerts_of_every_kind(gallery: Gallery) -> None:
    with gallery.site.client(language="zh-CN") as client:
        page = client.get("/alerts?show=all").text
    assert "1 项请求被拒绝或失败" in page
    assert 'plugin 状态异常\N{FULLWIDTH COLON}<q lang="en">card 1 is out of order</q>' in page


def test_alarms_of_the_controller_are_in_the_persons_language_and_those_of_boxes_are_quoted(site: ConsoleSite) -> None:
    box = site.add(1, "hall-1")
    with site.store.write() as tx:
        text = phrase("the controller cannot work on it: %(error)s", error=Verbatim("no such file %(x)s"))
        tx.notes.alarm("rollout.ERROR", device="", text=text, now_s=site.now_s)
        tx.notes.alarm("disk.FULL", device=box, text="the disk is <full> %(x)s", now_s=site.now_s)
    AlertTask(site.store, site.alert_config, controller="c", clock=site.clock).look()
    page = site.client(language="zh-CN").get("/alerts").text
    assert '控制端无法处理\N{FULLWIDTH COLON}<q lang="en">no such file %(x)s</q>' in page
    assert '<q lang="en">the disk is &lt;full&gt; %(x)s</q>' in page
    assert english(page) == {"no such file %(x)s", "the disk is <full> %(x)s"}
    assert "the controller cannot work on it: no such file %(x)s" in site.client().get("/alerts").text
    assert [one["text"] for one in site.api().get("/alerts").json()["items"]] == ["the disk is <full> %(x)s", str(text)]


def test_what_the_controller_says_of_a_command_is_no_word_of_the_box(site: ConsoleSite) -> None:
    box = site.add(1, "hall-1")
    site.connect(box)
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    fleet.command(box, "inventory.refresh", {})
    fleet.revoke(box)
    page = site.client(language="zh-CN").get(f"/boxes/{box}").text
    assert page.count("设备已吊销\N{FULLWIDTH COLON}命令可能已执行") == 2, "of the command, and of its last step"
    assert "the box was revoked: it may have been done" in site.client().get(f"/boxes/{box}").text


def test_a_rollout_that_was_stopped_and_returned(tmp_path_factory: pytest.TempPathFactory) -> None:
    bed = returned_rollout(tmp_path_factory.mktemp("rollout"))
    site = ConsoleSite(bed.store, now_s=bed.world.clock())
    with site.client(language="zh-CN") as client:
        for path in ("/rollouts", "/rollouts/1", "/audit"):
            assert english(client.get(path).text) == set(), path
        page = client.get("/rollouts/1").text
        assert "台设备中有 1 台失败" in page
        assert "Failed" not in page, "the state that the box has reported"
    assert "boxes failed, and 100 % have to succeed" in site.client().get("/rollouts/1").text


def test_a_database_that_is_gone_is_a_cause_in_chinese_and_its_words_are_an_administrators(short_tmp: Path) -> None:
    need()
    with running(short_tmp) as server:
        store = ControllerStore.open(server.new_database())
        site = ConsoleSite(store)
        server.stop()
        admins = site.client("anna", language="zh-CN").get("/boxes/hall-1").text
        assert "无法连接到它" in admins
        assert "systemctl status postgresql" in admins
        assert "上的数据库" in admins
        assert any("connection" in one for one in ReadTexts(admins).quotes)
        for path in ("/boxes/hall-1", "/apps", "/rollouts", "/alerts", "/audit"):
            assert english(site.client("vera", language="zh-CN").get(path).text) == set(), path
        page = site.client("anna").get("/apps").text
        assert "cannot use the database" in page
        assert "is PostgreSQL running there" in page
        store.close()
