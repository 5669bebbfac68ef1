/* gpu_pace.c - how much a stream may have in flight before its launches wait a while.
 *
 * What is in flight is not charged yet, and the deeper a queue, the more turns of other containers lie
 * between its events: nobody but the plugin can tell them apart (limits_corrected). */
#include "gpu_pace.h"

#define UNKNOWN_NS 2000000ull		/* a launch of which nothing is known yet */
#define ESTIMATE_MAX_NS 100000000ull
/* Work in flight in a stream: more waits for a while. The more of the card is others', the less it is. */
#define DEPTH_NS(percent) (30000000ull / (100 - (percent)))
#define DEPTH_CORRECTED_NS 20000000ull	/* the same where the plugin knows what was others' */
#define LEAST_PART 256			/* the shortest launches grow by such a part with each longer one */
#define INSTALMENTS_PERCENT 200		/* a segment pays a part of what was deferred: the share's percent of this */
#define DEFERRED_NS 5000000000ull	/* of wall time: no launch goes while more is owed */
#define PATIENCE 3			/* times the work in flight at this share: so long is the while */

uint64_t gpu_estimate(const struct gpu_stream *stream)
{
	uint64_t mean = __atomic_load_n(&stream->mean, __ATOMIC_RELAXED), now = bucket_now();

	if (mean == 0)
		mean = UNKNOWN_NS;
	for (unsigned int i = 0; i < GPU_SEGMENTS; i++) {
		const struct gpu_segment *segment = &stream->segments[i];
		uint64_t began = __atomic_load_n(&segment->began, __ATOMIC_RELAXED);
		uint64_t count = __atomic_load_n(&segment->count, __ATOMIC_RELAXED);

		if (__atomic_load_n(&segment->state, __ATOMIC_RELAXED) == SEGMENT_FLYING &&
		    count != 0 && now > began && (now - began) / count > mean)
			mean = (now - began) / count;
	}
	return mean < ESTIMATE_MAX_NS ? mean : ESTIMATE_MAX_NS;
}

static bool flying(const struct gpu_stream *stream)
{
	for (unsigned int i = 0; i < GPU_SEGMENTS; i++)
		if (__atomic_load_n(&stream->segments[i].state, __ATOMIC_RELAXED) == SEGMENT_FLYING)
			return true;
	return false;
}

/* Both segments are in flight, and the newer one has half of the depth: the card has enough to do until
 * the older one is over. */
static bool filled(const struct gpu_stream *stream)
{
	uint64_t newest = 0, count = 0;

	for (unsigned int i = 0; i < GPU_SEGMENTS; i++) {
		const struct gpu_segment *segment = &stream->segments[i];
		uint64_t began = __atomic_load_n(&segment->began, __ATOMIC_RELAXED);

		if (__atomic_load_n(&segment->state, __ATOMIC_RELAXED) != SEGMENT_FLYING)
			return false;
		if (began >= newest) {
			newest = began;
			count = __atomic_load_n(&segment->count, __ATOMIC_RELAXED);
		}
	}
	return count * gpu_estimate(stream) >= DEPTH_CORRECTED_NS / 2;
}

/* A stream goes on when what it has in flight is over, or after a while: another stream's kernel may wait
 * for this launch. */
uint64_t gpu_pace_wait(const struct card *card, const struct gpu_stream *stream, uint64_t now)
{
	uint64_t pace = __atomic_load_n(&stream->pace, __ATOMIC_RELAXED);

	if (pace <= now)
		return 0;
	return (limits_corrected(card) ? filled(stream) : flying(stream)) ? pace - now : 0;
}

unsigned int gpu_pace_percent(const struct card *card, unsigned int percent)
{
	percent = percent * 1000 / limits_charge(card);
	return percent < 99 ? percent : 99;
}

