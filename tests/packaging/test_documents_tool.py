"""tools/documents.py and tools/status_picture.py: what they find in documents that are wrong, and nothing in ours."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh-CN.md")
CODE = ("base", "simulation", "plugin", "installer", "cloud_sync", "edge_agent")


def run(tool: str, *arguments: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "tools" / tool), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a folder for documents and code of its own."""
    for folder in ("docs", "plugin"):
        (tmp_path / folder).mkdir()
    return tmp_path


def test_our_documents_are_well() -> None:
    done = run("documents.py")
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("x" * 101, "1: 101 columns, the limit is 100"),
        ("\N{CJK UNIFIED IDEOGRAPH-5361}" * 51, "1: 102 columns, the limit is 100"),
        (f"| {'x' * 157} |", "1: 161 columns, the limit is 160"),
        ("[a page](there.md)", "1: there is no there.md"),
        ("[a place](#there)", "1: page.md has no heading #there"),
        ("[a place](../README.md#two-words-2)", "1: ../README.md has no heading #two-words-2"),
        ("[a place](../README.md#no-heading)", "1: ../README.md has no heading #no-heading"),
    ],
)
def test_what_is_wrong_is_found(copy: Path, line: str, fault: str) -> None:
    (copy / "README.md").write_text("# Two words\n\n## Two `words`\n\n```\n# no heading\n```\n")
    (copy / "docs/page.md").write_text(f"{line}\n", encoding="utf-8")
    done = run("documents.py", str(copy))
    assert (done.stdout, done.returncode) == (f"docs/page.md:{fault}\n", 1)


def test_what_is_well_is_let_pass(copy: Path) -> None:
    (copy / "README.md").write_text("# Two words\n\n## Two `words`\n")
    wide = f"```\n{'x' * 200}\n```\n\n[a word](https://example.com/{'x' * 100}) [a place](../README.md#two-words-1)\n"
    (copy / "docs/page.md").write_text(f"{wide}| {'x' * 156} |\n", encoding="utf-8")
    done = run("documents.py", str(copy))
    assert (done.stdout, done.returncode) == ("", 0)


def test_a_message_that_names_no_document_is_found(copy: Path) -> None:
    (copy / "docs/page.md").write_text("# Page\n")
    (copy / "plugin/one.py").write_text('HELP = "see docs/page.md"\nMORE = "see docs/other.md"\n')
    done = run("documents.py", str(copy))
    assert (done.stdout, done.returncode) == ("plugin/one.py:2: there is no docs/other.md\n", 1)


def test_the_picture_is_current() -> None:
    done = run("status_picture.py", "--check")
    assert (done.stderr, done.returncode) == ("", 0)


def test_another_picture_is_found_and_put_right(copy: Path) -> None:
    (copy / "tools").mkdir()
    for name in ("tools/status_picture.py", "pyproject.toml"):
        (copy / name).write_bytes((ROOT / name).read_bytes())
    for name in READMES:
        text = (ROOT / name).read_text(encoding="utf-8")
        (copy / name).write_text(text.replace("[AAAABBBB", "[AAAAABBB"), encoding="utf-8")
    done = run("status_picture.py", "--check", root=copy)
    assert "README.md, README.zh-CN.md: another picture" in done.stderr
    assert done.returncode == 1
    assert run("status_picture.py", root=copy).returncode == 0
    for name in READMES:
        assert (copy / name).read_bytes() == (ROOT / name).read_bytes()


def test_both_readmes_have_the_same_structure() -> None:
    english, chinese = (re.sub(r"```.*?```", "", read(name), flags=re.DOTALL) for name in READMES)
    kinds = re.compile(r"^(#+ |- |\|)", re.MULTILINE)
    assert kinds.findall(english) == kinds.findall(chinese)
    targets = re.compile(r"\]\((?!README)([^)]+)\)")
    shown = [target.replace("-zh.png", ".png") for target in targets.findall(chinese)]  # pictures in Chinese
    assert targets.findall(english) == shown


def test_the_chinese_readme_says_edge_device_and_not_box() -> None:
    text = read("README.zh-CN.md")
    assert "盒子" not in text
    assert "边缘设备" in text


@pytest.mark.parametrize("name", READMES)
def test_a_readme_is_short(name: str) -> None:
    assert len(read(name).splitlines()) <= 130


def test_the_glossary_names_words_that_the_code_has() -> None:
    rows = [line.strip("| ").split("|") for line in read("docs/glossary.md").splitlines() if line.startswith("| ")]
    words = {word for row in rows for word in re.findall(r"`([^`]+)`", row[-1])}
    files = [path for top in CODE for path in (ROOT / top).rglob("*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    known = set(re.findall(r"\w+", code))
    defined = {
        *re.findall(r"^class (\w+)", code, re.MULTILINE),
        *re.findall(r"^ *([A-Z_]+)\b.*? = ", code, re.MULTILINE),
    }
    assert len(words) > 40
    assert sorted(words - known) == []
    assert sorted(word for word in words - defined if word[0].isupper()) == []


def test_the_index_lists_every_page() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    listed = set(re.findall(r"\]\(([^)#]+\.md)", read("docs/README.md")))
    assert pages - listed == {"README.md"}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_a_paragraph_is_wrapped_and_nothing_else(copy: Path) -> None:
    row, code = f"| {'x ' * 90}|", f"```\n{'y ' * 90}\n```"
    text = f"# {'z ' * 90}\n\n{'word ' * 30}- `a b` end\n\n- {'item ' * 30}\n- one\n\n{row}\n\n{code}\n\nshort\nlines\n"
    page = copy / "docs/page.md"
    page.write_text(text)
    assert run("wrap_documents.py", str(page)).stdout == f"wrapped {page}\n"
    lines = page.read_text().splitlines()
    assert page.read_text().split() == text.split()
    assert {row, f"# {'z ' * 90}", "- one", "short", "lines", *code.splitlines()} <= set(lines)
    assert lines[3].endswith("word - `a b` end")
    assert [line[:7] for line in lines[5:8]] == ["- item ", "  item ", "- one"]
    assert run("wrap_documents.py", str(page)).stdout == ""
