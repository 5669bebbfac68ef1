/* clock.h - the time, as the kernel says it. */
#ifndef EDGEGPU_LIMITER_CLOCK_H
#define EDGEGPU_LIMITER_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Look whether this process is in another time namespace than it was. False: what its clock is ahead cannot be known. */
bool clock_renew(void);
bool clock_is_machines(void);		/* this process is in no time namespace of its own, as far as is known */

uint64_t clock_ns(void);		/* of CLOCK_MONOTONIC, as the machine has it: in a time namespace too */
uint64_t clock_coarse_ms(void);		/* the same, to some ms, for less */

uint64_t clock_random(void);		/* drawn anew by each exec; 0: not known */

#endif
