/* gpu_segment.c - segments that are over are charged: once for each ns, whatever ran beside each other.
 *
 * Two events give the length of a segment. Where it lies is known by a third, the base: the card comes to
 * an event never before the host recorded it, and never after it was seen to be over. */
#define _GNU_SOURCE
#include "gpu_pace.h"
#include "system.h"

#define NS_PER_MS 1e6f
#define ABANDONED_NS 100000000ull	/* the most that an open end costs */
#define STALE_NS 10000000ull		/* open for so long: no further launch is awaited */
#define REBASE_NS 10000000		/* elapsed times are floats, and clocks drift */
#define CALM_DRIFT 50000		/* by such a part of the time, either way, until more is seen, */
#define MOST_DRIFT 2000			/* and by no more: NTP slews by that much at most */
#define CONTRADICTION_NS 200		/* of what is known of a moment: the clocks drift more than is believed */
#define LATE_MAX_NS 400000u		/* where segments lie is known well enough: what it makes uncertain is charged twice */
#define NEARLY_NS 10000u		/* of what is known so well the middle is taken, */
#define NEARLY_PART 64u			/* and so large a part of the stretch at most */
#define LOOKS_MAX 1000u			/* a kernel may never end */
#define AWAIT_NS 100000l
#define AWAITED 1000			/* times that */
#define CALM 1000u
#define CALMS_MAX 10u
/* What may have run without being charged is a twentieth of what is measured launch by launch after it. */
#define UNSEEN_TIMES 20
#define UNSEEN_MAX_NS BUCKET_DEBT_NS

/* In one order with the end of a stream's handle (gpu_stream_gone): who has claimed either sees that, or is seen. */
bool gpu_segment_claim(struct gpu_segment *segment, int state)
{
	return __atomic_load_n(&segment->state, __ATOMIC_RELAXED) == state &&
	       __atomic_compare_exchange_n(&segment->state, &state, SEGMENT_BUSY, 0, __ATOMIC_SEQ_CST,
					   __ATOMIC_RELAXED);
}

void gpu_segment_release(struct gpu_segment *segment, int state)
{
	__atomic_store_n(&segment->state, state, __ATOMIC_RELEASE);
}

bool gpu_segment_close(struct gpu_segment *segment, CUstream handle, bool ours)
{
	bool closed;
	int mode;

	if (__atomic_load_n(&segment->marked, __ATOMIC_RELAXED))
		return true;
	mode = capture_relax();
	closed = (ours || !capture_active(handle)) && CALL(cuEventRecord, segment->to, handle) == CUDA_SUCCESS;
	capture_restore(mode);
	return closed;
}

void gpu_segment_mark(struct gpu_segment *segment, CUstream handle)
{
	__atomic_store_n(&segment->marked, gpu_segment_close(segment, handle, false), __ATOMIC_RELAXED);
}

/* Between two events lie turns of other containers too: how much of the time was this one's own the
 * plugin knows (limits_charge). */
static void charge_bucket(struct bucket *bucket, const struct card *card, unsigned int percent,
			  uint64_t began, uint64_t ns)
{
	bucket_charge(bucket, percent, began, ns * limits_charge(card) / 1000);
}

/* Where the card's moment is known to within NEARLY_NS, the middle is taken for it: kernels of several processes that
 * ran beside each other would else be charged twice for what is uncertain, at each turn. A program chooses on which
 * side the middle is wrong, and what ran one after the other would be charged once. So it is a small part of the
 * stretch at most. */
static void nearly(struct spans *fresh, struct span *whole, uint64_t *late)
{
	uint64_t most = (whole->end - whole->begin) / NEARLY_PART, sure;

	most = most < NEARLY_NS ? most : NEARLY_NS;
	sure = *late < most ? *late : most;
	for (unsigned int i = 0; i < fresh->count; i++)
		fresh->at[i] = span_later(fresh->at[i], sure / 2);
	*whole = span_later(*whole, sure / 2);
	*late -= sure;
}

/* What other contexts and processes were charged for is taken off where it is certain that it ran at the same
 * time: nobody knows a moment of the card exactly by the clock of the host, and kernels of several processes
 * run one after the other. */
