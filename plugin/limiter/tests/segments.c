/* segments.c - what processes that share a card are charged, in a model: time is counted in steps, and the card
 * has a clock of its own. Prints nothing where all are charged what they used. */
#include <stdio.h>
#include <string.h>

#include "../cuda/gpu_segment.h"

#define PROCESSES 3
#define STEP_NS 10000u
#define SECOND 1000000000ull
#define TURN_NS 2000000ull
#define LONG_NS 50000000ull
#define ROUNDS 3u
#define CHAINS 20000u
#define SOON_NS 200u
#define UNCLEAR_NS 9800u
#define CLOSE_NS 300000u		/* gpu_time.c sleeps so long where a look is to be close, */
#define FAR_NS 5000000u			/* and up to twice this where it is not */

static struct bucket container;
static uint64_t model_now, charged;
static int64_t drift_ppm;

/* An event is the moment at which the card comes to it, by the clock of the host. */
static CUresult model_cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
	int64_t ns = (int64_t)(*(uint64_t *)to - *(uint64_t *)from);

	if (*(uint64_t *)from > model_now || *(uint64_t *)to > model_now)
		return 600;
	*ms = (float)((double)(ns + ns * drift_ppm / 1000000) / 1e6);
	return CUDA_SUCCESS;
}

/* No segment is left open here. */
static CUresult model_cuStreamQuery(CUstream stream)
{
	(void)stream;
	return CUDA_SUCCESS;
}

static CUresult model_cuEventRecord(CUevent event, CUstream stream)
{
	(void)event;
	(void)stream;
	return CUDA_SUCCESS;
}

bool gpu_stream_handle(const struct gpu_stream *stream, CUstream *out)
{
	(void)stream;
	*out = NULL;
	return true;
}

/* Nothing is captured. */
bool capture_active(CUstream stream)
{
	(void)stream;
	return false;
}

void capture_unseen(void)
{
}

int capture_relax(void)
{
	return CAPTURE_NONE;
}

void capture_restore(int mode)
{
	(void)mode;
}

static void model_charge(const struct bucket *bucket, uint64_t ns)
{
	if (bucket == &container)
		charged += ns;
}

#undef CALL
#define CALL(name, ...) model_##name(__VA_ARGS__)
#define bucket_now() model_now
#define bucket_charge(bucket, percent, began, ns) ((void)(percent), (void)(began), model_charge(bucket, ns))
#define usage_bucket(card) ((void)(card), &container)
#define limits_core(card) ((void)(card), 50u)
#define limits_charge(card) ((void)(card), 1000u)
#include "../cuda/gpu_segment.c"

/* When it is paid for does not matter here. */
void gpu_pace_defer(struct card *card, uint64_t paid, uint64_t each, uint64_t count)
{
	(void)card, (void)paid, (void)each, (void)count;
}

static unsigned int draw(void)
{
	static unsigned int drawn = 1;

	drawn = drawn * 1664525 + 1013904223;
	return drawn >> 8;
}

static CUevent event(CUevent old, uint64_t at)
{
	static uint64_t events[64];
	static unsigned int last;
	uint64_t *event = old != NULL ? (uint64_t *)old : &events[last++ % 64];

	*event = at;
	return (CUevent)event;
}

/* Kernels of all processes, one after the other without a gap. Each process looks at its own pace for what is over,
 * and all but the first rest for a while. Returns the permille that was charged of what was used. */
static uint64_t permille(uint64_t kernel, int64_t ppm, uint64_t rest)
{
	static struct gpu_context contexts[PROCESSES];
	static struct card cards[PROCESSES];
	uint64_t begin = model_now + SECOND, end = begin + rest + 4 * SECOND, idle = begin, used = 0;

	memset(contexts, 0, sizeof(contexts));
	memset(cards, 0, sizeof(cards));
	memset(&container, 0, sizeof(container));
	charged = 0;
	drift_ppm = ppm;
	for (model_now = begin; model_now < end; model_now += STEP_NS)
		for (unsigned int i = 0; i < PROCESSES; i++) {
			struct gpu_context *gpu = &contexts[i];
			bool rests = i > 0 && model_now - begin > SECOND && model_now - begin < SECOND + rest;

			gpu->card = &cards[i];
			gpu->streams[0].key = 1;
			if (draw() % (4u << 2 * i) == 0)
				gpu_segments_settle(gpu);
			for (unsigned int j = 0; j < GPU_SEGMENTS && !rests; j++) {
				struct gpu_segment *segment = &gpu->streams[0].segments[j];

				if (!gpu_segment_claim(segment, SEGMENT_FREE))
					continue;
				segment->began = model_now;
				segment->count = 1;
				idle = (idle > model_now ? idle : model_now) + STEP_NS / 10;
				segment->from = event(segment->from, idle);
				idle += kernel;
				used += kernel;
				segment->to = event(segment->to, idle);
				gpu_segment_release(segment, SEGMENT_FLYING);
			}
		}
	return charged * 1000 / used;
}

/* Long kernels of all processes in turns of TURN_NS: all begin and end within two turns. Each process sleeps between two
 * looks as a launch does that is held, in the first round for long. Returns the permille that was charged of what was
 * used in the other rounds. */
