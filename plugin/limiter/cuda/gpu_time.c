/* gpu_time.c - holds launches, and begins the segments in which they are measured.
 *
 * A segment is one launch where kernels are long, and as many as take SEGMENT_NS where they are short. Its
 * two events are recorded right beside launches of the program into the same stream: so the stream lives,
 * and nothing comes between. A launch waits for time to pass and for nothing else: a kernel may run that
 * waits for this very launch. */
#define _GNU_SOURCE
#include "gpu_pace.h"
#include "gpu_table.h"
#include "system.h"

#define SEGMENT_NS 100000u
#define LENGTH_MAX 64u
#define GAP_NS 50000u			/* between launches of one segment; more of it may be idle time */
#define WATCH_NS 4000000000ull		/* for so long a launch that cannot be measured is waited for */
#define WATCH_MIN_NS 50000ull
#define STUCK_NS 100000000ull		/* so long no launch takes that is not held up itself */
#define SLEEP_MIN_NS 300000ull
#define SLEEP_MAX_NS 10000000ull	/* then limits are looked at again */

/* The launch of this thread that is under way. */
static __thread struct {
	const struct launch *launch;	/* not to be read: the thread may have left its stack by longjmp */
	struct gpu_segment *segment;	/* NULL: there is none */
	struct gpu_context *gpu;
	struct gpu_stream *stream;
	unsigned int epoch;
} flight __attribute__((tls_model("initial-exec")));

static unsigned int length_of(const struct launch *launch)
{
	const struct gpu_stream *stream = launch->stream;
	uint64_t mean = __atomic_load_n(&stream->mean, __ATOMIC_RELAXED), length;

	if (mean == 0 || __atomic_load_n(&stream->calm, __ATOMIC_RELAXED) != 0 ||
	    __atomic_load_n(&launch->card->unseen, __ATOMIC_RELAXED) != 0)
		return 1;
	length = SEGMENT_NS / mean;
	return length < 1 ? 1 : length < LENGTH_MAX ? (unsigned int)length : LENGTH_MAX;
}

static uint64_t longer(uint64_t one, uint64_t other)
{
	return one > other ? one : other;
}

/* For a debt it is known how long; what is in flight may be over sooner than pace has it, and is looked at when it
 * should be. */
static uint64_t sleep_for(uint64_t debt, uint64_t pace, bool closely, const struct gpu_stream *stream)
{
	uint64_t wait = longer(debt, pace), rest;

	if (pace > debt) {
		rest = gpu_pace_rest(stream, bucket_now());
		if (rest == 0 || rest > pace)
			rest = gpu_estimate(stream) / 2;
		wait = longer(longer(debt, rest), SLEEP_MIN_NS);
	}
	if (closely)
		wait = SLEEP_MIN_NS;
	return wait < SLEEP_MAX_NS ? wait : SLEEP_MAX_NS;
}

/* What is in flight in the stream keeps a launch waiting, and should not be over yet: a look would be in vain. */
static bool too_early(const struct card *card, const struct gpu_stream *stream)
{
	uint64_t now = bucket_now();

	return stream != NULL && gpu_pace_wait(card, stream, now) != 0 && gpu_pace_rest(stream, now) > SLEEP_MIN_NS;
}

static void hold(struct card *card, struct gpu_context *gpu, const struct gpu_stream *stream)
{
	bool look = gpu != NULL && !too_early(card, stream);

	for (;; look = gpu != NULL) {
		unsigned int percent = limits_core(card);
		bool closely = look && gpu_segments_settle(gpu);
		uint64_t now, debt, pace;

		if (percent == 0)
			break;
		now = bucket_now();
		debt = gpu_pace_debt(card, percent, now);
		pace = stream != NULL ? gpu_pace_wait(card, stream, now) : 0;
		if (debt == 0 && pace == 0)
			break;
		system_sleep((long)sleep_for(debt, pace, closely, stream));
	}
}

