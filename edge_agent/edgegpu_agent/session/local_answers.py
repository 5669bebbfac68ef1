"""What the agent answers its local readers: how it stands, and its history. Read by `edgegpu agent` and `journal`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from edgegpu_sync.messages.uplink import ItemReport


class LocalAnswer(BaseModel):
    """A piece of an answer."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class OpenCommand(LocalAnswer):
    """A command that has not ended, or whose result waits for the controller's receipt."""

    id: str
    op: str
    seq: int
    state: str
    code: str = ""
    text: str = ""
    attempts: int = 0


class StatusAnswer(LocalAnswer):
    """How the agent stands. Times are seconds; `told` says why the journal is a new one, empty when all is well.

    `version` is of this document, `agent` that of edgegpu which answers, `identity` its `Standing`.
    """

    version: Literal[1] = 1
    agent: str = ""
    device: str
    enrolment: int
    epoch: int
    age_s: int
    connected: bool
    why_down: str = ""
    controller_unseen_s: int
    server_time: int = 0
    key_set: int
    observed_rev: int
    applied_rev: int
    wanted_rev: int = 0
    items: dict[str, ItemReport] = {}
    settling: str = ""
    commands: tuple[OpenCommand, ...] = ()
    capabilities: tuple[str, ...] = ()
    refused: dict[str, int] = {}
    outbox_used: float = 0.0
    results_waiting: int = 0
    events_waiting: int = 0
    metrics_waiting: int = 0
    events_dropped: int = 0
    metrics_dropped: int = 0
    journal_free_pages: int = 0
    journal_full: bool = False
    told: str = ""
    limits_trouble: str = ""
    identity: dict[str, Any] = {}


class JournalLine(LocalAnswer):
    """A line of the history. `at` is the box's clock, which may be wrong; `about`: a command's id, an item's name."""

    n: int
    at: int
    kind: str
    about: str
    state: str
    text: str = ""
    by: str = ""


class JournalAnswer(LocalAnswer):
    """The newest lines first."""

    version: Literal[1] = 1
    lines: tuple[JournalLine, ...] = ()
