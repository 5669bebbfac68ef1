"""The punctuation of a page's texts is that of its language, in the templates and in the translations."""

import re
from pathlib import Path

from babel.messages.pofile import read_po

CONSOLE = Path(__file__).resolve().parents[3] / "cloud_sync/edgegpu_cloud/console"
TEMPLATES = CONSOLE / "templates"
CHINESE = CONSOLE / "locale/zh/LC_MESSAGES/console.po"

_BARE_COLON = re.compile(r"(\}\}|%\}|</\w+>):( |$)", re.MULTILINE)
_IN_CODE = re.compile(r"`[^`]*`")
_HAN = r"[\N{CJK UNIFIED IDEOGRAPH-4E00}-\N{CJK UNIFIED IDEOGRAPH-9FFF}]"
_PLACEHOLDER = r"%\(\w+\)\w"
_ENGLISH_MARK = re.compile(rf"{_HAN}\s*[:;,!?]|[:;,!?]\s*{_HAN}|{_PLACEHOLDER}[:;,]\s|^\s*[:;,]\s*$")
"""A mark of English text beside Chinese text, behind what fills a translation in, or alone."""


def test_no_template_has_a_colon_that_is_english_alone() -> None:
    """Chinese has a colon of its own, which `_(": ")` gives."""
    found = {path.name for path in TEMPLATES.rglob("*.html") if _BARE_COLON.search(path.read_text("utf-8"))}
    assert found == set()
    assert _BARE_COLON.search("<b>{{ name }}</b>: {{ text }}")
    assert any('_(": ")' in path.read_text("utf-8") for path in TEMPLATES.rglob("*.html"))


def english_marks(text: str) -> bool:
    """Return whether a Chinese text has punctuation of English; what stands in backticks is code."""
    return _ENGLISH_MARK.search(_IN_CODE.sub("", text)) is not None


def test_no_translation_has_punctuation_that_is_english() -> None:
    with CHINESE.open("rb") as file:
        catalog = read_po(file, locale="zh")
    strings = [one.string or "" for one in catalog if one.id]
    texts = [text for found in strings for text in ((found,) if isinstance(found, str) else found)]
    assert len(texts) > 1_000
    assert [text for text in texts if english_marks(text)] == []


def test_what_counts_as_punctuation_of_english() -> None:
    bad = ("设备: %(name)s", "%(name)s: %(why)s", "未安装,请安装", "%(a)s; %(b)s", ": ", "设备:`edgegpu`")
    good = (
        "%(node)s\N{FULLWIDTH COLON}%(why)s",
        "运行 `a: 设备`",
        "https://x:8883 端口",
        "site=hall,rack!=3",
        "12:03 请求",
    )
    assert [text for text in bad if not english_marks(text)] == []
    assert [text for text in good if english_marks(text)] == []
