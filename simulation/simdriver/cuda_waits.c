/* cuda_waits.c - events, and who waits for them or for a whole stream. */
#include "cuda_engine.h"

CUresult cu_submit(struct cu_stream *stream, struct cu_op op)
{
	CUresult ret;

	cu_engine_lock();
	ret = cu_enqueue(stream, op);
	cu_engine_unlock();
	return ret;
}

CUresult cu_record(struct cu_stream *stream, struct cu_event *event)
{
	struct cu_op op = { .kind = OP_RECORD, .event = event };
	CUresult ret;

	cu_engine_lock();
	op.record = ++event->recorded;
	ret = cu_enqueue(stream, op);
	cu_engine_unlock();
	return ret;
}

/* For the newest record of now: later ones are no concern of this wait. */
CUresult cu_stream_wait(struct cu_stream *stream, struct cu_event *event)
{
	struct cu_op op = { .kind = OP_WAIT_EVENT, .event = event };
	CUresult ret;

	cu_engine_lock();
	op.record = event->recorded;
	ret = cu_enqueue(stream, op);
	cu_engine_unlock();
	return ret;
}

void cu_wait_stream(struct cu_stream *stream)
{
	uint64_t target, until;

	cu_engine_lock();
	target = stream->given;
	cu_engine_move();
	while (stream->done < target)
		cu_engine_wait();
	until = stream->until;
	cu_engine_unlock();
	sim_sleep_until(until);
}

struct context_work {
	CUcontext ctx;
	bool queued;
	uint64_t until;
};

static void add_work(struct cu_stream *stream, void *data)
{
	struct context_work *work = data;

	if (stream->object.ctx != work->ctx)
		return;
	work->queued |= stream->first != NULL || stream->calling;
	if (stream->until > work->until)
		work->until = stream->until;
}

void cu_wait_context(CUcontext ctx)
{
	struct context_work work;

	cu_engine_lock();
	cu_engine_move();
	for (;;) {
		work = (struct context_work){ .ctx = ctx };
		cu_engine_each(add_work, &work);
		if (!work.queued)
			break;
		cu_engine_wait();
	}
	cu_engine_unlock();
	sim_sleep_until(work.until);
}

bool cu_stream_idle(struct cu_stream *stream)
{
	bool idle;

	cu_engine_lock();
	cu_engine_move();
	idle = stream->done == stream->given && stream->until <= sim_now_ns();
	cu_engine_unlock();
	return idle;
}

bool cu_event_time(struct cu_event *event, uint64_t *at)
{
	bool known;

	cu_engine_lock();
	cu_engine_move();
	known = event->scheduled == event->recorded;
	*at = event->at;
	cu_engine_unlock();
	return known;
}

void cu_wait_event(struct cu_event *event)
{
	uint64_t target, at;

	cu_engine_lock();
	target = event->recorded;
	cu_engine_move();
	while (event->scheduled < target)
		cu_engine_wait();
	at = event->at;
	cu_engine_unlock();
	sim_sleep_until(at);
}

static void forget(struct cu_stream *stream, void *event)
{
	for (struct cu_op *op = stream->first; op != NULL; op = op->next)
		if (op->event == event)
			op->event = NULL;
}

void cu_forget_event(struct cu_event *event)
{
	cu_engine_lock();
	cu_engine_each(forget, event);
	cu_engine_unlock();
}