static uint64_t charge(struct gpu_context *gpu, struct span span, uint64_t late)
{
	struct card *card = gpu_card_of(gpu);
	struct bucket *own = &card->spent, *shared = usage_bucket(card_index(card));
	unsigned int percent = limits_core(card);
	struct spans fresh = { 1, { span } };
	uint64_t now = bucket_now(), ns;
	struct span whole;

	if (percent == 0)
		return 0;
	whole = cover_exact(&gpu->covered, &fresh, now);
	nearly(&fresh, &whole, &late);
	ns = cover_certain(&own->covered, &fresh, whole, late, now);
	charge_bucket(own, card, percent, span.begin, ns);
	if (shared != NULL)
		charge_bucket(shared, card, percent, span.begin,
			      cover_certain(&shared->covered, &fresh, whole, late, now));
	return ns;
}

void gpu_charge_blind(struct card *card, uint64_t ns)
{
	struct bucket *shared = usage_bucket(card_index(card));
	unsigned int percent = limits_core(card);
	uint64_t now = bucket_now();

	if (percent == 0)
		return;
	bucket_charge(&card->spent, percent, now, ns);
	if (shared != NULL)
		bucket_charge(shared, percent, now, ns);
}

void gpu_charge_since(struct gpu_context *gpu, struct card *card, uint64_t began)
{
	uint64_t now = bucket_now();

	if (gpu != NULL && gpu_card_of(gpu) == card)
		charge(gpu, (struct span){ began, now }, 0);
	else
		gpu_charge_blind(card, now - began);
}

/* Two threads that do this at once lose little. */
static void add_unseen(struct card *card, uint64_t ns)
{
	uint64_t unseen = __atomic_load_n(&card->unseen, __ATOMIC_RELAXED), more = UNSEEN_TIMES * ns;

	unseen = unseen + more < UNSEEN_MAX_NS ? unseen + more : UNSEEN_MAX_NS;
	__atomic_store_n(&card->unseen, unseen, __ATOMIC_RELAXED);
}

static void take_unseen(struct card *card, uint64_t ns)
{
	uint64_t unseen = __atomic_load_n(&card->unseen, __ATOMIC_RELAXED);

	if (unseen != 0)
		__atomic_store_n(&card->unseen, unseen > ns ? unseen - ns : 0, __ATOMIC_RELAXED);
}

/* From the segment's begin to now, but not more than limit. */
static void charge_open(struct gpu_context *gpu, const struct gpu_segment *segment, uint64_t limit)
{
	uint64_t now = bucket_now(), ns = now - segment->began;

	charge(gpu, (struct span){ segment->began, ns < limit ? now : segment->began + limit }, 0);
	if (ns > limit)
		add_unseen(gpu_card_of(gpu), ns - limit);
}

void gpu_segment_abandon(struct gpu_context *gpu, struct gpu_stream *stream, struct gpu_segment *segment)
{
	uint64_t times = __atomic_fetch_add(&stream->calms, 1, __ATOMIC_RELAXED);

	charge_open(gpu, segment, ABANDONED_NS);
	__atomic_store_n(&stream->calm, CALM << (times < CALMS_MAX ? times : CALMS_MAX), __ATOMIC_RELAXED);
	gpu_segment_release(segment, SEGMENT_FREE);
}

void gpu_segment_left(struct gpu_context *gpu, struct gpu_stream *stream, struct gpu_segment *segment)
{
	bool captures = false, closed = __atomic_load_n(&segment->marked, __ATOMIC_RELAXED);
	CUstream handle;
	int mode;

	if (!closed && gpu_stream_handle(stream, &handle)) {
		mode = capture_relax();
		captures = capture_active(handle);
		closed = !captures && CALL(cuStreamQuery, handle) == NOT_READY &&
			 gpu_segment_close(segment, handle, true);
		capture_restore(mode);
	}
	if (captures || closed)
		gpu_segment_release(segment, closed ? SEGMENT_FLYING : SEGMENT_OPEN);
	else
		gpu_segment_abandon(gpu, stream, segment);
}

static void learn(struct gpu_stream *stream, uint64_t ns)
{
	uint64_t mean = __atomic_load_n(&stream->mean, __ATOMIC_RELAXED);

	mean = mean == 0 ? ns + 1 : (3 * mean + ns) / 4 + 1;
	__atomic_store_n(&stream->mean, mean, __ATOMIC_RELAXED);
}

/* NOT_READY: the card has not come to both yet. */
static CUresult elapsed(CUevent from, CUevent to, int64_t *ns)
{
	float ms = 0;
	CUresult ret = CALL(cuEventElapsedTime, &ms, from, to);

	if (ret != CUDA_SUCCESS && ret != NOT_READY)
		capture_unseen();
	*ns = (int64_t)(ms * NS_PER_MS);
	return ret;
}

