/* clock.h - the time, as the kernel says it. */
#ifndef EDGEGPU_LIMITER_CLOCK_H
#define EDGEGPU_LIMITER_CLOCK_H

#include <stdint.h>

uint64_t clock_ns(void);		/* of CLOCK_MONOTONIC */
uint64_t clock_coarse_ms(void);		/* the same, to some ms, for less */

uint64_t clock_random(void);		/* drawn anew by each exec; 0: not known */

#endif
