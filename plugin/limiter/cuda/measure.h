/* measure.h - what a call has taken of the card, where no size says so: what the card has less of afterwards, and the
 * container does not know of. One at a time in the container. */
#ifndef EDGEGPU_LIMITER_MEASURE_H
#define EDGEGPU_LIMITER_MEASURE_H

#include "account.h"

struct measure {
	int turn;			/* the locked file; -1: none */
	struct process *own;		/* whose mutex is held; NULL: it is not */
	struct card *card;
	CUcontext context;
	int mode;
	uint64_t unknown;		/* bytes of the card that are free, or counted to the container */
};

void measure_begin(struct measure *measure);

/* What was taken since the last look; the next one counts from here. */
uint64_t measure_taken(struct measure *measure);

CUresult measure_finish(const struct measure *measure, CUresult ret);	/* returns ret */

/* The turn of this process alone; MUTEX_MISSED: it was waited for too long. */
enum mutex_entry measure_enter(struct process *own);

#endif