static void drifts_more(struct gpu_context *gpu)
{
	gpu->drift_part = gpu->drift_part / 2 > MOST_DRIFT ? gpu->drift_part / 2 : MOST_DRIFT;
}

/* Where a segment of that length that is over lies at the earliest, by the clock of the host; late is how much
 * later it can be. The bounds get better with each segment that the card came to at once, or that was seen to be
 * over at once, and worse with the time since their base. */
static struct span lies_at(struct gpu_context *gpu, struct gpu_segment *segment, uint64_t ns, uint64_t now,
			   uint64_t *late)
{
	int64_t since = 0, drift, up, down;
	CUevent base = gpu->base;
	uint64_t begin;

	if (base == NULL || elapsed(base, segment->from, &since) != CUDA_SUCCESS) {
		gpu->base = segment->from;
		gpu->base_ns = segment->began;
		gpu->late_ns = now - segment->began;
		segment->from = NULL;
		since = 0;
	}
	if (gpu->drift_part == 0)
		gpu->drift_part = CALM_DRIFT;
	drift = (since < 0 ? -since : since) / gpu->drift_part;
	if (since > REBASE_NS) {
		gpu->base = segment->from;
		segment->from = base;
		gpu->base_ns += (uint64_t)(since - drift);
		gpu->late_ns += 2 * (uint64_t)drift;
		since = drift = 0;
	}
	up = (int64_t)(segment->began - gpu->base_ns) - since - drift;
	if (up > (int64_t)gpu->late_ns + CONTRADICTION_NS)
		drifts_more(gpu);
	if (up > 0) {
		gpu->base_ns += (uint64_t)up;
		gpu->late_ns -= (uint64_t)up < gpu->late_ns ? (uint64_t)up : gpu->late_ns;
	}
	down = (int64_t)(gpu->base_ns + gpu->late_ns + (uint64_t)since + ns - now) - drift;
	if (down > (int64_t)gpu->late_ns + CONTRADICTION_NS)
		drifts_more(gpu);
	if (down > (int64_t)gpu->late_ns) {
		gpu->base_ns -= (uint64_t)down - gpu->late_ns;
		gpu->late_ns = 0;
	} else if (down > 0) {
		gpu->late_ns -= (uint64_t)down;
	}
	gpu->looks = 0;
	*late = gpu->late_ns + 2 * (uint64_t)drift;
	begin = gpu->base_ns + (uint64_t)(since - drift);
	return (struct span){ begin, begin + ns };
}

static void finish(struct gpu_context *gpu, struct gpu_stream *stream, struct gpu_segment *segment)
{
	uint64_t count = __atomic_load_n(&segment->count, __ATOMIC_RELAXED);
	uint64_t late, charged;
	struct span span;
	int64_t ns;
	CUresult ret = elapsed(segment->from, segment->to, &ns);

	if (ret == NOT_READY) {
		gpu_segment_release(segment, SEGMENT_FLYING);
		return;
	}
	if (ret == CUDA_SUCCESS && ns >= 0) {
		count = count != 0 ? count : 1;
		learn(stream, (uint64_t)ns / count);
		span = lies_at(gpu, segment, (uint64_t)ns, bucket_now(), &late);
		charged = charge(gpu, span, late);
		gpu_pace_defer(gpu_card_of(gpu), charged, (uint64_t)ns / count, count);
		take_unseen(gpu_card_of(gpu), charged);
	} else {
		charge_open(gpu, segment, ABANDONED_NS);
	}
	gpu_segment_release(segment, SEGMENT_FREE);
}

static bool stale(const struct gpu_segment *segment)
{
	return __atomic_load_n(&segment->state, __ATOMIC_RELAXED) == SEGMENT_OPEN &&
	       bucket_now() - __atomic_load_n(&segment->touched, __ATOMIC_RELAXED) > STALE_NS;
}