/* Goes on with a segment that is open, if this launch follows the last one closely. */
static bool go_on(struct launch *launch)
{
	for (unsigned int i = 0; i < GPU_SEGMENTS; i++) {
		struct gpu_segment *segment = &launch->stream->segments[i];

		if (!gpu_segment_claim(segment, SEGMENT_OPEN))
			continue;
		if (bucket_now() - segment->touched > GAP_NS) {
			gpu_segment_left(launch->gpu, launch->stream, segment);
			continue;
		}
		__atomic_store_n(&segment->marked, 0, __ATOMIC_RELAXED);
		launch->segment = segment;
		launch->length = length_of(launch);
		gpu_pace_add(launch);
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
		__atomic_store_n(&segment->marked, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&segment->began, bucket_now(), __ATOMIC_RELAXED);
		if (!events(segment) || CALL(cuEventRecord, segment->from, launch->handle) != CUDA_SUCCESS) {
			gpu_segment_release(segment, SEGMENT_FREE);
			launch->blind = true;
			return;
		}
		launch->segment = segment;
		launch->first = true;
		launch->length = length_of(launch);
		gpu_pace_add(launch);
		return;
	}
}

/* The one in flight that began last; NULL: others have them. */
static struct gpu_segment *claim_newest(struct gpu_stream *stream)
{
	struct gpu_segment *newest = NULL;

