"""The installer as its commands use it: on a machine without k3s, and where it is no unpacked version."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kits.cli import edgegpu
from kits.facts import FakeBox

from edgegpu_agent.cli.setup.installing import InstallerConsole
from edgegpu_installer.errors import InstallError
from edgegpu_installer.plan.release import read_release

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay a version out as tools/env does, as far as the installer reads it."""
    folder = tmp_path / "version"
    for name, source in (("systemd", "systemd"), ("examples", "docs/examples"), ("installer", "installer")):
        shutil.copytree(ROOT / source, folder / name, ignore=shutil.ignore_patterns("edgegpu_installer"))
    (folder / "VERSION").write_text("1.2.3\n")
    monkeypatch.setenv("EDGEGPU_RELEASE", str(folder))
    return folder


@pytest.mark.usefixtures("version")
def test_where_there_is_nothing_to_finish_no_k3s_is_needed(tmp_path: Path) -> None:
    box = FakeBox(tmp_path)
    (box.root / "run").mkdir()
    assert InstallerConsole(say=print, layout=box.layout).resume() is None


def test_a_version_is_read_and_a_source_checkout_is_called_so(version: Path) -> None:
    assert read_release(version).version == "1.2.3"
    with pytest.raises(InstallError, match="this is a source checkout") as caught:
        read_release(ROOT)
    assert caught.value.remedy.endswith("make bundle")


@pytest.mark.parametrize("words", [["--dry-run"], ["--yes"]])
def test_an_installation_from_a_source_checkout_says_that_first(words: list[str]) -> None:
    done = edgegpu("install", *words)
    assert (done.out, done.code) == ("", 1)
    assert (
        done.err
        == f"edgegpu: cannot install from {ROOT}: this is a source checkout\n  make a bundle there: make bundle\n"
    )


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize("card", ["", "-1", "0:0:0", "none"])
def test_a_name_of_no_card_is_refused_before_the_installation_begins(card: str) -> None:
    done = edgegpu("install", "--yes", "--exclude=0", f"--exclude={card}")
    assert (done.out, done.code) == ("", 1)
    assert done.err.startswith(
        f"edgegpu: cannot install with --exclude {card!r}: not the name of a card\n  give a number"
    )