/* What runs in a stream runs in order: behind a segment that is not over none needs a look. True: one is in flight. */
static bool settle_stream(struct gpu_context *gpu, struct gpu_stream *stream)
{
	unsigned int older = __atomic_load_n(&stream->segments[0].began, __ATOMIC_RELAXED) >
			     __atomic_load_n(&stream->segments[1].began, __ATOMIC_RELAXED);
	bool flying = false;

	for (unsigned int i = 0; i < GPU_SEGMENTS; i++) {
		struct gpu_segment *segment = &stream->segments[older ^ i];

		if (!flying && (gpu_segment_claim(segment, SEGMENT_FLYING) ||
				(__atomic_load_n(&segment->marked, __ATOMIC_RELAXED) &&
				 gpu_segment_claim(segment, SEGMENT_OPEN))))
			finish(gpu, stream, segment);
		else if (stale(segment) && gpu_segment_claim(segment, SEGMENT_OPEN))
			gpu_segment_left(gpu, stream, segment);
		flying |= __atomic_load_n(&segment->state, __ATOMIC_RELAXED) == SEGMENT_FLYING;
	}
	return flying;
}

bool gpu_segments_settle(struct gpu_context *gpu)
{
	bool flying = false, closely;
	int mode;

	if (__atomic_exchange_n(&gpu->settling, 1, __ATOMIC_ACQUIRE) != 0)
		return false;
	mode = capture_relax();
	for (unsigned int i = 0; i < GPU_STREAMS; i++)
		if (__atomic_load_n(&gpu->streams[i].key, __ATOMIC_RELAXED) != 0)
			flying |= settle_stream(gpu, &gpu->streams[i]);
	capture_restore(mode);
	closely = flying && (gpu->base == NULL || gpu->late_ns > LATE_MAX_NS) && gpu->looks++ < LOOKS_MAX;
	__atomic_store_n(&gpu->settling, 0, __ATOMIC_RELEASE);
	return closely;
}

bool gpu_segment_silent(const struct gpu_segment *segment)
{
	return !__atomic_load_n(&segment->marked, __ATOMIC_RELAXED) &&
	       bucket_now() - __atomic_load_n(&segment->touched, __ATOMIC_RELAXED) > ABANDONED_NS;
}

void gpu_segments_close(struct gpu_context *gpu)
{
	for (unsigned int i = 0; i < GPU_STREAMS * GPU_SEGMENTS; i++) {
		struct gpu_stream *stream = &gpu->streams[i / GPU_SEGMENTS];
		struct gpu_segment *segment = &stream->segments[i % GPU_SEGMENTS];
		CUstream handle;
		bool closed;

		if (!gpu_segment_claim(segment, SEGMENT_OPEN))
			continue;
		if (gpu_segment_silent(segment)) {
			gpu_segment_left(gpu, stream, segment);
			continue;
		}
		closed = gpu_stream_handle(stream, &handle) && gpu_segment_close(segment, handle, false);
		gpu_segment_release(segment, closed ? SEGMENT_FLYING : SEGMENT_OPEN);
	}
}

void gpu_segments_ending(struct gpu_context *gpu, bool look)
{
	if (look) {
		gpu_segments_close(gpu);
		gpu_segments_settle(gpu);
	}
	__atomic_store_n(&gpu->ending_ns, bucket_now(), __ATOMIC_RELAXED);
}

static bool busy(const struct gpu_stream *stream)
{
	for (unsigned int i = 0; i < GPU_SEGMENTS; i++)
		if (__atomic_load_n(&stream->segments[i].state, __ATOMIC_SEQ_CST) == SEGMENT_BUSY)
			return true;
	return false;
}

void gpu_stream_await(const struct gpu_stream *stream)
{
	for (int i = 0; i < AWAITED && busy(stream); i++)
		system_sleep(AWAIT_NS);
}

void gpu_segments_await(struct gpu_context *gpu)
{
	for (int i = 0; i < AWAITED; i++) {
		if (__atomic_exchange_n(&gpu->settling, 1, __ATOMIC_ACQUIRE) == 0)
			return;
		system_sleep(AWAIT_NS);
	}
}

/* The driver has waited for what was in flight. Of a segment that is open nobody knows whether it was; but where that
 * took long, something was. */
void gpu_segments_lost(struct gpu_context *gpu)
{
	uint64_t ending = __atomic_load_n(&gpu->ending_ns, __ATOMIC_RELAXED);
	uint64_t waited = ending != 0 ? bucket_now() - ending : 0;

	for (unsigned int i = 0; i < GPU_STREAMS; i++)
		for (unsigned int j = 0; j < GPU_SEGMENTS; j++) {
			struct gpu_segment *segment = &gpu->streams[i].segments[j];

			if (gpu_segment_claim(segment, SEGMENT_FLYING))
				charge_open(gpu, segment, UINT64_MAX);
			else if (gpu_segment_claim(segment, SEGMENT_OPEN))
				charge_open(gpu, segment, ABANDONED_NS + waited);
		}
}
