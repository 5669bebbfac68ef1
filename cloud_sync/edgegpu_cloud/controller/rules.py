"""The rules for when a controller sends what. Imports no I/O."""

from edgegpu_cloud.store.records import BoxRecord, Latest
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.rules.sequence import CommandSequence
from edgegpu_sync.rules.tracking import TrackedCommand

BEHIND_S = 30
"""Seconds after which a box that is behind its revision is asked; doubled each time, up to `BEHIND_MOST_S`."""

BEHIND_MOST_S = 600
_NEVER = Epoch(0, "0" * 16)


def events_upto(box: BoxRecord, event: Latest | None) -> Stamp:
    """Return the stamp up to which events of a box are stored. It must not be newer: the box drops events up to it."""
    if event is not None and event.stamp.enrolment == box.sequence.enrolment:
        return event.stamp
    return Stamp(enrolment=box.sequence.enrolment, epoch=_NEVER, n=0)


def accepts_commands(box: BoxRecord) -> bool:
    """Whether commands are signed and sent to this box now; an absent box gets them at its birth."""
    return box.online and box.sequence.can_sign


def next_send_s(tracked: TrackedCommand, sequence: CommandSequence) -> float | None:
    """Return when to send a command; once at the end of its time too, to ask for its outcome."""
    at_s = tracked.send_at_s(sequence)
    begun = tracked.state is not None and tracked.state.begun
    if at_s is None or begun or tracked.quiet_since_s >= tracked.due_at_s:
        return at_s
    return min(at_s, tracked.due_at_s + 1)


def has_spec(box: BoxRecord) -> bool:
    """Whether the stored document has the current revision: not while a box is found ahead."""
    return box.spec_rev > 0 and box.spec_rev == box.sequence.rev and not box.sequence.restored
