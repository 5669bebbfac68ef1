/* gpu_close.c - ends segments where the program marks its streams or waits for them, and charges what is over then. */
#define _GNU_SOURCE
#include "gpu_segment.h"
#include "gpu_table.h"
#include "gpu_time.h"

static unsigned int epoch(void)
{
	struct process *own = process_own();

	return own != NULL ? __atomic_load_n(&own->epoch, __ATOMIC_ACQUIRE) : 0;
}

static struct gpu_place current(void)
{
	struct gpu_place place = { NULL, epoch() };
	CUcontext context = NULL;
	struct card *card;

	if (gpu_table_empty())
		return place;
	card = charge_current_card(&context);
	if (card != NULL && card_index(card) >= 0)
		place.gpu = gpu_context_of(context, card);
	return place;
}

/* Where the stream is known; of: its context, which is `here` or another one. */
static struct gpu_stream *known_stream(CUstream handle, struct gpu_context *here, struct gpu_context **of)
{
	struct gpu_stream *found = here != NULL ? gpu_stream_of(here, handle, false) : NULL;

	*of = here;
	return found != NULL || gpu_table_empty() ? found : gpu_stream_elsewhere(here, handle, of);
}

/* here: the thread's own context, as far as it is known. */
static void close_open(struct gpu_context *here, struct gpu_context *gpu, struct gpu_stream *stream, CUstream handle,
		       bool goes_on)
{
	bool closed, pushed = false;
	CUcontext popped;

	for (unsigned int i = 0; i < GPU_SEGMENTS; i++) {
		struct gpu_segment *segment = &stream->segments[i];

		if (!gpu_segment_claim(segment, SEGMENT_OPEN))
			continue;
		if (!pushed && gpu != here)
			pushed = CALL(cuCtxPushCurrent_v2, (CUcontext)gpu->key) == CUDA_SUCCESS;
		if (gpu_segment_silent(segment)) {
			gpu_segment_left(gpu, stream, segment);
			continue;
		}
		if (goes_on)
			gpu_segment_mark(segment, handle);
		closed = !goes_on && gpu_segment_close(segment, handle, false);
		gpu_segment_release(segment, closed ? SEGMENT_FLYING : SEGMENT_OPEN);
	}
	if (pushed)
		CALL(cuCtxPopCurrent_v2, &popped);
}

static struct gpu_place close_stream(CUstream stream, bool per_thread, bool goes_on)
{
	CUstream handle = gpu_handle(stream, per_thread);
	struct gpu_place here = current();
	struct gpu_context *gpu;
	struct gpu_stream *found = known_stream(handle, here.gpu, &gpu);

	if (found != NULL)
		close_open(here.gpu, gpu, found, handle, goes_on);
	return here;
}

struct gpu_place gpu_time_close(CUstream stream, bool per_thread)
{
	return close_stream(stream, per_thread, false);
}

void gpu_time_mark(CUstream stream, bool per_thread)
{
	close_stream(stream, per_thread, true);
}

struct gpu_place gpu_time_close_all(void)
{
	struct gpu_place here = current();

	if (here.gpu != NULL)
		gpu_segments_close(here.gpu);
	return here;
}

void gpu_time_stream_ends(CUstream stream)
{
	struct gpu_context *gpu, *here = current().gpu;
	struct gpu_stream *found = known_stream(stream, here, &gpu);

	if (found == NULL || (uintptr_t)stream <= LAST_SPECIAL_STREAM)
		return;
	close_open(here, gpu, found, stream, false);
	gpu_stream_gone(found);
	gpu_stream_await(found);
}

void gpu_time_settle(void)
{
	struct gpu_context *gpu = current().gpu;

	if (gpu != NULL)
		gpu_segments_settle(gpu);
}

void gpu_time_settle_at(struct gpu_place place)
{
	if (place.gpu != NULL && place.epoch == epoch())
		gpu_segments_settle(place.gpu);
	else
		gpu_time_settle();
}

void gpu_time_ending(CUcontext context)
{
	struct gpu_context *gpu = gpu_table_find(context);
	bool pushed = gpu != NULL && CALL(cuCtxPushCurrent_v2, context) == CUDA_SUCCESS;

	if (gpu == NULL)
		return;
	gpu_segments_ending(gpu, pushed);
	if (pushed)
		CALL(cuCtxPopCurrent_v2, &context);
}

void gpu_time_forget(CUcontext context)
{
	gpu_table_forget(context);
}
