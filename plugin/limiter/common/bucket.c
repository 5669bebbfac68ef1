/* bucket.c - a bucket in one word: the time at which it is out of debt.
 *
 * A charge of t ns at c % moves that time on by t * 100 / c. It refills by itself, since time goes on.
 * The share at which the debt was made stands beside it, so that a new share scales what is left. */
#include <time.h>

#include "bucket.h"

#define SHARE_BITS 7
#define SHARE_MASK ((1u << SHARE_BITS) - 1)
#define UNIT_NS 8			/* 57 bits of it are 36 years */

#define US 1000u
#define LENGTH_BITS 24			/* of us: 16 seconds */
#define LENGTH_MASK ((1ull << LENGTH_BITS) - 1)
#define END_MASK ((1ull << (64 - LENGTH_BITS)) - 1)

uint64_t bucket_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t word_of(uint64_t until, unsigned int percent)
{
	return until / UNIT_NS << SHARE_BITS | percent;
}

/* Until when the word says, with all that cannot be so brought back to what can. */
static uint64_t until_of(uint64_t word, unsigned int percent, uint64_t now)
{
	uint64_t until = (word >> SHARE_BITS) * UNIT_NS, share = word & SHARE_MASK;
	uint64_t oldest = now > BUCKET_CREDIT_NS ? now - BUCKET_CREDIT_NS : 0;

	if (word == 0)			/* new, or wiped: that buys no credit */
		return now;
	if (until < oldest)
		return oldest;
	if (until <= now)
		return until;
	if (until - now > BUCKET_DEBT_NS)
		until = now + BUCKET_DEBT_NS;
	if (share == 0 || share > 100)
		share = percent;
	until = now + (until - now) * share / percent;
	return until - now < BUCKET_DEBT_NS ? until : now + BUCKET_DEBT_NS;
}

/* What was absurd, or another share's, is written back as it was understood: so it is over one day. */
uint64_t bucket_wait(struct bucket *bucket, unsigned int percent, uint64_t now)
{
	uint64_t word = __atomic_load_n(&bucket->level, __ATOMIC_RELAXED), until, next;

	until = until_of(word, percent, now);
	if (until <= now)
		return 0;
	next = word_of(until, percent);
	if (next != word && next >> SHARE_BITS != word >> SHARE_BITS)
		__atomic_compare_exchange_n(&bucket->level, &word, next, 0, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
	return until - now;
}

void bucket_charge(struct bucket *bucket, unsigned int percent, uint64_t began, uint64_t ns)
{
	uint64_t word = __atomic_load_n(&bucket->level, __ATOMIC_RELAXED), next, debt;

	if (ns > BUCKET_DEBT_NS)
		ns = BUCKET_DEBT_NS;
	debt = (ns * 100 + percent / 2) / percent;
	do
		next = word_of(until_of(word, percent, began) + debt, percent);
	while (!__atomic_compare_exchange_n(&bucket->level, &word, next, 0, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED));
}

struct stretch {
	uint64_t begin, end;		/* both 0: none */
};

/* A word holds the end in us, as far as its bits go, and the length. An end is never later than now: what
 * stands there is how long ago it was. */
static struct stretch stretch_of(uint64_t word, uint64_t now)
{
	uint64_t ago = (now / US - (word >> LENGTH_BITS)) & END_MASK, length = (word & LENGTH_MASK) * US;
	struct stretch stretch = { 0, 0 };

	if (word == 0 || ago >= now / US)
		return stretch;
	stretch.end = (now / US - ago) * US;
	stretch.begin = stretch.end > length ? stretch.end - length : 0;
	return stretch;
}

/* Rounded so that it is never more than was charged. */
static uint64_t stretch_word(struct stretch stretch)
{
	uint64_t begin = (stretch.begin + US - 1) / US, end = stretch.end / US;
	uint64_t length = end > begin ? end - begin : 0;

	return (end & END_MASK) << LENGTH_BITS | (length < LENGTH_MASK ? length : LENGTH_MASK);
}

static uint64_t common_ns(struct stretch one, struct stretch other)
{
	uint64_t begin = one.begin > other.begin ? one.begin : other.begin;
	uint64_t end = one.end < other.end ? one.end : other.end;

	return end > begin ? end - begin : 0;
}

/* Stretches that touch become one. What is lost because two do this at the same time, or one is killed
 * meanwhile, is charged again. */
uint64_t bucket_cover(struct bucket *bucket, uint64_t from, uint64_t to, uint64_t now)
{
	struct stretch charged = { from, to }, whole = charged;
	uint64_t fresh = to - from, oldest = UINT64_MAX, seen = 0;
	unsigned int place = 0;

	for (unsigned int i = 0; i < BUCKET_STRETCHES; i++) {
		uint64_t word = __atomic_load_n(&bucket->covered[i], __ATOMIC_RELAXED), common;
		struct stretch stretch = stretch_of(word, now);

		common = common_ns(charged, stretch);
		fresh -= common < fresh ? common : fresh;
		if (stretch.end != 0 && stretch.begin <= whole.end + 2 * US &&
		    whole.begin <= stretch.end + 2 * US) {
			whole.begin = stretch.begin < whole.begin ? stretch.begin : whole.begin;
			whole.end = stretch.end > whole.end ? stretch.end : whole.end;
			if (!__atomic_compare_exchange_n(&bucket->covered[i], &word, 0, 0,
							 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
				continue;
			stretch.end = word = 0;
		}
		if (stretch.end < oldest) {
			oldest = stretch.end;
			place = i;
			seen = word;
		}
	}
	__atomic_compare_exchange_n(&bucket->covered[place], &seen, stretch_word(whole), 0, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
	return fresh;
}
