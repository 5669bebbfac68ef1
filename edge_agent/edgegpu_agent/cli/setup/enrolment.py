"""The run of `edgegpu agent enrol`, and the wait for the agent's status of an enrolment."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from edgegpu_agent.cli.common import CliError
from edgegpu_agent.identity.status import STATUS_FILE
from edgegpu_agent.settings import CloudSection
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import AGENT_UNIT, Layout
from edgegpu_installer.machine import atomic
from edgegpu_installer.machine.systemd import Systemd
from edgegpu_installer.plan.agent_config import agent_yaml
from edgegpu_installer.plan.site import InstallOptions

_VARIABLE = "EDGEGPU_TOKEN"
_LOOK_S = 0.2
_LOOKED_S = 10.0
"""The agent has read its files twice by then."""
_ENDS = frozenset({"enrolled", "refused", "waiting for approval", "cloned", "broken"})
_LOG = "see `journalctl -u edgegpu-agent`"


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """The identity's status, as the agent reports it."""

    raw: dict[str, Any]

    @property
    def has_ended(self) -> bool:
        """Whether the enrolment is done, or the agent does nothing more by itself."""
        return self.raw.get("stand") in _ENDS

    @property
    def well(self) -> bool:
        """Whether the box is enrolled, or only waits for a person's approval."""
        return self.raw.get("stand") in {"enrolled", "waiting for approval"} and not self.raw.get("warning")

    @property
    def remedy(self) -> str:
        """The command or advice for a person."""
        if self.raw.get("stand") == "waiting for approval":
            return "on the cloud: edgegpu-cloud pending; edgegpu-cloud approve ID. This box goes on by itself then"
        return str(self.raw.get("remedy") or "")

    @property
    def sentence(self) -> str:
        """The end of the enrolment, in one sentence."""
        raw = self.raw
        stand, text = str(raw.get("stand")), str(raw.get("warning") or raw.get("text") or "")
        if stand == "enrolled" and not text:
            return f"enrolled as {raw.get('name') or raw.get('device')}"
        code = f" ({raw['code']})" if raw.get("code") else ""
        return f"{stand}{code}{f': {text}' if text else ''}"

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {**self.raw, "remedy": self.remedy}


def read_token(file: Path | None) -> str:
    """Return the token from a file, the environment, or a person at a terminal.

    Raises:
        CliError: there is no token.
    """
    token = os.environ.pop(_VARIABLE, "")
    if file is not None:
        try:
            token = file.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise CliError(f"cannot read the token in {file}: {error}", remedy="name a file of one line") from error
    if not token and sys.stdin.isatty():
        token = typer.prompt("the token", hide_input=True, err=True)
    if not token.strip():
        raise CliError(
            "cannot enrol: there is no token", remedy="--token-file FILE, or EDGEGPU_TOKEN in the environment"
        )
    return token.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentRun:
    """One run of `edgegpu agent enrol`, on the machine below `root`."""

    root: Path
    wait_s: float
    system: Systemd = field(default_factory=Systemd)
    clock: Callable[[], float] = time.monotonic

    def run(self, url: str, ca_sha256: str, token: str) -> AgentIdentity:
        """Write agent.yaml and the token, restart the agent, and wait for the end of the enrolment.

        Raises:
            CliError: an option is invalid, edgegpu is not installed, or the agent reports nothing.
        """
        layout = Layout(self.root)
        try:
            cloud = CloudSection(url=url, ca_sha256=ca_sha256)
        except ValueError as error:
            raise CliError(
                f"cannot enrol with {url}: {_first(error)}", remedy="take the line from your cloud"
            ) from error
        standing = layout.run / STATUS_FILE
        try:
            if not self.system.unit(AGENT_UNIT).is_there:
                raise CliError(f"cannot enrol: systemd has no {AGENT_UNIT}", remedy="run edgegpu install first")
            there = layout.agent_yaml
            now = there.read_text(errors="replace") if there.exists() else None
            text = agent_yaml(now, InstallOptions(cloud=cloud.url, ca_sha256=cloud.ca_sha256)) or ""
            standing.unlink(missing_ok=True)
            layout.etc.mkdir(exist_ok=True)
            atomic.write(there, text.encode(), mode=0o644)
            atomic.write(layout.cloud_token, f"{token}\n".encode())
            self.system.restart(AGENT_UNIT)
        except InstallError as error:
            raise CliError(error.message, remedy=error.remedy or _LOG) from error
        except OSError as error:
            raise CliError(f"cannot enrol: {error}", remedy="run it as root") from error
        return wait_for_status(standing, token, wait_s=self.wait_s, clock=self.clock)


def wait_for_status(
    standing: Path, token: str, *, wait_s: float, clock: Callable[[], float] = time.monotonic
) -> AgentIdentity:
    """Wait until the agent reports the end of an enrolment; after `wait_s` return the last status.

    Args:
        standing: the agent's status file.
        token: the token that the agent was given; a status of another token is older.
        wait_s: how long to wait.
        clock: monotonic seconds.

    Raises:
        CliError: the agent reported nothing.
    """
    from edgegpu_agent.identity.enrolment import token_hash  # noqa: PLC0415  (slow to load)

    began, told, digest = clock(), AgentIdentity({}), token_hash(token)
    while True:
        now = read_status_file(standing) or told
        about_it = now.raw.get("token_sha256") == digest
        if about_it or now.raw.get("stand") == "broken":  # "broken" may be old: the agent looks every 5 s
            told = now
        if told.has_ended and (about_it or clock() >= began + _LOOKED_S):
            return told
        if clock() >= began + wait_s:
            break
        time.sleep(_LOOK_S)
    if told.raw:
        return told
    raise CliError(f"cannot tell how the enrolment went: the agent has not answered in {wait_s:g} s", remedy=_LOG)


def read_status_file(path: Path) -> AgentIdentity | None:
    """Return the agent's status file; None where it cannot be read."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return AgentIdentity(value) if isinstance(value, dict) else None


def _first(error: ValueError) -> str:
    """Return the text of pydantic's first error."""
    from pydantic import ValidationError  # noqa: PLC0415

    if isinstance(error, ValidationError):
        return error.errors(include_url=False, include_context=False)[0]["msg"].removeprefix("Value error, ")
    return str(error)
