/* gpu_segment.c - segments that are over are charged: once for each ns, whatever ran beside each other.
 *
 * Two events give the length of a segment. Where it lies is known by a third, the base: the card comes to
 * an event never before the host recorded it, and never after it was seen to be over. */
#include "gpu_segment.h"

#define NOT_READY 600
#define NS_PER_MS 1e6f
#define ABANDONED_NS 100000000ull	/* the most that an open end costs */
#define LOST_NS 1000000000ull		/* the most that a context's end costs */
#define STALE_NS 10000000ull		/* open for so long: no further launch is awaited */
#define REBASE_NS 1000000000		/* elapsed times are floats, clocks drift */
#define CALM 1000u
#define CALMS_MAX 10u

bool gpu_segment_claim(struct gpu_segment *segment, int state)
{
	return __atomic_load_n(&segment->state, __ATOMIC_RELAXED) == state &&
	       __atomic_compare_exchange_n(&segment->state, &state, SEGMENT_BUSY, 0, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

void gpu_segment_release(struct gpu_segment *segment, int state)
{
	__atomic_store_n(&segment->state, state, __ATOMIC_RELEASE);
}

/* Between two events lie turns of other containers too: how much of the time was this one's own the
 * plugin knows (limits_charge). */
static void charge_bucket(struct bucket *bucket, const struct card *card, unsigned int percent,
			  uint64_t from, uint64_t to)
{
	uint64_t fresh = bucket_cover(bucket, from, to, bucket_now());

	bucket_charge(bucket, percent, from, fresh * limits_charge(card) / 1000);
}

void gpu_charge(struct card *card, uint64_t from, uint64_t to)
{
	struct bucket *shared = usage_bucket(card->index);
	unsigned int percent = limits_core(card);

	if (percent == 0)
		return;
	charge_bucket(&card->spent, card, percent, from, to);
	if (shared != NULL)
		charge_bucket(shared, card, percent, from, to);
}

void gpu_charge_blind(struct card *card, uint64_t ns)
{
	struct bucket *shared = usage_bucket(card->index);
	unsigned int percent = limits_core(card);
	uint64_t now = bucket_now();

	if (percent == 0)
		return;
	bucket_charge(&card->spent, percent, now, ns);
	if (shared != NULL)
		bucket_charge(shared, percent, now, ns);
}

/* From the segment's begin to now, but not more than limit. */
static void charge_span(struct card *card, const struct gpu_segment *segment, uint64_t limit)
{
	uint64_t now = bucket_now(), ns = now - segment->began;

	gpu_charge(card, segment->began, ns < limit ? now : segment->began + limit);
}

void gpu_segment_abandon(struct gpu_context *gpu, struct gpu_stream *stream, struct gpu_segment *segment)
{
	uint64_t times = __atomic_fetch_add(&stream->calms, 1, __ATOMIC_RELAXED);

	charge_span(gpu->card, segment, ABANDONED_NS);
	__atomic_store_n(&stream->calm, CALM << (times < CALMS_MAX ? times : CALMS_MAX), __ATOMIC_RELAXED);
	gpu_segment_release(segment, SEGMENT_FREE);
}

static void learn(struct gpu_stream *stream, uint64_t ns)
{
	uint64_t mean = __atomic_load_n(&stream->mean, __ATOMIC_RELAXED);

	mean = mean == 0 ? ns + 1 : (3 * mean + ns) / 4 + 1;
	__atomic_store_n(&stream->mean, mean, __ATOMIC_RELAXED);
}

static bool elapsed(CUevent from, CUevent to, int64_t *ns)
{
	float ms;

	if (CALL(cuEventElapsedTime, &ms, from, to) != CUDA_SUCCESS)
		return false;
	*ns = (int64_t)(ms * NS_PER_MS);
	return true;
}

/* When a segment of that length that is over began, by the clock of the host. */
static uint64_t began_at(struct gpu_context *gpu, struct gpu_segment *segment, uint64_t ns, uint64_t now)
{
	int64_t since = 0, late;
	CUevent base = gpu->base;

	if (base == NULL) {
		gpu->base = segment->from;
		gpu->base_ns = segment->began;
		segment->from = NULL;
	} else if (!elapsed(base, segment->from, &since)) {
		return now - ns;
	}
	late = (int64_t)(segment->began - gpu->base_ns) - since;
	if (late > 0)
		gpu->base_ns += (uint64_t)late;
	late = (int64_t)(gpu->base_ns + (uint64_t)since + ns - now);
	if (late > 0)
		gpu->base_ns -= (uint64_t)late;
	if (since > REBASE_NS) {
		gpu->base = segment->from;
		segment->from = base;
		gpu->base_ns += (uint64_t)since;
		since = 0;
	}
	return gpu->base_ns + (uint64_t)since;
}

static void finish(struct gpu_context *gpu, struct gpu_stream *stream, struct gpu_segment *segment)
{
	CUresult ret = CALL(cuEventQuery, segment->to);
	uint64_t began;
	int64_t ns;

	if (ret == NOT_READY) {
		gpu_segment_release(segment, SEGMENT_FLYING);
		return;
	}
	if (ret == CUDA_SUCCESS && elapsed(segment->from, segment->to, &ns) && ns >= 0) {
		learn(stream, (uint64_t)ns / segment->count);
		began = began_at(gpu, segment, (uint64_t)ns, bucket_now());
		gpu_charge(gpu->card, began, began + (uint64_t)ns);
	} else {
		charge_span(gpu->card, segment, ABANDONED_NS);
	}
	gpu_segment_release(segment, SEGMENT_FREE);
}

static bool stale(const struct gpu_segment *segment)
{
	return __atomic_load_n(&segment->state, __ATOMIC_RELAXED) == SEGMENT_OPEN &&
	       bucket_now() - __atomic_load_n(&segment->touched, __ATOMIC_RELAXED) > STALE_NS;
}

void gpu_segments_settle(struct gpu_context *gpu)
{
	if (__atomic_exchange_n(&gpu->settling, 1, __ATOMIC_ACQUIRE) != 0)
		return;
	for (unsigned int i = 0; i < GPU_STREAMS; i++) {
		struct gpu_stream *stream = &gpu->streams[i];

		if (__atomic_load_n(&stream->key, __ATOMIC_RELAXED) == 0)
			continue;
		for (unsigned int j = 0; j < GPU_SEGMENTS; j++) {
			struct gpu_segment *segment = &stream->segments[j];

			if (gpu_segment_claim(segment, SEGMENT_FLYING))
				finish(gpu, stream, segment);
			else if (stale(segment) && gpu_segment_claim(segment, SEGMENT_OPEN))
				gpu_segment_abandon(gpu, stream, segment);
		}
	}
	__atomic_store_n(&gpu->settling, 0, __ATOMIC_RELEASE);
}

void gpu_segments_lost(struct gpu_context *gpu)
{
	for (unsigned int i = 0; i < GPU_STREAMS; i++)
		for (unsigned int j = 0; j < GPU_SEGMENTS; j++) {
			struct gpu_segment *segment = &gpu->streams[i].segments[j];

			if (gpu_segment_claim(segment, SEGMENT_FLYING))
				charge_span(gpu->card, segment, LOST_NS);
			else if (gpu_segment_claim(segment, SEGMENT_OPEN))
				charge_span(gpu->card, segment, ABANDONED_NS);
		}
}
