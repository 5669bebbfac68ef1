"""What pages say of a box's refusal: by its code and its numbers, in the page's language."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kits.speaking import phrasing

from edgegpu_cloud.fleet.limits.report_words import report_words
from edgegpu_cloud.phrases import of_sentence, phrase_json, read_phrase
from edgegpu_cloud.result_codes import code_words
from edgegpu_core.model import ResourceModel
from edgegpu_core.reasons import need
from edgegpu_core.request import PlaceableRequest
from edgegpu_core.sentences import sentence
from edgegpu_sync.messages.uplink import ItemReport
from edgegpu_sync.rules.box_sentences import BOX_SENTENCES, NO_CONTAINER, NO_PERMISSION, NO_WORKLOAD, BoxSentence
from edgegpu_sync.rules.settle import NO_SHARING
from edgegpu_sync.states import ResultCode

TOLD = "needs 40 vcuda-memory on one card; card 0 has 29 free"
WIDE = str.maketrans("\N{FULLWIDTH COMMA}\N{FULLWIDTH SEMICOLON}\N{FULLWIDTH COLON}", ",;:")
QUOTE = '<q lang="en">{}</q>'


def card(units: int, core: int = 100, **more: Any) -> dict[str, Any]:  # noqa: ANN401  (fields of a message)
    return {"node": "box-1", "card": "0", "free_units": units, "free_core": core} | more


def report(text: str = TOLD, **more: Any) -> ItemReport:  # noqa: ANN401  (fields of a message)
    fields = {"state": "Rejected", "rev": 3, "hash": "0" * 16, "retry": 0, "code": "NO_ROOM", "text": text} | more
    return ItemReport.model_validate_json(json.dumps(fields))


def numbers(*cards: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401  (fields of a message)
    return {"need_units": 40, "need_core": 30, "verdict": "never_fits", "cards": list(cards)} | more


def chinese(one: ItemReport) -> str:
    text = report_words(one)
    back = read_phrase(text, json.loads(json.dumps(phrase_json(text))))
    said = phrasing("zh").quoted(text)
    assert said == phrasing("zh").quoted(back), "it comes back from the store"
    assert text == (one.text or ""), "logs, the API and the command line have the box's own text"
    return said.translate(WIDE)


def english(one: ItemReport) -> str:
    return phrasing("en").quoted(report_words(one))


def test_an_english_page_has_the_users_words_for_a_refusal() -> None:
    one = report(numbers=numbers(card(29)))
    assert english(one) == (
        "1 pod needs 40 units and core 30 on one card; free without its own pods: card 0 has 29 units and core 100"
    )
    three = report(numbers=numbers(card(29), need_core=200, replicas=3))
    assert english(three).startswith("each of 3 pods needs 2 whole empty cards; ")
    assert english(report("no <room>", code="NEW_CODE")) == "no &lt;room&gt;"


@pytest.mark.parametrize("code", list(ResultCode))
def test_pages_have_words_for_each_code(code: ResultCode) -> None:
    """Who reads logs, the API or a command line finds the code itself."""
    assert code_words(code.value) == code.value
    said = [phrasing(language).code_words(code.value) for language in ("en", "zh")]
    assert all(code.value not in one and one.strip() for one in said)
    assert said[0] != said[1]


def test_a_code_of_a_newer_agent_stays_as_it_is() -> None:
    assert phrasing("zh").code_words("NEW_<CODE>") == "NEW_&lt;CODE&gt;"


def test_the_cores_own_refusal_has_no_resource_names_on_pages() -> None:
    """A preview's text comes from the core, which says what a pod asks of Kubernetes."""
    ask = PlaceableRequest(memory_units=1, core=30, whole=False, cards=1)
    model = ResourceModel()
    text = of_sentence(sentence("needs %(need)s", need=need(ask, model)))
    assert text == "needs 1 vcuda-memory and 30 vcuda-core on one card"
    assert phrasing("en").said(text) == "needs 1 memory unit and 30 core on one card"
    assert "vcuda" not in phrasing("zh").said(text)


