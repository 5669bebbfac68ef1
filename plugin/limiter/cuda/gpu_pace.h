/* gpu_pace.h - how much a stream may have in flight. */
#ifndef EDGEGPU_LIMITER_GPU_PACE_H
#define EDGEGPU_LIMITER_GPU_PACE_H

#include "gpu_segment.h"
#include "gpu_time.h"

/* What a launch in this stream is expected to take, in ns: as the last ones did, or as what is in flight
 * has taken so far. */
uint64_t gpu_estimate(const struct gpu_stream *stream);

/* How long a launch has to be held for what is in flight in its stream; 0: not at all. */
uint64_t gpu_pace_wait(const struct card *card, const struct gpu_stream *stream, uint64_t now);

/* The percent that a stream can come to: more than the share where less than all is charged. */
unsigned int gpu_pace_percent(const struct card *card, unsigned int percent);

void gpu_pace_add(const struct launch *launch);	/* it is about to fly */

/* How long until the first of what is in flight should be over, by what launches took before; 0: nothing is, or it is
 * late. */
uint64_t gpu_pace_rest(const struct gpu_stream *stream, uint64_t now);

/* Launches that took `each` ns are charged for so many: what of that is to be paid by later ones. */
void gpu_pace_defer(struct card *card, uint64_t charged, uint64_t each, uint64_t count);

/* How long a launch has to be held for what is owed, less what later ones pay; 0: not at all. */
uint64_t gpu_pace_debt(struct card *card, unsigned int percent, uint64_t now);

#endif