uint64_t gpu_pace_rest(const struct gpu_stream *stream, uint64_t now)
{
	uint64_t mean = __atomic_load_n(&stream->mean, __ATOMIC_RELAXED), first = UINT64_MAX;

	for (unsigned int i = 0; i < GPU_SEGMENTS; i++) {
		const struct gpu_segment *segment = &stream->segments[i];
		uint64_t over = __atomic_load_n(&segment->began, __ATOMIC_RELAXED) +
				__atomic_load_n(&segment->count, __ATOMIC_RELAXED) * mean;

		if (__atomic_load_n(&segment->state, __ATOMIC_RELAXED) == SEGMENT_FLYING && over < first)
			first = over;
	}
	return first != UINT64_MAX && first > now ? first - now : 0;
}

void gpu_pace_add(const struct launch *launch)
{
	struct gpu_stream *stream = launch->stream;
	bool follows = launch->segment != NULL && __atomic_load_n(&launch->segment->count, __ATOMIC_RELAXED) != 0;
	unsigned int percent = gpu_pace_percent(launch->card, launch->percent);
	uint64_t depth = limits_corrected(launch->card) ? DEPTH_CORRECTED_NS : DEPTH_NS(percent);
	uint64_t least = bucket_now() - depth * 100 * PATIENCE / percent;
	uint64_t pace = __atomic_load_n(&stream->pace, __ATOMIC_RELAXED);

	if ((!follows && !flying(stream)) || pace < least)
		pace = least;
	pace += gpu_estimate(stream) * 100 * PATIENCE / percent;
	__atomic_store_n(&stream->pace, pace, __ATOMIC_RELAXED);
}

/* A kernel may be long because it waits for another container's, which is held too. Who pays at once for all of that wait
 * keeps the other one waiting for longer than it waited itself, and so on: of two that met in each step at less than half
 * of a card, each step took longer than the one before. So for what launches took beyond the shortest ones later ones pay,
 * each a part that keeps the other waiting for half as long at most.
 *
 * Whoever chooses which of his kernels are long has DEFERRED_NS by it, once. It is known to this process alone: another
 * one waits for all that is owed. Where several work on the card, a launch is long because of the others' turns. */
void gpu_pace_defer(struct card *card, uint64_t charged, uint64_t each, uint64_t count)
{
	uint64_t least = __atomic_load_n(&card->least, __ATOMIC_RELAXED);
	uint64_t later = __atomic_load_n(&card->deferred, __ATOMIC_RELAXED);
	unsigned int percent = limits_core(card);

	if (percent == 0)
		return;
	percent = gpu_pace_percent(card, percent);
	later -= later * percent / INSTALMENTS_PERCENT;
	if (least != 0 && __atomic_load_n(&card->sharers, __ATOMIC_RELAXED) <= 1 && charged > least * count)
		later += (charged - least * count) * (100 - percent) / percent;
	least += least / LEAST_PART;
	__atomic_store_n(&card->deferred, later < DEFERRED_NS ? later : DEFERRED_NS, __ATOMIC_RELAXED);
	__atomic_store_n(&card->least, (least != 0 && least < each ? least : each) + 1, __ATOMIC_RELAXED);
}

/* A process that finds the container's bucket emptied by somebody still has its own. */
static uint64_t owed(struct card *card, unsigned int percent, uint64_t now)
{
	struct bucket *shared = usage_bucket(card_index(card));
	uint64_t own = bucket_wait(&card->spent, percent, now), all;

	all = shared != NULL ? bucket_wait(shared, percent, now) : 0;
	return own > all ? own : all;
}

uint64_t gpu_pace_debt(struct card *card, unsigned int percent, uint64_t now)
{
	uint64_t later = __atomic_load_n(&card->deferred, __ATOMIC_RELAXED), debt = owed(card, percent, now);

	if (later <= debt)
		return debt - later;
	__atomic_store_n(&card->deferred, debt, __ATOMIC_RELAXED);	/* time has paid for it */
	return 0;
}