static uint64_t permille_in_turns(void)
{
	static struct gpu_context contexts[PROCESSES];
	static struct card cards[PROCESSES];
	uint64_t look_at[PROCESSES] = { 0 }, round = PROCESSES * LONG_NS;

	memset(&container, 0, sizeof(container));
	drift_ppm = 0;
	for (unsigned int i = 0; i < ROUNDS; i++) {
		uint64_t begin = model_now + SECOND, end = begin + 2 * round;

		charged = i == 1 ? 0 : charged;
		for (unsigned int j = 0; j < PROCESSES; j++) {
			struct gpu_segment *segment = &contexts[j].streams[0].segments[0];

			contexts[j].card = &cards[j];
			contexts[j].streams[0].key = 1;
			segment->began = begin;
			segment->count = 1;
			segment->from = event(segment->from, begin + j * TURN_NS);
			segment->to = event(segment->to, begin + round - (PROCESSES - 1 - j) * TURN_NS);
			segment->state = SEGMENT_FLYING;
		}
		for (model_now = begin; model_now < end; model_now += STEP_NS)
			for (unsigned int j = 0; j < PROCESSES; j++)
				if (model_now >= look_at[j])
					look_at[j] = model_now + (gpu_segments_settle(&contexts[j]) && i != 0 ?
								  CLOSE_NS : FAR_NS + draw() % FAR_NS);
	}
	return charged * 1000 / ((ROUNDS - 1) * round);
}

/* Two processes take turns with kernels that never run beside each other. The first begins on an idle card and looks
 * late for its end, the second is queued behind it and looks at once: so the middle of what is known is too late for
 * one, too early for the other, each time. Returns the permille that was charged of what was used. */
static uint64_t permille_of_a_chain(uint64_t kernel)
{
	static struct gpu_context contexts[2];
	static struct card cards[2];
	uint64_t launched = model_now + SECOND, used = 0;

	memset(contexts, 0, sizeof(contexts));
	memset(&container, 0, sizeof(container));
	charged = 0;
	drift_ppm = 0;
	for (unsigned int i = 0; i < CHAINS; i++) {
		uint64_t begin = launched + SOON_NS, turn = begin + kernel + SOON_NS, end = turn + kernel;
		uint64_t began[] = { launched, turn - UNCLEAR_NS };

		for (unsigned int j = 0; j < 2; j++) {
			struct gpu_segment *segment = &contexts[j].streams[0].segments[0];

			contexts[j].card = &cards[j];
			contexts[j].streams[0].key = 1;
			segment->began = began[j];
			segment->count = 1;
			segment->from = event(segment->from, j == 0 ? begin : turn);
			segment->to = event(segment->to, j == 0 ? begin + kernel : end);
			segment->state = SEGMENT_FLYING;
		}
		for (unsigned int j = 0; j < 2; j++) {
			bool first = (begin + kernel + UNCLEAR_NS < end + SOON_NS) == (j == 0);

			model_now = first ? begin + kernel + UNCLEAR_NS : end + SOON_NS;
			gpu_segments_settle(&contexts[first ? 0 : 1]);
		}
		launched = (begin + kernel + UNCLEAR_NS > end + SOON_NS ? begin + kernel + UNCLEAR_NS : end) + 3000;
		used += 2 * kernel;
	}
	return charged * 1000 / used;
}

/* Of a kernel that never ends a process does not look closely for ever. */
static unsigned int close_looks(void)
{
	static struct gpu_context context;
	static struct card card;
	unsigned int looks = 0;

	context.card = &card;
	context.streams[0].key = 1;
	context.streams[0].segments[0].from = event(NULL, model_now);
	context.streams[0].segments[0].to = event(NULL, UINT64_MAX);
	context.streams[0].segments[0].state = SEGMENT_FLYING;
	for (unsigned int i = 0; i < 100000; i++)
		looks += gpu_segments_settle(&context);
	return looks;
}

int main(void)
{
	static const uint64_t kernels[] = { 100000, 1000000, 5000000 };
	static const int64_t ppms[] = { -450, -90, -40, 0, 450 };
	unsigned int looks;
	uint64_t got;
	int failed = 0;

	model_now = 1000 * SECOND;
	for (unsigned int i = 0; i < 3; i++)
		for (unsigned int j = 0; j < 5; j++)
			for (uint64_t rest = 0; rest <= 4 * SECOND; rest += 4 * SECOND) {
				bool drifts = i < 2 && ppms[j] < 0;	/* short ones, until it is known how much */

				got = permille(kernels[i], ppms[j], rest);

				if (got >= (drifts ? 900 : 990) && got <= 1001)
					continue;
				fprintf(stderr, "kernels of %d us, %d ppm, a rest of %d s: %d permille are charged\n",
					(int)(kernels[i] / 1000), (int)ppms[j], (int)(rest / SECOND), (int)got);
				failed = 1;
			}
	for (unsigned int i = 10; i <= 320; i *= 2) {
		got = permille_of_a_chain(i * 1000);
		if (got < 985 || got > 1001)
			failed = fprintf(stderr, "kernels of %u us, each behind another's: %d permille are charged\n",
					 i, (int)got);
	}
	got = permille_in_turns();
	if (got < 990 || got > 1020)
		failed = fprintf(stderr, "long kernels in turns: %d permille are charged\n", (int)got);
	looks = close_looks();
	if (looks < 100 || looks > 2000)
		failed = fprintf(stderr, "a kernel without end is looked at closely %u times\n", looks);
	return failed != 0;
}
