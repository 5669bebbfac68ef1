/* bucket.h - GPU time that a container may still take: one bucket for each of its cards.
 *
 * All zeros is a full start: no debt, no credit. The words lie in the usage file, where anybody in the
 * container may write anything: each is one number that any value of is understood and bounded, and a
 * kill between two instructions leaves it right. Times are ns of CLOCK_MONOTONIC. */
#ifndef EDGEGPU_LIMITER_BUCKET_H
#define EDGEGPU_LIMITER_BUCKET_H

#include <stdint.h>

#include "cover.h"

#define BUCKET_CREDIT_NS 50000000ull	/* of wall time: what is saved up while nothing runs */
/* Of wall time: more than this is not believed, for anybody in the container may have written it. A kernel of
 * half a minute at one percent comes to that. */
#define BUCKET_DEBT_NS 3600000000000ull

struct bucket {
	uint64_t level;			/* until when the debt lasts, and at which share; atomic */
	struct cover covered;		/* what was charged of late */
};

uint64_t bucket_now(void);

/* How long a launch has to be held at this share (1..100), in ns; 0: not at all. */
uint64_t bucket_wait(struct bucket *bucket, unsigned int percent, uint64_t now);

/* Charge ns of work that began at a time: what had been saved up until then pays first. */
void bucket_charge(struct bucket *bucket, unsigned int percent, uint64_t began, uint64_t ns);

#endif