def test_numbers_that_explain_it_say_it() -> None:
    one = report(numbers=numbers(card(29)))
    assert chinese(one) == (
        "1 个 Pod,每个需要同一张显卡上的 40 个单位、算力 30;不计它自己的 Pod,空闲:显卡 0 有 29 个单位、算力 100"
    )
    several = report(numbers=numbers(card(60), card(29, node="box-2"), replicas=3))
    assert "3 个 Pod" in chinese(several)
    assert "box-2 的显卡 0 有 29 个单位" in chinese(several)
    assert "<q" not in chinese(several)


def test_whole_cards_and_many_cards() -> None:
    assert "每个需要 2 张完整的空闲显卡" in chinese(report(numbers=numbers(card(29, 50), need_core=200)))
    many = numbers(*(card(at, card=str(at)) for at in range(30)))
    assert chinese(report(numbers=many)).endswith("等另外 22 个")


@pytest.mark.parametrize("cards", [(card(60),), ()])
def test_what_numbers_do_not_explain_is_quoted_beside_them(cards: tuple[dict[str, Any], ...]) -> None:
    quota = "the namespace's quota lets no further pod in"
    assert chinese(report(quota, numbers=numbers(*cards))).endswith(
        ";" + QUOTE.format("the namespace&#39;s quota lets no further pod in")
    )


def test_a_stop_that_nobody_has_allowed() -> None:
    one = report(numbers=numbers(card(60), verdict="fits_after_stop"))
    assert chinese(one).startswith("只有该应用自己的 Pod 结束后才放得下,而请求没有允许停止它们;1 个 Pod")
    assert "<q" not in chinese(one)


def test_limits_that_were_taken_back() -> None:
    one = report("a waits: no room; the limits before are there again", state="Failed", restored=True)
    assert chinese(one).startswith("放不下,已恢复原样")


def test_texts_that_are_the_same_on_every_box() -> None:
    one = report(NO_SHARING.text, code="NOT_INSTALLED")
    assert chinese(one) == "该设备上没有安装 GPU 共享"


def fields_of(one: BoxSentence) -> dict[str, str]:
    return {name: f"{name}-of-it" for name in re.findall(r"%\((\w+)\)s", one.template)}


@pytest.mark.parametrize("one", BOX_SENTENCES, ids=lambda one: one.template[:30])
def test_each_refusal_of_an_agent_is_read_back_and_said_in_chinese(one: BoxSentence) -> None:
    fields = fields_of(one)
    text = one.of(**fields)
    assert one.read(text) == fields
    assert [other for other in BOX_SENTENCES if other.read(text) is not None] == [one], "no text is two of them"
    said = chinese(report(text, code="PRECHECK"))
    assert one.template.split("%")[0].strip() not in said or one.template.startswith("%")
    assert all(value in said for value in fields.values())


def test_names_stand_in_the_sentence_and_reasons_are_quoted() -> None:
    assert chinese(report(NO_WORKLOAD.of(app="default/asr"), code="PRECHECK")).startswith("没有 Deployment")
    text = NO_CONTAINER.of(workload="Deployment default/asr", container="main", containers="a, b")
    assert "<q" not in chinese(report(text, code="PRECHECK"))
    refused = NO_PERMISSION.of(namespace="shop", why="403: <b>no</b>")
    assert QUOTE.format("403: &lt;b&gt;no&lt;/b&gt;") in chinese(report(refused, code="ERROR"))


@pytest.mark.parametrize(("code", "more"), [("NO_ROOM", {}), ("PRECHECK", {}), ("NEW_CODE", {"numbers": numbers()})])
def test_words_of_an_old_box_stay_quoted(code: str, more: dict[str, Any]) -> None:
    assert chinese(report(code=code, **more)) == QUOTE.format(TOLD)
    assert report_words(report(text="", code=code)) == ""


def test_a_hostile_report_steers_nothing() -> None:
    one = report("%(num)s%s", numbers=numbers(card(1, card="<b>%(x)s%n"), card(2)))
    assert "&lt;b&gt;%(x)s%n" in chinese(one)
    huge = report(numbers=numbers(card(2**53 - 1, 0), need_units=0, need_core=0, replicas=2**53 - 1))
    assert chinese(huge).endswith("</q>"), "nothing is divided by what is not needed"