	for (unsigned int i = 0; i < GPU_SEGMENTS; i++) {
		struct gpu_segment *segment = &stream->segments[i];

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
	return newest;
}

/* All are in flight: the newest gets longer, and with it what it will be charged for. If it is over, a time without
 * work lies behind it: that is nobody's, and this launch begins another one, unless a thread that settles has them. */
static void lengthen_segment(struct launch *launch)
{
	struct gpu_segment *newest = claim_newest(launch->stream);

	if (newest != NULL && CALL(cuEventQuery, newest->to) != NOT_READY) {
		gpu_segment_release(newest, SEGMENT_FLYING);
		gpu_segments_settle(launch->gpu);
		start_segment(launch);
		if (launch->segment != NULL || launch->blind)
			return;
		newest = claim_newest(launch->stream);
	}
	if (newest != NULL)
		__atomic_store_n(&newest->marked, 0, __ATOMIC_RELAXED);
	launch->segment = newest;
	launch->length = 0;
	gpu_pace_add(launch);
}

/* Other launches have the stream's segments, and do not come back. */
static bool stuck(const struct gpu_stream *stream)
{
	uint64_t now = bucket_now();

	for (unsigned int i = 0; i < GPU_SEGMENTS; i++) {
		const struct gpu_segment *segment = &stream->segments[i];
		uint64_t since = longer(__atomic_load_n(&segment->began, __ATOMIC_RELAXED),
					__atomic_load_n(&segment->touched, __ATOMIC_RELAXED));

		if (__atomic_load_n(&segment->state, __ATOMIC_RELAXED) != SEGMENT_BUSY || now - since < STUCK_NS)
			return false;
	}
	return true;
}

/* A capture may begin while the launch is held, so the driver is asked again afterwards. Only a launch that is captured
 * is not held: with the questions before the hold and after it, one whose capture ended in between was neither. */
static void slow_begin(struct launch *launch)
{
	int mode = capture_relax();

	launch->captured = capture_active(launch->handle);
	if (!launch->captured) {
		capture_restore(mode);
		hold(launch->card, launch->gpu, launch->stream);
		mode = capture_relax();
		launch->captured = capture_active(launch->handle);
	}
	if (launch->captured)
		launch->capture = capture_id(launch->handle);
	if (!launch->captured) {
		if (launch->stream != NULL)
			start_segment(launch);
		if (launch->stream != NULL && launch->segment == NULL)
			lengthen_segment(launch);
		if (launch->segment == NULL && (launch->stream == NULL || stuck(launch->stream)))
			launch->blind = true;
	}
	capture_restore(mode);
	launch->began = bucket_now();
}

/* A launch whose stack is gone comes back no more: its segment ends. One that a driver's call is below, as where
 * that calls the program back, is not: its stack lies above this one. */
static void take_off(struct launch *launch)
{
	struct process *own = process_own();
	struct gpu_segment *segment = flight.segment;

	launch->alone = segment == NULL || (uintptr_t)launch >= (uintptr_t)flight.launch;
	if (segment == NULL || !launch->alone)
		return;
	flight.segment = NULL;
	if (own == NULL || flight.epoch != __atomic_load_n(&own->epoch, __ATOMIC_ACQUIRE))
		return;			/* with its context */
	if (flight.gpu == launch->gpu)
		gpu_segment_left(flight.gpu, flight.stream, segment);
	else
		gpu_segment_abandon(flight.gpu, flight.stream, segment);
}

static void in_flight(const struct launch *launch)
{
	struct process *own = process_own();

	if (!launch->alone || launch->segment == NULL)
		return;
	flight.launch = launch;
	flight.segment = launch->segment;
	flight.gpu = launch->gpu;
	flight.stream = launch->stream;
	flight.epoch = own != NULL ? __atomic_load_n(&own->epoch, __ATOMIC_RELAXED) : 0;
}

/* False: another launch of this thread took it to be gone. */
static bool landed(const struct launch *launch)
{
	if (!launch->alone)
		return true;
	if (flight.launch != launch || flight.segment != launch->segment)
		return false;
	flight.segment = NULL;
	return true;
}

/* In the current context. */
static void look_up(struct launch *launch, CUcontext *context, bool make)
{
	launch->gpu = NULL;
	launch->stream = NULL;
	launch->card = charge_current_card(context);
	launch->percent = launch->card != NULL ? limits_core(launch->card) : 0;
	if (launch->percent == 0)
		return;
	launch->gpu = gpu_context_of(*context, launch->card);
	if (launch->gpu != NULL)
		launch->stream = gpu_stream_of(launch->gpu, launch->handle, make);
}

void gpu_time_begin(struct launch *launch, CUstream stream, bool per_thread)
{
	CUcontext context = NULL, other = NULL;

	launch->handle = gpu_handle(stream, per_thread);
	launch->elsewhere = NULL;
	launch->segment = NULL;
	launch->first = launch->captured = launch->blind = false;
	look_up(launch, &context, false);
	if (launch->percent == 0 && context != NULL)
		return;
	if (launch->stream == NULL) {
		/* The driver launches there all the same, and only there it can be measured. */
		other = charge_other_context(launch->handle, context);
		if (other != NULL && CALL(cuCtxPushCurrent_v2, other) == CUDA_SUCCESS)
			launch->elsewhere = other;
		look_up(launch, &context, true);
	}
	if (launch->percent != 0) {
		take_off(launch);
		if (launch->stream == NULL || !go_on(launch))
			slow_begin(launch);
		in_flight(launch);
	}
	if (launch->elsewhere != NULL)
		CALL(cuCtxPopCurrent_v2, &other);
}

/* A stream that captures cannot be asked, which would end the capture: it may work. */
static bool works(CUstream handle)
{
	int mode = capture_relax();
	bool busy = capture_active(handle) || CALL(cuStreamQuery, handle) == NOT_READY;

	capture_restore(mode);
	return busy;
}

/* Charges what nothing but its stream tells of: until that is idle. Not for long: a kernel may run there that
 * waits for what this thread launches next. */
static void watch(const struct launch *launch)
{
	uint64_t pause = WATCH_MIN_NS;

	while (bucket_now() - launch->began < WATCH_NS && works(launch->handle)) {
		system_sleep((long)pause);
		pause = longer(pause, (bucket_now() - launch->began) / 16);
	}
	gpu_charge_since(launch->gpu, launch->card, launch->began);
}

/* Of a launch that has no segment of its own. */
static void end_unmeasured(struct launch *launch)
{
	if (launch->captured) {
		if (launch->capture != 0 && capture_id(launch->handle) == launch->capture)
			return;
		watch(launch);		/* the capture had ended, and it ran, though another one may have begun since */
		hold(launch->card, launch->gpu, NULL);
	} else if (launch->blind) {
		watch(launch);
	} else {
		gpu_charge_blind(launch->card, gpu_estimate(launch->stream));
	}
}

static CUresult end(struct launch *launch, CUresult ret)
{
	struct gpu_segment *segment = launch->segment;
	bool flew;

	if (launch->percent == 0)
		return ret;
	if (segment != NULL && !landed(launch)) {
		launch->blind = true;
		segment = NULL;
	}
	if (segment == NULL) {
		if (ret == CUDA_SUCCESS)
			end_unmeasured(launch);
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
		 gpu_segment_close(segment, launch->handle, launch->first || flew))
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
