/* gpu_time.c - holds launches, and begins and ends the segments in which they are measured.
 *
 * A segment is one launch where kernels are long, and as many as take SEGMENT_NS where they are short. Its
 * two events are recorded right beside launches of the program into the same stream: so the stream lives,
 * and nothing comes between. A launch waits for time to pass and for nothing else: a kernel may run that
 * waits for this very launch. */
#define _GNU_SOURCE
#include <string.h>

#include "gpu_pace.h"
#include "system.h"

#define SEGMENT_NS 100000u
#define LENGTH_MAX 64u
#define GAP_NS 50000u			/* between launches of one segment; more of it may be idle time */
#define BLIND_NS 1000000ull		/* charged for a launch that cannot be measured */
#define SLEEP_MIN_NS 300000ull
#define SLEEP_MAX_NS 10000000ull	/* then limits are looked at again */

#define LEGACY ((CUstream)1)
#define PER_THREAD ((CUstream)2)
#define CAPTURE_RELAXED 2
#define CAPTURE_IMPLICIT 906		/* of the default stream: another one captures */

static __thread struct {
	uint64_t context;
	unsigned int epoch;
	struct gpu_context *gpu;
} here __attribute__((tls_model("initial-exec")));

static struct gpu_table *table(struct process *own)
{
	struct gpu_table *seen = __atomic_load_n(&own->gpu, __ATOMIC_ACQUIRE), *made;

