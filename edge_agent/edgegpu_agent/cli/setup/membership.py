"""The box's enrolment at the end of an installation: its text for people, and whether it failed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgegpu_agent.cli.common import CliError
from edgegpu_agent.cli.setup.enrol_options import stored_identity
from edgegpu_agent.cli.setup.enrolment import AgentIdentity, wait_for_status
from edgegpu_agent.identity.status import STATUS_FILE
from edgegpu_agent.settings import CloudSection, load
from edgegpu_installer.layout import Layout
from edgegpu_plugin.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A box and its cloud; `told` is the agent's status of the enrolment, None where the box has never enrolled."""

    cloud: CloudSection
    told: AgentIdentity | None
    had_token: bool = False

    @property
    def failed(self) -> bool:
        """Whether this installation had a token, and the box is neither enrolled nor waiting for approval."""
        return self.had_token and (self.told is None or not self.told.well)

    @property
    def name(self) -> str:
        """The box's name in the cloud; empty before the enrolment."""
        raw = self.told.raw if self.told is not None else {}
        return str(raw.get("name") or raw.get("device") or "") if self.told is not None and self.told.well else ""

    @property
    def line(self) -> str:
        """One line about a box that is enrolled, waits for approval, or never had a token."""
        if self.told is None:
            return f"not enrolled at {self.cloud.url} yet: {self.enrol}"
        remedy = f"; {self.told.remedy}" if self.told.remedy else ""
        return f"{self.told.sentence} at {self.cloud.url}{remedy}"

    @property
    def enrol(self) -> str:
        """The command that enrols this box once there is a token."""
        pin = f" --ca-sha256 {self.cloud.ca_sha256}" if self.cloud.ca_sha256 else ""
        return f"sudo edgegpu agent enrol --url {self.cloud.url}{pin} (asks for the token)"

    @property
    def failure(self) -> CliError:
        """The error that says why the box is not enrolled, with the commands that enrol it."""
        told = self.told
        why = told.sentence if told is not None else "the agent says nothing about it"
        remedy = told.remedy if told is not None else "see `journalctl -u edgegpu-agent`"
        first = f"{remedy}\n  " if remedy else ""
        return CliError(
            f"cannot enrol at {self.cloud.url}: {why}",
            remedy=f"{first}then here: {self.enrol}\n  edgegpu itself is installed, and works without the cloud",
        )

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints as `enrolment`."""
        told = self.told.document() if self.told is not None else {"stand": "not enrolled"}
        return {"url": self.cloud.url, **told, "remedy": self.failure.remedy if self.failed else told.get("remedy", "")}


def membership(layout: Layout, token: str, *, wait_s: float, say: Callable[[str], None]) -> Membership | None:
    """Return the box's membership in its cloud; with a token wait until the agent reports the end of the enrolment.

    Args:
        layout: the paths of this machine.
        token: the token of this installation; empty where there is none.
        wait_s: how long to wait for the agent's report.
        say: prints a line of progress.
    """
    try:
        cloud = load(layout.agent_yaml).cloud
    except ConfigError:
        return None  # it belongs to no cloud, or agent.yaml is wrong, which `edgegpu agent status` shows
    if not token:
        return Membership(cloud=cloud, told=_kept(layout))
    say(f"enrolling at {cloud.url}")
    try:
        told = wait_for_status(layout.run / STATUS_FILE, token, wait_s=wait_s)
    except CliError:
        told = None
    return Membership(cloud=cloud, told=told, had_token=True)


def _kept(layout: Layout) -> AgentIdentity | None:
    identity = stored_identity(layout)
    if identity is None:
        return None
    return AgentIdentity({"stand": "enrolled", "device": identity.device.device, "name": identity.device.name})
