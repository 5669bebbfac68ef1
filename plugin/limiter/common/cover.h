/* cover.h - which ns were charged already: what ran beside each other is charged once.
 *
 * A cover may lie in the usage file, where anybody in the container may write anything: each stretch is
 * one word that any value of is understood, and a kill between two instructions leaves it right. */
#ifndef EDGEGPU_LIMITER_COVER_H
#define EDGEGPU_LIMITER_COVER_H

#include <stdint.h>

#define COVER_STRETCHES 6

struct cover {
	uint64_t stretch[COVER_STRETCHES];	/* each atomic; 0: none */
};

struct span {
	uint64_t begin, end;		/* ns of CLOCK_MONOTONIC */
};

struct spans {
	unsigned int count;
	struct span at[COVER_STRETCHES + 1];
};

/* Leave of `fresh`, which is one span, what this cover does not have, and have it covered. Where spans lie to
 * each other has to be known. Returns all that is covered around the span without a gap. */
struct span cover_exact(struct cover *cover, struct spans *fresh, uint64_t now);

/* The ns of `fresh` that nobody was charged for yet, where all of it may be later by up to `late` ns: only
 * what is common to both wherever it is counts as charged. `whole` is covered from now on, as far as that is
 * certain. */
uint64_t cover_certain(struct cover *cover, const struct spans *fresh, struct span whole, uint64_t late,
		       uint64_t now);

struct span span_later(struct span span, uint64_t ns);
uint64_t spans_ns(const struct spans *spans);

#endif
