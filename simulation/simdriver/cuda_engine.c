/* cuda_engine.c - when the card does what streams have to do.
 *
 * Kernels get their times ahead: of a slice that this process reserved on the card, one after the other.
 * So a kernel's end is known when it begins, and who waits for it sleeps until then. Whoever submits or
 * waits moves the queues on; a thread does where nobody looks. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_engine.h"

#define POLL_NS 1000000ULL		/* for values that others write */
#define FAR_NS 1000000000ULL
#define DEEP 1024			/* operations in a stream; a further one waits, as on a real card */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work, progress;
static struct cu_stream *streams;
static uint64_t numbers, planned;	/* planned: when the thread looks next */
static bool started;

static void finish(struct cu_stream *stream)
{
	struct cu_op *op = stream->first;

	stream->first = op->next;
	if (stream->first == NULL)
		stream->last = &stream->first;
	stream->done++;
	free(op);
}

static void unlink_stream(struct cu_stream *stream)
{
	struct cu_stream **at = &streams;

	while (*at != NULL && *at != stream)
		at = &(*at)->next;
	if (*at != NULL)
		*at = stream->next;
	free(stream);
}

static void sooner(uint64_t *wake, uint64_t at)
{
	if (at < *wake)
		*wake = at;
}

static void call_host(struct cu_stream *stream)
{
	struct cu_op op = *stream->first;

	stream->calling = true;
	pthread_mutex_unlock(&mutex);
	op.call(op.data);
	pthread_mutex_lock(&mutex);
	stream->calling = false;
	finish(stream);
}

static bool event_known(const struct cu_op *op)
{
	return op->event == NULL || op->event->scheduled >= op->record;
}

/* What takes no time of the card. True: it is done. */
static bool do_light(struct cu_stream *stream, bool thread, uint64_t *wake)
{
	struct cu_op *op = stream->first;
	uint64_t now = sim_now_ns(), ready = stream->until > op->submitted ? stream->until : op->submitted;

	switch (op->kind) {
	case OP_KERNEL:
		return false;
	case OP_RECORD:
		ready = cu_turn_for(stream, ready);
		if (op->event != NULL) {
			op->event->at = ready;
			op->event->scheduled = op->record;
		}
		break;
	case OP_WAIT_EVENT:
		if (!event_known(op))
			return false;
		if (op->event != NULL && op->event->at > ready)
			ready = op->event->at;
		break;
	default:
		if (now < ready) {
			sooner(wake, ready);
			return false;
		}
		if (op->kind == OP_WAIT_VALUE && !cu_value_met(&op->value)) {
			sooner(wake, now + POLL_NS);
			return false;
		}
		if (op->kind == OP_HOST && !thread) {
			sooner(wake, now);
			return false;
		}
		ready = now;
		if (op->kind == OP_WRITE_VALUE)
			cu_value_write(&op->value);
		break;
	}
	stream->until = ready;
	if (op->kind == OP_HOST)
		call_host(stream);
	else
		finish(stream);
	return true;
}

static bool do_kernel(struct cu_stream *stream, uint64_t *wake)
{
	if (!cu_run_kernel(stream, wake))
		return false;
	if (stream->first->ns == 0)
		finish(stream);
	return true;
}

static struct cu_stream *oldest_kernel(const struct cu_dev *dev)
{
	struct cu_stream *oldest = NULL;

	for (struct cu_stream *s = streams; s != NULL; s = s->next)
		if (s->object.dev == dev && s->first != NULL && s->first->kind == OP_KERNEL &&
		    (oldest == NULL || s->first->number < oldest->first->number))
			oldest = s;
	return oldest;
}

/* One pass over all streams: true where something went on; else when to look again. */
static bool step(bool thread, uint64_t *wake)
{
	for (struct cu_stream *s = streams; s != NULL; s = s->next) {
		if (s->calling)
			continue;
		if (s->ended && s->first == NULL) {
			unlink_stream(s);
			return true;
		}
		if (s->first == NULL)
			continue;
		if (s->first->kind != OP_KERNEL ? do_light(s, thread, wake) :
		    oldest_kernel(s->object.dev) == s && do_kernel(s, wake))
			return true;
	}
	return false;
}

/* The lock is held. True where something went on; there is nothing to do before the time that it gives. */
static bool move_on(bool thread, uint64_t *wake)
{
	bool any = false;

	*wake = sim_now_ns() + FAR_NS;
	while (step(thread, wake)) {
		any = true;
		*wake = sim_now_ns() + FAR_NS;
	}
	if (any)
		pthread_cond_broadcast(&progress);
	if (!thread && *wake < planned) {
		planned = *wake;
		pthread_cond_signal(&work);
	}
	return any;
}

static void wait_until(pthread_cond_t *cond, uint64_t ns)
{
	struct timespec until = { (time_t)(ns / FAR_NS), (long)(ns % FAR_NS) };

	pthread_cond_timedwait(cond, &mutex, &until);
}

static void *run(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&mutex);
	for (;;) {
		move_on(true, &planned);
		wait_until(&work, planned);
	}
	return NULL;
}

static bool start(void)
{
	sigset_t all, before;
	pthread_condattr_t clock;
	pthread_t thread;

	if (started)
		return true;
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&work, &clock);
	pthread_cond_init(&progress, &clock);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	started = pthread_create(&thread, NULL, run, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (started)
		pthread_detach(thread);
	return started;
}

void cu_engine_lock(void)
{
	pthread_mutex_lock(&mutex);
}

void cu_engine_unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

void cu_engine_move(void)
{
	uint64_t wake;

	move_on(false, &wake);
}

void cu_engine_wait(void)
{
	uint64_t wake;

	if (!move_on(false, &wake))
		wait_until(&progress, wake);
}

void cu_engine_each(void (*call)(struct cu_stream *stream, void *data), void *data)
{
	for (struct cu_stream *s = streams; s != NULL; s = s->next)
		call(s, data);
}

CUresult cu_enqueue(struct cu_stream *stream, struct cu_op op)
{
	struct cu_op *queued = malloc(sizeof(*queued));

	if (queued == NULL || !start()) {
		free(queued);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*queued = op;
	while (stream->given - stream->done >= DEEP)
		cu_engine_wait();
	queued->number = numbers++;
	queued->submitted = sim_now_ns();
	queued->next = NULL;
	*stream->last = queued;
	stream->last = &queued->next;
	stream->given++;
	cu_engine_move();
	return CUDA_SUCCESS;
}

void cu_engine_add(struct cu_stream *stream)
{
	pthread_mutex_lock(&mutex);
	stream->last = &stream->first;
	stream->next = streams;
	streams = stream;
	pthread_mutex_unlock(&mutex);
}

void cu_engine_remove(struct cu_stream *stream, bool finish_first)
{
	pthread_mutex_lock(&mutex);
	while (!finish_first && stream->first != NULL && !stream->calling)
		finish(stream);
	if (stream->calling || stream->first != NULL)
		stream->ended = true;
	else
		unlink_stream(stream);
	pthread_mutex_unlock(&mutex);
}
