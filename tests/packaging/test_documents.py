"""The documents: their links lead somewhere, and README's first commands are those that a newcomer needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors(path: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        there = (path.parent / target).resolve() if target else path
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_first_commands_are_demo_and_test(name: str) -> None:
    first = re.search(r"```sh\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
    assert first is not None
    assert first[1].splitlines() == ["make demo", "make test"]


def test_every_configuration_key_is_documented() -> None:
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    example = (ROOT / "docs/examples/plugin.yaml").read_text(encoding="utf-8")
    keys = re.findall(r"^ *([a-z_]+):", example, re.MULTILINE)
    assert not [key for key in keys if not re.search(rf"[`.]{key}[`.]", text)]
