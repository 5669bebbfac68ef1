"""The punctuation between texts of a page is translated as they are."""

import re
from pathlib import Path

TEMPLATES = Path(__file__).resolve().parents[3] / "cloud_sync/edgegpu_cloud/console/templates"
_BARE_COLON = re.compile(r"(\}\}|%\}|</\w+>):( |$)", re.MULTILINE)


def test_no_template_has_a_colon_that_is_english_alone() -> None:
    """Chinese has a colon of its own, which `_(": ")` gives."""
    found = {path.name for path in TEMPLATES.rglob("*.html") if _BARE_COLON.search(path.read_text("utf-8"))}
    assert found == set()
    assert _BARE_COLON.search("<b>{{ name }}</b>: {{ text }}")
    assert any('_(": ")' in path.read_text("utf-8") for path in TEMPLATES.rglob("*.html"))
