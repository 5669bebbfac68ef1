"""The answers of the agent's local API, status and history, for `edgegpu agent` and `edgegpu journal`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from edgegpu_agent.worker.core import Core
from edgegpu_agent.worker.sender import UplinkSender
from edgegpu_sync.messages.uplink import ItemReport


class LocalAnswer(BaseModel):
    """The base of the local API's answers."""

    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True)


class OpenCommand(LocalAnswer):
    """A command that has not ended, or whose result waits for its receipt."""

    id: str
    op: str
    seq: int
    state: str
    code: str = ""
    text: str = ""
    attempts: int = 0


class StatusAnswer(LocalAnswer):
    """The status of the agent. Times are seconds; `told` says why the journal is new, empty when all is well.

    `version` is that of this document, `agent` the version of edgegpu, `identity` the document of its `IdentityStatus`.
    """

    version: Literal[1] = 1
    agent: str = ""
    device: str
    enrolment: int
    epoch: int
    age_s: int
    connected: bool
    why_down: str = ""
    route: str = ""
    route_trouble: str = ""
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
    """A line of the history; `at` is the box's clock, which may be wrong; `about`: a command's id, an item's name."""

    n: int
    at: int
    kind: str
    about: str
    state: str
    text: str = ""
    by: str = ""


class JournalAnswer(LocalAnswer):
    """The lines of the history, the newest first."""

    version: Literal[1] = 1
    lines: tuple[JournalLine, ...] = ()


MOST_LINES = 2_000


def status(
    core: Core, sender: UplinkSender, *, capabilities: tuple[str, ...], wanted_rev: int, full: bool
) -> StatusAnswer:
    """Return the status of the agent; call this on the worker's thread."""
    held = core.held
    return StatusAnswer(
        agent=core.me.versions().agent,
        device=core.me.device,
        enrolment=core.me.enrolment,
        epoch=held.replay_guard.epoch.count,
        age_s=core.age_s,
        connected=sender.connection is not None,
        why_down=sender.why_down,
        controller_unseen_s=core.contact_age_s,
        server_time=core.server_time,
        key_set=held.ring.version,
        observed_rev=held.desired_state.seen.rev,
        applied_rev=held.desired_state.applied_rev,
        wanted_rev=wanted_rev,
        items=held.desired_state.report(),
        settling=held.settling.name if held.settling is not None else "",
        commands=tuple(OpenCommand.model_validate(one) for one in held.records.values()),
        capabilities=capabilities,
        refused=core.refused,
        outbox_used=held.outbox.used,
        results_waiting=len(held.outbox.results) + len(held.outbox.refusals),
        events_waiting=len(held.outbox.events),
        metrics_waiting=len(held.outbox.metrics),
        events_dropped=held.outbox.dropped_events,
        metrics_dropped=held.outbox.dropped_metrics,
        journal_free_pages=core.journal.free_pages,
        journal_full=full,
        told=core.journal.told,
    )


def history(core: Core, limit: int) -> JournalAnswer:
    """Return the newest lines of the history; call this on the worker's thread."""
    lines = core.journal.history(max(1, min(limit, MOST_LINES)))
    return JournalAnswer(
        lines=tuple(
            JournalLine(n=one.n, at=one.at_s, kind=one.kind, about=one.about, state=one.state, text=one.text, by=one.by)
            for one in lines
        )
    )
