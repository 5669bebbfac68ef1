"""Sentences that a page can show in another language: what they are in English, in the store, and in the sources."""

from __future__ import annotations

import ast
import json
import pickle
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

import edgegpu_cloud
import edgegpu_core
import edgegpu_sync
from edgegpu_cloud.console.phrasing import Phrasing
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.phrases import (
    Phrase,
    Verbatim,
    joined,
    of_sentence,
    phrase,
    phrase_json,
    phrase_n,
    read_phrase,
)
from edgegpu_cloud.result_codes import reported
from edgegpu_core.sentences import sentence

SOURCES = Path(edgegpu_cloud.__file__).parent
OF_PAGES = ("alerts", "fleet", "people", "rollouts", "enrolment/manager.py", "console/pages")
"""Where the errors and sentences come from that pages show."""

PLACEHOLDER = re.compile(r"%\((\w+)\)")
SENTENCES = {"text", "remedy", "why", "reason"}
WORDS = {
    "cannot find a box %(name)r": "找不到设备 %(name)r",
    "%(num)d box": "%(num)d 台设备",
    "%(first)s; %(then)s": "%(first)s以及%(then)s",
    "%(state)s: %(words)s": "%(state)s是%(words)s",
    "it has <room> & %(percent)s %%": "有空间 %(percent)s %%",
    "broken %(name)s": "坏的 %(other)s",
    "give 25%, or more": "请给出 25% 以上",
    "%(text)s. %(remedy)s": "%(text)s。%(remedy)s",
}


@pytest.fixture
def chinese() -> Phrasing:
    return Phrasing(
        lambda text: WORDS.get(text, text), lambda one, _, __: WORDS.get(one, one), lambda: 0.0, marked=True
    )


@pytest.fixture
def english() -> Phrasing:
    return Phrasing(str, lambda one, many, number: one if number == 1 else many, lambda: 0.0)


def test_a_phrase_is_its_english_text() -> None:
    text = phrase("cannot find a box %(name)r", name="a")
    assert text == "cannot find a box 'a'"
    assert f"{text}!" == "cannot find a box 'a'!"
    assert json.dumps({"text": text}) == """{"text": "cannot find a box 'a'"}"""
    assert str(CloudError(text, remedy=phrase("look"))) == "cannot find a box 'a'; look"
    assert [phrase_n("%(num)d box", "%(num)d boxes", number) for number in (1, 2)] == ["1 box", "2 boxes"]
    assert joined([]) == ""
    assert joined(["a", "b", "c"]) == "a; b; c"
    assert reported("Failed", None, "") == "Failed"
    assert reported("Failed", "NO_ROOM", "none") == "Failed: NO_ROOM: none"


def test_a_page_translates_the_template_and_fills_it_in(chinese: Phrasing, english: Phrasing) -> None:
    one = phrase("cannot find a box %(name)r", name="<a>")
    assert chinese.said(one) == "找不到设备 &#39;&lt;a&gt;&#39;"
    assert english.said(one) == "cannot find a box &#39;&lt;a&gt;&#39;"
    boxes = phrase_n("%(num)d box", "%(num)d boxes", 3)
    assert chinese.said(joined([boxes, one])) == "3 台设备以及找不到设备 &#39;&lt;a&gt;&#39;"
    assert chinese.said(phrase("it has <room> & %(percent)s %%", percent=5)) == "有空间 5 %"
    assert chinese.said(phrase("give 25%, or more")) == "请给出 25% 以上"
    assert chinese.said("no phrase <b>") == "no phrase &lt;b&gt;"
    assert chinese.refusal(CloudError(boxes, remedy=boxes)) == "3 台设备。3 台设备"
    assert english.refusal(CloudError(boxes, remedy="")) == "3 boxes"


@pytest.mark.parametrize("hostile", ["%(num)d boxes", "%s%s%n", "%(other)s", "{0}", "cannot find a box %(name)r"])
def test_what_fills_a_template_in_is_no_template(chinese: Phrasing, hostile: str) -> None:
    assert chinese.said(phrase("cannot find a box %(name)r", name=hostile)) == f"找不到设备 &#39;{hostile}&#39;"
    told = chinese.said(reported("Failed", "", hostile))
    assert told == f'Failed是<q lang="en">{hostile}</q>'


def test_words_of_a_box_are_quoted_where_the_page_is_not_english(chinese: Phrasing, english: Phrasing) -> None:
    assert chinese.quoted("no <room>") == '<q lang="en">no &lt;room&gt;</q>'
    assert english.quoted("no <room>") == "no &lt;room&gt;"
    assert chinese.quoted(None) == chinese.quoted("") == ""
    assert chinese.quoted(phrase_n("%(num)d box", "%(num)d boxes", 1)) == "1 台设备", "a sentence of ours among theirs"
    assert chinese.said(phrase("%(num)d box", num=1)) == "1 台设备"


def test_a_phrase_of_another_version_is_shown_in_english(chinese: Phrasing) -> None:
    assert chinese.said(phrase("broken %(name)s", name="a")) == "broken a"
    assert chinese.said(phrase("not translated: %(name)s", name="a")) == "not translated: a"


