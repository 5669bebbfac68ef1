"""The booted box's verdict on a command: what it may say, and what is wrong with what it says."""

from __future__ import annotations

from typing import Any

import pytest
from box.commandfaults import waiting
from box.commandjudge import INSTALL, RESTART, UNINSTALL, Seen, judged

from edgegpu_cloud.fleet.views import CommandView
from edgegpu_sync.ids import CommandId, DeviceId, op_name
from edgegpu_sync.states import CommandState

RUN = "7f" * 16


def view(op: str, state: CommandState) -> CommandView:
    return CommandView(
        id=CommandId("01j9zq4v7m2c8x5n"),
        device=DeviceId("k3f9x2m7q1w8e5r4"),
        box="hall",
        op=op_name(op),
        args={},
        by="box",
        at_s=0.0,
        due_at_s=0.0,
        state=state,
        code="",
        text="",
        data={"invocation": RUN} if op == RESTART else None,
        attempts=1,
        seq=1,
        tries=1,
        ended=True,
        ended_at_s=1.0,
        cancelled=False,
        overdue=False,
    )


def verdict(op: str, state: CommandState = CommandState.SUCCEEDED, **more: Any) -> list[str]:  # noqa: ANN401
    given = {"step": "after-act", "cut": False, "starts": (1, 0), "installed": op == INSTALL, "runs": ("", RUN), **more}
    return judged(Seen(op=op, view=view(op, state), **given))


@pytest.mark.parametrize(
    "right",
    [
        {"op": RESTART},
        {"op": RESTART, "starts": (0, 1)},
        {"op": RESTART, "starts": (1, 0), "cut": True},
        {"op": RESTART, "starts": (0, 0), "cut": True},
        {"op": RESTART, "starts": (0, 1), "cut": True, "step": "after-ACCEPTED"},
        {"op": RESTART, "runs": (RUN, "that of the boot"), "step": "after-send", "cut": True},
        {"op": INSTALL},
        {"op": INSTALL, "starts": (0, 0), "cut": True},
        {"op": UNINSTALL, "state": CommandState.ROLLED_BACK, "cut": True, "installed": True, "starts": (1, 1)},
    ],
)
def test_what_is_right(right: dict[str, Any]) -> None:
    assert verdict(**right) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"op": RESTART, "starts": (1, 1)},
        {"op": RESTART, "starts": (0, 0)},
        {"op": RESTART, "starts": (1, 1), "cut": True},
        {"op": RESTART, "starts": (0, 0), "cut": True, "step": "after-ACCEPTED"},
        {"op": RESTART, "runs": (RUN, "another")},
        {"op": RESTART, "runs": ("", RUN), "step": "after-ENDED", "cut": True},
        {"op": RESTART, "state": CommandState.UNKNOWN},
        {"op": INSTALL, "installed": False},
        {"op": INSTALL, "starts": (1, 1)},
        {"op": INSTALL, "starts": (0, 0)},
        {"op": INSTALL, "starts": (1, -1), "cut": True},
        {"op": UNINSTALL, "installed": True},
        {"op": UNINSTALL, "state": CommandState.ROLLED_BACK, "installed": True},
        {"op": UNINSTALL, "state": CommandState.ROLLED_BACK, "cut": True},
        {"op": UNINSTALL, "state": CommandState.ROLLED_BACK, "cut": True, "installed": True, "starts": (1, 2)},
        {"op": UNINSTALL, "state": CommandState.FAILED, "installed": True},
    ],
)
def test_what_is_wrong_is_said(wrong: dict[str, Any]) -> None:
    assert len(verdict(**wrong)) == 1


def test_who_waits_at_which_step() -> None:
    said = "  looking\n  waiting at after-RUNNING, process 12\n"
    assert (waiting(said, "after-RUNNING"), waiting(said, "after-RUN")) == ("12", "")
