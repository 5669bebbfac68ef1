/* setting.h - what counts of a context's settings. */
#ifndef EDGEGPU_LIMITER_SETTING_H
#define EDGEGPU_LIMITER_SETTING_H

#include <stdint.h>

/* So many bytes for each thread that the current context's card can run at once. */
uint64_t setting_of_threads(uint64_t bytes);

#endif