def test_a_phrase_comes_back_from_the_store() -> None:
    inner = phrase_n("%(num)d box", "%(num)d boxes", 2)
    whole = phrase("%(first)s; %(then)s", first=inner, then=Verbatim("as sent"))
    back = read_phrase(str(whole), json.loads(json.dumps(phrase_json(whole))))
    assert isinstance(back, Phrase)
    assert back == whole
    assert (back.one, back.many) == (whole.one, whole.many)
    first, then = back.fields["first"], back.fields["then"]
    assert isinstance(first, Phrase)
    assert (first, first.one, first.many, first.fields) == (inner, inner.one, inner.many, {"num": 2})
    assert isinstance(then, Verbatim)
    assert phrase_json("none of ours") is phrase_json(Verbatim("a")) is None
    assert read_phrase("old", None) == "old"


def test_a_sentence_of_the_core_is_a_phrase() -> None:
    inner = phrase("%(num)d box", num=1)
    whole = of_sentence(sentence("%(first)s; %(then)s", first=sentence("100 % of it"), then=inner))
    assert isinstance(whole, Phrase)
    assert (whole, whole.one) == ("100 % of it; 1 box", "%(first)s; %(then)s")
    first, then = whole.fields["first"], whole.fields["then"]
    assert isinstance(first, Phrase)
    assert (first.one, first.fields) == ("100 % of it", {})
    assert then is inner
    assert of_sentence("words") == "words"
    assert not isinstance(of_sentence("words"), Phrase)


def test_a_record_with_a_phrase_is_copied_with_it() -> None:
    @dataclass
    class Row:
        text: str

    text = phrase("%(first)s; %(then)s", first=phrase("%(num)d box", num=1), then=Verbatim("a"))
    for kept in (asdict(Row(text))["text"], pickle.loads(pickle.dumps(text))):  # noqa: S301  (it was made here)
        assert isinstance(kept, Phrase)
        assert (kept, phrase_json(kept)) == (text, phrase_json(text))


def calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def name_of(call: ast.Call) -> str:
    return (
        call.func.id
        if isinstance(call.func, ast.Name)
        else call.func.attr
        if isinstance(call.func, ast.Attribute)
        else ""
    )


def test_each_phrase_has_a_literal_template_and_the_fields_that_it_names() -> None:
    wrong, number = [], 0
    folders = (SOURCES, Path(edgegpu_core.__file__).parent, Path(edgegpu_sync.__file__).parent)
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        for call in calls(ast.parse(path.read_text())):
            forms = {"phrase": 1, "phrase_n": 2, "sentence": 1}.get(name_of(call), 0)
            if not forms:
                continue
            number += 1
            texts = [one.value for one in call.args[:forms] if isinstance(one, ast.Constant)]
            given = {one.arg for one in call.keywords} | ({"num"} if forms == 2 else set())
            if len(texts) != forms or set(PLACEHOLDER.findall(str(texts[-1]))) != given:
                wrong.append(f"{path}:{call.lineno}")
    assert wrong == []
    assert number > 200


def test_what_pages_show_of_errors_is_made_of_phrases() -> None:
    """A text that a page shows in English alone would be found by nobody who reads English."""
    plain = []
    for place in OF_PAGES:
        paths = sorted((SOURCES / place).rglob("*.py")) if (SOURCES / place).is_dir() else [SOURCES / place]
        for path in paths:
            tree = ast.parse(path.read_text())
            shown = [
                one
                for call in calls(tree)
                if name_of(call).endswith("Error") and name_of(call) not in NO_PAGE
                for one in (*call.args[:1], *(key.value for key in call.keywords if key.arg == "remedy"))
            ]
            shown += [
                node.value
                for node in ast.walk(tree)
                if isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and node.targets[0].id in SENTENCES
            ]
            plain += [f"{path.relative_to(SOURCES)}:{one.lineno}: {ast.unparse(one)}" for one in shown if is_plain(one)]
    assert plain == []


NO_PAGE = {"ValueError", "TypeError", "AssertionError", "WebhookError", "RequestRefusedError"}
"""Errors that no page shows: of the program, of a webhook's log, of the answer to a box."""


def is_plain(node: ast.AST) -> bool:
    """Whether a text is English words and no phrase."""
    match node:
        case ast.JoinedStr():
            return True
        case ast.Constant(value=str(text)):
            return " " in text
        case ast.IfExp():
            return is_plain(node.body) or is_plain(node.orelse)
        case _:
            return False


@pytest.mark.parametrize("number", ["many", 1e400, None])
def test_a_stored_phrase_whose_number_is_none_is_shown_in_english(chinese: Phrasing, number: object) -> None:
    fields = {} if number is None else {"num": number, "more": 1}
    parts = {"one": "%(num)d box", "many": "%(num)d boxes", "fields": fields | {"name": "a"}}
    assert chinese.said(read_phrase("3 boxes", parts)) == "3 boxes"
