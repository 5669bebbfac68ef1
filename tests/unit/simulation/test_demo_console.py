"""When the demo has a console: on a terminal, where it is asked for, and where many boxes are to join it."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from edgegpu_sim.demo.__main__ import app, has_console


@pytest.mark.parametrize(
    ("asked", "boxes", "json", "terminal", "shown"),
    [
        (None, 0, False, True, True),
        (None, 0, False, False, False),
        (None, 0, True, True, False),
        (None, 300, False, False, True),
        (True, 300, False, False, True),
        (True, 0, False, False, True),
        (False, 0, False, True, False),
    ],
)
def test_many_boxes_ask_for_the_console(
    *, asked: bool | None, boxes: int, json: bool, terminal: bool, shown: bool
) -> None:
    assert has_console(asked, boxes=boxes, json=json, terminal=terminal) is shown


@pytest.mark.parametrize(("asked", "json", "named"), [(False, False, "--no-console"), (None, True, "--json")])
def test_boxes_that_no_console_would_show_are_refused(*, asked: bool | None, json: bool, named: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"boxes join the console, and {named}"):
        has_console(asked, boxes=300, json=json, terminal=True)


def test_the_command_line_says_why() -> None:
    done = CliRunner().invoke(app, ["--no-console", "--boxes", "300"], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "boxes join the console, and --no-console (ONCE=1) has none: leave one of the two out" in done.output
