/* bucket.c - a bucket in one word: the time at which it is out of debt.
 *
 * A charge of t ns at c % moves that time on by t * 100 / c. It refills by itself, since time goes on.
 * The share at which the debt was made stands beside it, so that a new share scales what is left. */
#include "bucket.h"
#include "clock.h"

#define SHARE_BITS 7
#define SHARE_MASK ((1u << SHARE_BITS) - 1)
#define UNIT_NS 8			/* 57 bits of it are 36 years */

uint64_t bucket_now(void)
{
	return clock_ns();
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
