/* cuda_turns.c - the turns of this process on a card, and what its kernels do in them. */
#include "cuda_engine.h"

#define SLICE_NS 2000000ULL		/* about that of a real card */

/* How long the stream could go on with kernels alone from a time on, up to a slice. */
static uint64_t wanted(const struct cu_stream *stream, uint64_t from)
{
	uint64_t ns = 0;

	for (const struct cu_op *op = stream->first; op != NULL && ns < SLICE_NS; op = op->next) {
		if (op->kind == OP_KERNEL && op->submitted <= from + ns)
			ns += op->ns;
		else if (op->kind != OP_RECORD)
			break;
	}
	return ns < SLICE_NS ? ns : SLICE_NS;
}

bool cu_run_kernel(struct cu_stream *stream, uint64_t *wake)
{
	struct cu_dev *dev = stream->object.dev;
	struct cu_op *op = stream->first;
	uint64_t from = stream->until > op->submitted ? stream->until : op->submitted, ns;

	if (from < dev->turn_at)
		from = dev->turn_at;
	if (op->ns > 0 && from >= dev->turn_end) {
		uint64_t length = wanted(stream, from);

		if (sim_now_ns() < dev->turn_end) {
			*wake = dev->turn_end < *wake ? dev->turn_end : *wake;
			return false;
		}
		from = sim_reserve(dev->entry, from, length);
		dev->turn_end = from + length;
	}
	ns = op->ns < dev->turn_end - from || op->ns == 0 ? op->ns : dev->turn_end - from;
	op->ns -= ns;
	stream->until = from + ns;
	if (ns > 0)
		dev->turn_at = from + ns;
	return true;
}

uint64_t cu_turn_for(const struct cu_stream *stream, uint64_t from)
{
	const struct cu_dev *dev = stream->object.dev;
	uint64_t free_at = from <= dev->turn_end ? from : sim_free_at(dev->entry);

	return free_at > from ? free_at : from;
}
