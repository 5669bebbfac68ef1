"""Which isolation an installation sets, by the option, the configuration and the libraries of this machine."""

from pathlib import Path

import pytest

from edgegpu_agent.cli.common import CliError
from edgegpu_agent.cli.setup.isolation_option import wanted_isolation
from edgegpu_installer.layout import Layout


class Box:
    """A box with a configuration, which names a folder without libraries or with those of this build."""

    def __init__(self, root: Path) -> None:
        self.layout, self.said = Layout(root), list[str]()

    def write(self, isolation: str) -> None:
        self.layout.etc.mkdir(parents=True, exist_ok=True)
        self.layout.plugin_yaml.write_text(f"version: 1\nnode_name: box\nisolation: {{{isolation}}}\n")

    def wanted(self, text: str | None) -> str | None:
        return wanted_isolation(text, self.layout, say=self.said.append)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_with_libraries_the_default_need_not_be_set(box: Box, limiter_build: Path) -> None:
    box.write(f"libraries: {limiter_build}")
    assert [box.wanted(text) for text in (None, "none", "limiter")] == [None, "none", "limiter"]
    assert box.said == []


def test_without_libraries_the_default_is_none_and_told(box: Box) -> None:
    box.write("libraries: /nonexistent")
    assert box.wanted(None) == "none"
    (line,) = box.said
    assert line.startswith("note: no container will be held to its share (isolation none): cannot use the limiter's")
    with pytest.raises(CliError, match="cannot install with --isolation limiter: cannot use the limiter's"):
        box.wanted("limiter")


@pytest.mark.parametrize("mode", ["none", "limiter"])
def test_what_a_person_has_set_stays(box: Box, mode: str) -> None:
    box.write(f"libraries: /nonexistent, mode: {mode}")
    assert box.wanted(None) is None
    assert box.said == []


def test_mps_is_refused_where_processes_are_killed(box: Box, limiter_build: Path) -> None:
    box.write(f"libraries: {limiter_build}")
    assert box.wanted("mps") == "mps"
    box.write(f"libraries: {limiter_build}, on_bypass: kill")
    with pytest.raises(CliError, match=r"--isolation mps: .*plugin\.yaml has isolation\.on_bypass: kill"):
        box.wanted("mps")


@pytest.mark.parametrize("mode", ["none", "limiter"])
def test_a_mode_that_the_choices_of_pods_do_not_go_with_is_refused(box: Box, limiter_build: Path, mode: str) -> None:
    box.write(f"libraries: {limiter_build}, mode: mps, pods_may: [none, mps]")
    with pytest.raises(CliError, match=rf"--isolation {mode}: in .*plugin\.yaml isolation\.pods_may has mps"):
        box.wanted(mode)
    assert box.wanted("mps") == "mps"


def test_what_is_no_mode_is_refused(box: Box) -> None:
    with pytest.raises(CliError, match="--isolation hard: there is no such mode"):
        box.wanted("hard")


def test_a_configuration_that_cannot_be_read_is_left_to_the_installation(box: Box) -> None:
    box.write("mode: hard")
    assert box.wanted(None) is None
