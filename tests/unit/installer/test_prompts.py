"""What an installation asks on the terminal, and what the answers come to."""

import io
import os
import pty
import threading
from pathlib import Path

import pytest

from edgegpu_installer.cluster.nodes import NodeFacts
from edgegpu_installer.errors import InstallError
from edgegpu_installer.prompts import Terminal, choose_nodes


def node(name: str, **more: object) -> NodeFacts:
    return NodeFacts(**({"name": name, "is_server": False, "labelled": False} | more))  # type: ignore[arg-type]


NODES = (
    node("server", is_server=True),
    node("box-a", cards=2, memory_units=58),
    node("box-b", signs=("nvidia.com/gpu.present",)),
    node("box-c"),
)


def answering(*lines: str) -> tuple[Terminal, io.StringIO]:
    said = io.StringIO()
    return Terminal(io.StringIO("".join(f"{line}\n" for line in lines)), said), said


def test_what_is_proposed_is_taken_by_an_empty_answer() -> None:
    terminal, said = answering("")
    assert choose_nodes(terminal, NODES, here="server", cards_here=3) == ("server", "box-a", "box-b")
    assert "server, here: 3 NVIDIA cards seen" in said.getvalue()
    assert "2 NVIDIA cards seen by its edgegpu plugin, 58 units offered" in said.getvalue()
    assert "box-c  agent: nothing known from here" in said.getvalue()


@pytest.mark.parametrize(
    ("answer", "chosen"),
    [("2 4", ("box-a", "box-c")), ("box-b", ("box-b",)), ("4, 1", ("server", "box-c")), ("none", ())],
)
def test_numbers_and_names_are_understood(answer: str, chosen: tuple[str, ...]) -> None:
    terminal, _ = answering(answer)
    assert choose_nodes(terminal, NODES, here="server", cards_here=0) == chosen


def test_an_unknown_node_is_asked_again() -> None:
    terminal, said = answering("5 box-x 2", "2")
    assert choose_nodes(terminal, NODES, here="server", cards_here=0) == ("box-a",)
    assert "there is no node 5 box-x" in said.getvalue()


@pytest.mark.parametrize(("lines", "agreed"), [(["y"], True), (["YES"], True), ([""], False), (["what", "n"], False)])
def test_only_yes_is_yes(lines: list[str], agreed: bool) -> None:  # noqa: FBT001
    terminal, _ = answering(*lines)
    assert terminal.confirm("Go on?") is agreed


def test_a_terminal_that_is_closed_ends_it_with_the_options() -> None:
    terminal, _ = answering()
    with pytest.raises(InstallError, match="--node NAME"):
        terminal.confirm("Go on?")


def test_a_real_terminal_is_read_and_written() -> None:
    ours, theirs = pty.openpty()
    path = Path(os.ttyname(theirs))
    found: list[bool] = []

    def answer() -> None:
        with Terminal.find(path) or pytest.fail("no terminal") as terminal:
            found.append(terminal.confirm("Go on?"))

    asking = threading.Thread(target=answer)
    asking.start()
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(ours, 100)
    os.write(ours, b"y\n")
    asking.join(30)
    os.close(ours)
    os.close(theirs)
    assert found == [True]


def test_without_a_terminal_there_is_none(tmp_path: Path) -> None:
    assert Terminal.find(tmp_path / "tty") is None
