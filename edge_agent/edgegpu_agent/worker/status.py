"""Makes the answers to local readers from what the worker holds."""

from edgegpu_agent.session.local_answers import JournalAnswer, JournalLine, OpenCommand, StatusAnswer
from edgegpu_agent.worker.core import Core
from edgegpu_agent.worker.sender import UplinkSender
from edgegpu_sync.rules.commands import CommandRecord

MOST_LINES = 2_000


def status(
    core: Core, sender: UplinkSender, *, capabilities: tuple[str, ...], wanted_rev: int, full: bool
) -> StatusAnswer:
    """Say how the agent stands; on the worker's thread."""
    held = core.held
    return StatusAnswer(
        agent=core.me.versions().agent,
        device=core.me.device,
        enrolment=core.me.enrolment,
        epoch=held.gate.epoch.count,
        age_s=core.age_s,
        connected=sender.turn is not None,
        why_down=sender.why_down,
        controller_unseen_s=core.unseen_s,
        server_time=core.server_time,
        key_set=held.ring.version,
        observed_rev=held.board.seen.rev,
        applied_rev=held.board.applied_rev,
        wanted_rev=wanted_rev,
        items=held.board.report(),
        settling=held.settling.name if held.settling is not None else "",
        commands=tuple(_command(one) for one in held.records.values()),
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


def _command(record: CommandRecord) -> OpenCommand:
    return OpenCommand(
        id=record.id,
        op=record.op,
        seq=record.seq,
        state=record.state,
        code=record.code,
        text=record.text,
        attempts=record.attempts,
    )


def history(core: Core, limit: int) -> JournalAnswer:
    """Return the newest lines of the history; on the worker's thread."""
    lines = core.journal.history(max(1, min(limit, MOST_LINES)))
    return JournalAnswer(
        lines=tuple(
            JournalLine(n=one.n, at=one.at_s, kind=one.kind, about=one.about, state=one.state, text=one.text, by=one.by)
            for one in lines
        )
    )
