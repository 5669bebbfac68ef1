"""What `edgegpu agent enrol` does: writes where the box belongs and its token, and waits for the agent's word."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from edgegpu_agent.cli.errors import CliError
from edgegpu_agent.settings import CloudSection
from edgegpu_installer import atomic
from edgegpu_installer.agentyaml import agent_yaml
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import AGENT_UNIT, Layout
from edgegpu_installer.site import Options
from edgegpu_installer.systemd import Systemd

IDENTITY = "agent-identity.json"
"""In the run folder: how the identity stands, written by the agent."""

AGENT_YAML = "/etc/edgegpu/agent.yaml"
_VARIABLE = "EDGEGPU_TOKEN"
_LOOK_S = 0.2
_ENDS = frozenset({"enrolled", "refused", "waiting for approval", "cloned", "broken"})
_LOG = "see `journalctl -u edgegpu-agent`"


@dataclass(frozen=True, slots=True)
class Told:
    """What the agent says of the identity."""

    raw: dict[str, Any]

    @property
    def well(self) -> bool:
        """Whether the box is in, or only waits for a person."""
        return self.raw.get("stand") in {"enrolled", "waiting for approval"} and not self.raw.get("warning")

    @property
    def remedy(self) -> str:
        """What to do."""
        if self.raw.get("stand") == "waiting for approval":
            return "on the cloud: edgegpu-cloud pending; edgegpu-cloud approve ID. This box goes on by itself then"
        return str(self.raw.get("remedy") or "")

    @property
    def sentence(self) -> str:
        """How it ended."""
        raw = self.raw
        stand, text = str(raw.get("stand")), str(raw.get("warning") or raw.get("text") or "")
        if stand == "enrolled" and not text:
            return f"this box is {raw.get('device')}, enrolment {raw.get('enrolment')}"
        code = f" ({raw['code']})" if raw.get("code") else ""
        return f"{stand}{code}{f': {text}' if text else ''}"

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {**self.raw, "remedy": self.remedy}


def read_token(file: Path | None) -> str:
    """Return the token from a file, the environment, or a person at a terminal.

    Raises:
        CliError: there is none.
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
class Enrolling:
    """One run of the command, on the machine below `root`."""

    root: Path
    wait_s: float
    system: Systemd = field(default_factory=Systemd)
    clock: Callable[[], float] = time.monotonic

    def run(self, url: str, ca_sha256: str, token: str) -> Told:
        """Write, restart, wait.

        Raises:
            CliError: an option that makes no sense, no edgegpu here, or no word from the agent.
        """
        layout = Layout(self.root)
        try:
            cloud = CloudSection(url=url, ca_sha256=ca_sha256)
        except ValueError as error:
            raise CliError(
                f"cannot enrol with {url}: {_first(error)}", remedy="take the line from your cloud"
            ) from error
        standing = layout.run / IDENTITY
        try:
            if not self.system.unit(AGENT_UNIT).is_there:
                raise CliError(f"cannot enrol: systemd has no {AGENT_UNIT}", remedy="run edgegpu install first")
            there = layout.agent_yaml
            now = there.read_text(errors="replace") if there.exists() else None
            text = agent_yaml(now, Options(cloud=cloud.url, ca_sha256=cloud.ca_sha256)) or ""
            standing.unlink(missing_ok=True)
            layout.etc.mkdir(exist_ok=True)
            atomic.write(there, text.encode(), mode=0o644)
            atomic.write(layout.cloud_token, f"{token}\n".encode())
            self.system.restart(AGENT_UNIT)
        except InstallError as error:
            raise CliError(error.message, remedy=error.remedy or _LOG) from error
        except OSError as error:
            raise CliError(f"cannot enrol: {error}", remedy="run it as root") from error
        return self._word(standing)

    def _word(self, standing: Path) -> Told:
        """Wait for the end; what the agent said last counts where none comes."""
        ends, told = self.clock() + self.wait_s, Told({})
        while True:
            told = read_standing(standing) or told
            if told.raw.get("stand") in _ENDS:
                return told
            if self.clock() >= ends:
                break
            time.sleep(_LOOK_S)
        if told.raw:
            return told
        raise CliError(f"cannot tell how it went: no word from the agent in {self.wait_s:g} s", remedy=_LOG)


def read_standing(path: Path) -> Told | None:
    """Return what the agent wrote; None where there is nothing that can be read."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return Told(value) if isinstance(value, dict) else None


def _first(error: ValueError) -> str:
    """Pydantic's first complaint, without its frame."""
    from pydantic import ValidationError  # noqa: PLC0415

    if isinstance(error, ValidationError):
        return error.errors(include_url=False, include_context=False)[0]["msg"].removeprefix("Value error, ")
    return str(error)
