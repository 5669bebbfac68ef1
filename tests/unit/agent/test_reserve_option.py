"""What an installation keeps back of each card, by the option, the configuration and what the driver says."""

from pathlib import Path

import pytest

from edgegpu_agent.cli.common import CliError
from edgegpu_agent.cli.setup.reserve_option import CardOptions, wanted_reserve
from edgegpu_installer.layout import Layout

REFUSED = 'echo "Field \\"memory.reserved\\" is not a valid field to query."; exit 2'


class Box:
    """A box whose nvidia-smi answers so."""

    def __init__(self, root: Path, *, smi: str) -> None:
        self.layout, self.said = Layout(root), list[str]()
        program = root / "usr/bin/nvidia-smi"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{smi}\n")
        program.chmod(0o755)

    def wanted(self, text: str | None, options: CardOptions = CardOptions()) -> int | str | None:  # noqa: B008  (frozen)
        return wanted_reserve(text, self.layout, options=options, say=self.said.append)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path, smi='printf "0, 15360, 444\\n1, 16384, [N/A]\\n"')


def test_a_new_installation_keeps_back_what_the_driver_keeps_and_says_it(box: Box) -> None:
    assert box.wanted(None) == "auto"
    assert box.said == [
        "note: card 0 has 58 units of 256 MiB to offer: of its 15360 MiB the driver keeps 444",
        "note: card 1 has 64 units of 256 MiB to offer: of its 16384 MiB the driver does not say what it keeps",
    ]


def test_a_machine_that_offers_no_card_says_nothing_of_cards(box: Box) -> None:
    assert (box.wanted(None, CardOptions(offers=False)), box.said) == ("auto", [])


def test_units_are_of_the_size_that_is_asked_for_or_configured(box: Box) -> None:
    box.layout.etc.mkdir(parents=True)
    box.layout.plugin_yaml.write_text("version: 1\nnode_name: box\nresources: {unit_mib: 512}\n")
    for options in (CardOptions(), CardOptions(unit_mib=1024)):
        box.wanted("auto", options)
    units = [line.partition(" to offer")[0] for line in box.said]
    assert units == [
        "note: card 0 has 29 units of 512 MiB",
        "note: card 1 has 32 units of 512 MiB",
        "note: card 0 has 14 units of 1024 MiB",
        "note: card 1 has 16 units of 1024 MiB",
    ]


def test_a_box_in_use_keeps_the_units_that_it_offers(box: Box) -> None:
    box.layout.etc.mkdir(parents=True)
    box.layout.plugin_yaml.write_text("version: 1\nnode_name: box\n")
    assert (box.wanted(None), box.said) == (None, [])
    assert box.wanted("auto") == "auto"
    assert len(box.said) == 2


def test_a_driver_before_510_does_not_say_it(tmp_path: Path) -> None:
    box = Box(tmp_path, smi=f'case "$1" in *reserved*) {REFUSED};; esac; echo "0, 7611"')
    assert box.wanted(None) == "auto"
    assert box.said == [
        "note: card 0 has 29 units of 256 MiB to offer: of its 7611 MiB the driver does not say what it keeps"
    ]


def test_without_an_answer_nothing_is_said(tmp_path: Path) -> None:
    box = Box(tmp_path, smi="exit 9")
    assert (box.wanted(None), box.said) == ("auto", [])


@pytest.mark.parametrize("text", ["", "-1", "1048577", "512M", "Auto"])
def test_what_is_no_reserve_is_refused(box: Box, text: str) -> None:
    with pytest.raises(CliError, match="cannot install with --reserve-mib"):
        box.wanted(text)


def test_a_number_counts_as_it_is(box: Box) -> None:
    assert [box.wanted(text) for text in ("0", "512", "1048576")] == [0, 512, 1048576]
    assert box.said == []