	if (seen != NULL)
		return seen;
	made = system_map(sizeof(*made), -1);
	if (made == NULL)
		return NULL;
	if (__atomic_compare_exchange_n(&own->gpu, &seen, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return made;
	system_unmap(made, sizeof(*made));
	return seen;
}

static struct gpu_context *entry_of(struct gpu_table *all, uint64_t key, struct card *card)
{
	struct gpu_context *found = NULL;

	mutex_lock(&all->mutex);
	for (unsigned int i = 0; i < GPU_CONTEXTS; i++) {
		struct gpu_context *gpu = &all->contexts[i];

		if (gpu->key == key || (gpu->key == 0 && found == NULL))
			found = gpu;
		if (gpu->key == key)
			break;
	}
	/* A context that ended unseen may have had that address, on another card or on one that nobody knew. */
	if (found != NULL && card != NULL && (found->key == 0 || card_index(card) >= 0)) {
		found->card = card;
		found->key = key;
	}
	mutex_unlock(&all->mutex);
	return found != NULL && found->key == key ? found : NULL;
}

/* NULL: more contexts than there is room for. */
static struct gpu_context *context_of(CUcontext context, struct card *card)
{
	struct process *own = process_own();
	unsigned int epoch = own != NULL ? __atomic_load_n(&own->epoch, __ATOMIC_ACQUIRE) : 0;
	uint64_t key = (uint64_t)(uintptr_t)context;
	struct gpu_table *all;

	if (own == NULL)
		return NULL;
	if (here.context == key && here.epoch == epoch && (here.gpu == NULL || here.gpu->card == card))
		return here.gpu;
	all = table(own);
	here.gpu = all != NULL ? entry_of(all, key, card) : NULL;
	here.context = key;
	here.epoch = epoch;
	return here.gpu;
}

/* An idle stream's entry becomes this one's. */
static struct gpu_stream *replace(struct gpu_context *gpu, uint64_t key)
{
	for (unsigned int i = 0; i < GPU_STREAMS; i++) {
		struct gpu_stream *stream = &gpu->streams[i];

		if (!gpu_segment_claim(&stream->segments[0], SEGMENT_FREE))
			continue;
		if (gpu_segment_claim(&stream->segments[1], SEGMENT_FREE)) {
			__atomic_store_n(&stream->mean, 0, __ATOMIC_RELAXED);
			__atomic_store_n(&stream->pace, 0, __ATOMIC_RELAXED);
			__atomic_store_n(&stream->key, key, __ATOMIC_RELEASE);
			gpu_segment_release(&stream->segments[1], SEGMENT_FREE);
			gpu_segment_release(&stream->segments[0], SEGMENT_FREE);
			return stream;
		}
		gpu_segment_release(&stream->segments[0], SEGMENT_FREE);
	}
	return NULL;
}

static struct gpu_stream *stream_of(struct gpu_context *gpu, CUstream handle, bool make)
{
	uint64_t key = handle == NULL ? (uintptr_t)LEGACY :
		handle == PER_THREAD ? (uintptr_t)&here | 3 : (uintptr_t)handle;
	unsigned int first = (unsigned int)(key * 0x9e3779b97f4a7c15u >> 58);

	for (unsigned int i = 0; i < GPU_STREAMS; i++) {
		struct gpu_stream *stream = &gpu->streams[(first + i) % GPU_STREAMS];
		uint64_t seen = __atomic_load_n(&stream->key, __ATOMIC_ACQUIRE);

		if (seen == key)
			return stream;
		if (seen == 0 && !make)
			return NULL;
		if (seen == 0 && __atomic_compare_exchange_n(&stream->key, &seen, key, 0, __ATOMIC_ACQ_REL,
							     __ATOMIC_ACQUIRE))
			return stream;
		if (seen == key)
			return stream;
	}
	return make ? replace(gpu, key) : NULL;
}

static CUstream handle_of(CUstream stream, bool per_thread)
{
	if (stream == LEGACY)
		return NULL;
	return stream == NULL && per_thread ? PER_THREAD : stream;
}

/* True: what is launched now is not run but captured, and recording an event would join in. */
static bool captures(CUstream stream)
{
	int status = 0;
	CUresult ret = CALL(cuStreamIsCapturing, stream, &status);

	return ret == CAPTURE_IMPLICIT || (ret == CUDA_SUCCESS && status != 0);
}

/* Our own calls must not end the capture of a stream that has nothing to do with them. */
static int relax(void)
{
	int mode = CAPTURE_RELAXED;

	return CALL(cuThreadExchangeStreamCaptureMode, &mode) == CUDA_SUCCESS ? mode : -1;
}

static void unrelax(int mode)
{
	if (mode >= 0)
		CALL(cuThreadExchangeStreamCaptureMode, &mode);
}

static unsigned int length_of(struct gpu_stream *stream)
{
	uint64_t mean = __atomic_load_n(&stream->mean, __ATOMIC_RELAXED), length;

	if (mean == 0 || __atomic_load_n(&stream->calm, __ATOMIC_RELAXED) != 0)
		return 1;
	length = SEGMENT_NS / mean;
	return length < 1 ? 1 : length < LENGTH_MAX ? (unsigned int)length : LENGTH_MAX;
}

static uint64_t longer(uint64_t one, uint64_t other)
{
	return one > other ? one : other;
}

/* A process that finds the container's bucket emptied by somebody still has its own. */
static uint64_t debt_wait(struct card *card, unsigned int percent, uint64_t now)
{
	struct bucket *shared = usage_bucket(card_index(card));
	uint64_t wait = bucket_wait(&card->spent, percent, now);

	return shared != NULL ? longer(wait, bucket_wait(shared, percent, now)) : wait;
}

static void hold(struct card *card, struct gpu_context *gpu, const struct gpu_stream *stream)
{
	for (;;) {
		unsigned int percent = limits_core(card);
		uint64_t now, wait, debt;

		if (gpu != NULL)
			gpu_segments_settle(gpu);
		if (percent == 0)
			break;
		now = bucket_now();
		wait = debt = debt_wait(card, percent, now);
		if (stream != NULL)
			wait = longer(wait, gpu_pace_wait(card, stream, now));
		if (wait == 0)
			break;
		if (wait > debt)	/* what is in flight may be over sooner */
			wait = longer(debt, gpu_estimate(stream) / 2);
		wait = wait < SLEEP_MIN_NS ? SLEEP_MIN_NS : wait < SLEEP_MAX_NS ? wait : SLEEP_MAX_NS;
		system_sleep((long)wait);
	}
}

/* Goes on with a segment that is open, if this launch follows the last one closely. */
static bool go_on(struct launch *launch, struct gpu_context *gpu)
{
	for (unsigned int i = 0; i < GPU_SEGMENTS; i++) {
		struct gpu_segment *segment = &launch->stream->segments[i];

		if (!gpu_segment_claim(segment, SEGMENT_OPEN))
			continue;
		if (bucket_now() - segment->touched > GAP_NS) {
			gpu_segment_abandon(gpu, launch->stream, segment);
			continue;
		}
		launch->segment = segment;
		launch->length = length_of(launch->stream);
		return true;
	}
	return false;
}

static bool events(struct gpu_segment *segment)
{
	return (segment->from != NULL || CALL(cuEventCreate, &segment->from, 0) == CUDA_SUCCESS) &&
	       (segment->to != NULL || CALL(cuEventCreate, &segment->to, 0) == CUDA_SUCCESS);
}

static void start_segment(struct launch *launch)
{
	for (unsigned int i = 0; i < GPU_SEGMENTS; i++) {
		struct gpu_segment *segment = &launch->stream->segments[i];

		if (!gpu_segment_claim(segment, SEGMENT_FREE))
			continue;
		__atomic_store_n(&segment->count, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&segment->began, bucket_now(), __ATOMIC_RELAXED);
		if (!events(segment) || CALL(cuEventRecord, segment->from, launch->handle) != CUDA_SUCCESS) {
			gpu_segment_release(segment, SEGMENT_FREE);
			return;
		}
		launch->segment = segment;
		launch->first = true;
		launch->length = length_of(launch->stream);
		gpu_pace_add(launch, launch->length);
		return;
	}
}

/* All are in flight: the one that began last gets longer, and with it what it will be charged for. */
static void lengthen_segment(struct launch *launch)
{
	struct gpu_segment *newest = NULL;

	for (unsigned int i = 0; i < GPU_SEGMENTS; i++) {
		struct gpu_segment *segment = &launch->stream->segments[i];

		if (!gpu_segment_claim(segment, SEGMENT_FLYING))
			continue;
		if (newest == NULL || segment->began > newest->began) {
			if (newest != NULL)
				gpu_segment_release(newest, SEGMENT_FLYING);
			newest = segment;
		} else {
			gpu_segment_release(segment, SEGMENT_FLYING);
		}
	}
	launch->segment = newest;
	launch->length = 0;
	gpu_pace_add(launch, 1);
}

static void slow_begin(struct launch *launch, struct gpu_context *gpu)
{
	int mode;

	if (captures(launch->handle)) {
		launch->percent = 0;
		return;
	}
	mode = relax();
	hold(launch->card, gpu, launch->stream);
	if (launch->stream != NULL)
		start_segment(launch);
	if (launch->stream != NULL && launch->segment == NULL)
		lengthen_segment(launch);
	unrelax(mode);
}

/* The current context's entry; NULL: nothing is to be done there, or there is no room for it. */
static struct gpu_context *look_up(struct launch *launch, CUcontext *context, bool make)
{
	struct gpu_context *gpu;

	launch->stream = NULL;
	launch->card = charge_current_card(context);
	launch->percent = launch->card != NULL ? limits_core(launch->card) : 0;
	if (launch->percent == 0)
		return NULL;
	gpu = context_of(*context, launch->card);
	if (gpu != NULL)
		launch->stream = stream_of(gpu, launch->handle, make);
	return gpu;
}

void gpu_time_begin(struct launch *launch, CUstream stream, bool per_thread)
{
	CUcontext context = NULL, other = NULL;
	struct gpu_context *gpu;

	launch->handle = handle_of(stream, per_thread);
	launch->elsewhere = NULL;
	launch->segment = NULL;
	launch->first = false;
	gpu = look_up(launch, &context, false);
	if (launch->percent == 0 && context != NULL)
		return;
	if (launch->stream == NULL) {
		/* The driver launches there all the same, and only there it can be measured. */
		other = charge_other_context(launch->handle, context);
		if (other != NULL && CALL(cuCtxPushCurrent_v2, other) == CUDA_SUCCESS)
			launch->elsewhere = other;
		gpu = look_up(launch, &context, true);
	}
	if (launch->percent != 0 && (launch->stream == NULL || !go_on(launch, gpu)))
		slow_begin(launch, gpu);
	if (launch->elsewhere != NULL)
		CALL(cuCtxPopCurrent_v2, &other);
}

/* A stream that captures by now keeps its segment open. */
static bool close_segment(struct gpu_segment *segment, CUstream handle, bool ours)
{
	bool closed;
	int mode;

	if (!ours && captures(handle))
		return false;
	mode = relax();
	closed = CALL(cuEventRecord, segment->to, handle) == CUDA_SUCCESS;
	unrelax(mode);
	return closed;
}

static CUresult end(struct launch *launch, CUresult ret)
{
	struct gpu_segment *segment = launch->segment;
	bool flew;

	if (launch->percent == 0)
		return ret;
	if (segment == NULL) {
		if (ret == CUDA_SUCCESS)
			gpu_charge_blind(launch->card, launch->stream != NULL ? gpu_estimate(launch->stream)
									      : BLIND_NS);
		return ret;
	}
	flew = !launch->first && launch->length == 0;
	if (ret == CUDA_SUCCESS) {
		__atomic_add_fetch(&segment->count, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&segment->touched, bucket_now(), __ATOMIC_RELAXED);
		if (__atomic_load_n(&launch->stream->calm, __ATOMIC_RELAXED) != 0)
			__atomic_sub_fetch(&launch->stream->calm, 1, __ATOMIC_RELAXED);
	}
	if (segment->count == 0)
		gpu_segment_release(segment, SEGMENT_FREE);
	else if (segment->count >= launch->length && ret == CUDA_SUCCESS &&
		 close_segment(segment, launch->handle, launch->first || flew))
		gpu_segment_release(segment, SEGMENT_FLYING);
	else
		gpu_segment_release(segment, flew ? SEGMENT_FLYING : SEGMENT_OPEN);
	return ret;
}

CUresult gpu_time_end(struct launch *launch, CUresult ret)
{
	CUcontext popped;

	if (launch->elsewhere == NULL || launch->percent == 0)
		return end(launch, ret);
	if (CALL(cuCtxPushCurrent_v2, launch->elsewhere) != CUDA_SUCCESS) {
		launch->elsewhere = NULL;	/* it ended meanwhile, and its events with it */
		return end(launch, ret);
	}
	end(launch, ret);
	CALL(cuCtxPopCurrent_v2, &popped);
	return ret;
}

static struct gpu_context *current(void)
{
	struct process *own = process_own();
	CUcontext context = NULL;
	struct card *card;

	if (own == NULL || __atomic_load_n(&own->gpu, __ATOMIC_ACQUIRE) == NULL)
		return NULL;
	card = charge_current_card(&context);
	return card != NULL && card_index(card) >= 0 ? context_of(context, card) : NULL;
}

void gpu_time_close(CUstream stream, bool per_thread)
{
	struct gpu_context *gpu = current();
	CUstream handle = handle_of(stream, per_thread);
	struct gpu_stream *found = gpu != NULL ? stream_of(gpu, handle, false) : NULL;

	for (unsigned int i = 0; found != NULL && i < GPU_SEGMENTS; i++) {
		struct gpu_segment *segment = &found->segments[i];

		if (gpu_segment_claim(segment, SEGMENT_OPEN))
			gpu_segment_release(segment, close_segment(segment, handle, false) ? SEGMENT_FLYING
											   : SEGMENT_OPEN);
	}
}

void gpu_time_settle(void)
{
	struct gpu_context *gpu = current();
	int mode;

	if (gpu == NULL)
		return;
	mode = relax();
	gpu_segments_settle(gpu);
	unrelax(mode);
}

/* NULL: nothing was launched there. */
static struct gpu_context *known(CUcontext context, struct gpu_table **all)
{
	struct process *own = process_own();

	*all = own != NULL ? __atomic_load_n(&own->gpu, __ATOMIC_ACQUIRE) : NULL;
	return *all != NULL && context != NULL ? entry_of(*all, (uint64_t)(uintptr_t)context, NULL) : NULL;
}

void gpu_time_ending(CUcontext context)
{
	struct gpu_table *all;
	struct gpu_context *gpu = known(context, &all);
	bool pushed = gpu != NULL && CALL(cuCtxPushCurrent_v2, context) == CUDA_SUCCESS;
	int mode;

	if (gpu == NULL)
		return;
	mode = relax();
	gpu_segments_ending(gpu, pushed);
	unrelax(mode);
	if (pushed)
		CALL(cuCtxPopCurrent_v2, &context);
}

void gpu_time_forget(CUcontext context)
{
	struct gpu_table *all;
	struct gpu_context *gpu = known(context, &all);

	if (gpu == NULL)
		return;
	gpu_segments_await(gpu);	/* what that thread gives back is charged as lost too */
	gpu_segments_lost(gpu);
	mutex_lock(&all->mutex);
	memset(gpu, 0, sizeof(*gpu));
	mutex_unlock(&all->mutex);
}
