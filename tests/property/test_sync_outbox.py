"""The outbox under anything: bounded, no result lost, and nothing more important given up for something less so."""

from hypothesis import given, settings
from hypothesis import strategies as st
from kits.sync import EPOCH

from edgegpu_sync.ids import CommandId, command_id
from edgegpu_sync.messages.downlink import Receipt
from edgegpu_sync.messages.stamps import Stamp
from edgegpu_sync.rules.outbox import KeptMessage, Outbox, OutboxSizes

LIMITS = OutboxSizes(results=3, refusals=4, events_bytes=100, metrics_bytes=60)
STEP = st.tuples(st.sampled_from(["command", "ends", "event", "metrics", "receipt", "alarm"]), st.integers(1, 60))


@given(st.lists(STEP, max_size=60))
@settings(max_examples=100)
def test_bounded_and_no_result_is_lost(steps: list[tuple[str, int]]) -> None:
    box, due, made = Outbox(limits=LIMITS), set[CommandId](), 0
    for n, (what, size) in enumerate(steps):
        before = box
        kept = KeptMessage(Stamp(enrolment=1, epoch=EPOCH, n=n), size, what == "alarm")
        if what == "command":
            id_ = command_id(f"command-{made}")
            made += 1
            if box.has_room:
                box = box.reserve(id_)
                due.add(id_)
            elif box.can_refuse:
                box = box.ended(id_)
                due.add(id_)
        elif what == "ends" and box.open:
            box = box.ended(min(box.open))
        elif what == "receipt":
            stored = (*box.results, *box.refusals)[: size % 3]
            box = box.receipted(Receipt(enrolment=1, epoch=EPOCH, n=0, results=stored, rev=1, server_time=0))
            due -= set(stored)
        elif what in {"event", "alarm"}:
            box = box.add_event(kept)
            assert kept in box.events or what == "event"
        elif what == "metrics":
            box = box.add_metrics(kept)
            assert box.events == before.events
        assert box.open | set(box.results) | set(box.refusals) == due
        assert len(box.open) + len(box.results) <= LIMITS.results
        assert len(box.refusals) <= LIMITS.refusals
        total = sum(one.size_bytes for one in (*box.events, *box.metrics))
        assert total <= LIMITS.events_bytes + LIMITS.metrics_bytes
        if box.dropped_events > before.dropped_events:
            assert not box.metrics
