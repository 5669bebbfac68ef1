"""Actions that may be done twice: inventory.refresh, doctor.run, identity.rotate."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgegpu_agent.actions.plugin_client import PluginUnreachableError, wait_for_status
from edgegpu_agent.actions.programs import ActionTimer, run
from edgegpu_agent.ports import ActionOutcome
from edgegpu_sync.ids import CommandId
from edgegpu_sync.rules.ops import Args, Evidence
from edgegpu_sync.states import CommandState
from edgegpu_sync.wire import Json, clipped

_PLUGIN_S = 30.0
_DOCTOR_S = 240.0
_RENEW_S, _RENEW_MOST_S = 2.0, 60.0
_MOST_DATA_BYTES = 6_000
"""The part of a result's 8 KiB that `data` may take."""


class Idempotent:
    """The base of actions that may be done twice: after a crash they are done again, so they need no token."""

    __slots__ = ()

    def token(self, id_: CommandId, args: Args) -> str:
        """Return an empty token."""
        del id_, args
        return ""

    def evidence(self, id_: CommandId, token: str) -> Evidence:
        """Return UNREADABLE; nobody asks an idempotent action for evidence."""
        del id_, token
        return Evidence.UNREADABLE

    def verify(self, id_: CommandId, args: Args, token: str) -> ActionOutcome | None:
        """Return SUCCEEDED: `act` has waited for the end."""
        del id_, args, token
        return ActionOutcome(state=CommandState.SUCCEEDED)


@dataclass(frozen=True, slots=True)
class IdempotentAction(Idempotent):
    """An idempotent action that needs nothing but its command's id."""

    do: Callable[[CommandId], ActionOutcome]

    def act(self, id_: CommandId, args: Args, token: str) -> ActionOutcome:
        """Carry the command out."""
        del args, token
        return self.do(id_)


def refresh_inventory(socket: Path, *, timer: ActionTimer, refresh_telemetry: Callable[[], None]) -> IdempotentAction:
    """Return the action `inventory.refresh`: it asks the plugin, then reads all telemetry.

    What `refresh_telemetry` has read goes up before the command's result.
    """

    def do(_: CommandId) -> ActionOutcome:
        try:
            found = wait_for_status(socket, timer, within_s=_PLUGIN_S)
        except PluginUnreachableError:
            refresh_telemetry()
            text = f"the plugin has not answered for {_PLUGIN_S:g} s at {socket}: systemctl status edgegpu-plugin"
            return ActionOutcome.failed(text)
        refresh_telemetry()
        healthy, driver = sum(card.healthy for card in found.cards), found.driver
        data: Json = {
            "cards": len(found.cards),
            "healthy": healthy,
            "driver": driver.version,
            "problem": driver.problem,
        }
        return ActionOutcome(state=CommandState.SUCCEEDED, data=data)

    return IdempotentAction(do)


def run_doctor(program: Sequence[str], *, timer: ActionTimer, env: Mapping[str, str] | None = None) -> IdempotentAction:
    """Return the action `doctor.run`; its result lists the troubles, which do not make the command FAILED."""
    settled: Mapping[str, str] = dict(os.environ) if env is None else env

    def do(_: CommandId) -> ActionOutcome:
        said = run((*program, "doctor", "--json"), timer, within_s=_DOCTOR_S, env=settled, errors=False)
        try:
            document = json.loads(said.text)
            level, checks = str(document["level"]), list(document["checks"])
        except (ValueError, KeyError, TypeError):
            return ActionOutcome.failed(f"the doctor says nothing: {said.last_line}")
        version = str(document.get("version", ""))
        return ActionOutcome(state=CommandState.SUCCEEDED, text=level, data=doctor_data(version, level, checks))

    return IdempotentAction(do)


def doctor_data(version: str, level: str, checks: Sequence[Mapping[str, Any]]) -> Json:
    """Return the doctor's troubles, cut until a result has room: texts of 400, of 120 characters, or names alone."""
    bad = [one for one in checks if one.get("level") in {"broken", "warning"}]
    head: Json = {"version": version, "level": level, "checks": len(checks)}
    for length in (400, 120, 0):
        told: Json = {**head, "troubled": [line for one in bad for line in _problem_rows(one, length)]}
        if len(json.dumps(told)) <= _MOST_DATA_BYTES:
            return told
    return {**head, "troubled": len(bad)}


def _problem_rows(check: Mapping[str, Any], length: int) -> list[Json]:
    """Return a line for each trouble of a check, with its remedy; for length 0 one line for the check."""
    name = clipped(str(check.get("name", "")), length or 40)
    if not length:
        return [{"name": name, "level": str(check.get("level", ""))}]
    return [
        {"name": name, **{key: clipped(str(one[key]), length) for key in ("level", "text", "remedy") if one.get(key)}}
        for one in check.get("troubles") or [check]
    ]


def rotate_identity(
    renew: Callable[[str], object],
    *,
    timer: ActionTimer,
    refusals: tuple[type[Exception], ...],
    retried: tuple[type[Exception], ...] = (),
    within_s: float = 240.0,
) -> IdempotentAction:
    """Return the action `identity.rotate`.

    Args:
        renew: gets a new certificate for a cause, the command's id; the same cause gets the same certificate.
        timer: the timer of the pauses.
        refusals: what `renew` raises when it gets no certificate; the error's text becomes the result's.
        retried: those refusals after which it is tried again, until `within_s`.
        within_s: the time for all tries.
    """

    def do(id_: CommandId) -> ActionOutcome:
        deadline, wait_s = timer.now_s() + within_s, _RENEW_S
        while True:
            try:
                renew(id_)
            except refusals as error:
                if not isinstance(error, retried) or timer.now_s() + wait_s > deadline:
                    return ActionOutcome.failed(str(error))
            else:
                return ActionOutcome(state=CommandState.SUCCEEDED)
            timer.pause(wait_s)
            wait_s = min(2 * wait_s, _RENEW_MOST_S)

    return IdempotentAction(do)
