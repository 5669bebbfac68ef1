/* ranks.h - what the two ranks of ranks.c and their driver share. */
#ifndef EDGEGPU_LIMITER_TESTS_RANKS_H
#define EDGEGPU_LIMITER_TESTS_RANKS_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "must.h"

#define STEPS_MAX (1u << 20)

struct ranks {
	uint64_t launched[2][STEPS_MAX];	/* ns: when each rank launched each of its kernels; 0: not yet; atomic */
	uint64_t calls[2];		/* of the driver's functions, but for launches; each its rank's alone */
};

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t setting(const char *name)
{
	const char *text = getenv(name);

	MUST(text != NULL);
	return strtoull(text, NULL, 10);
}

/* In a file that was made before: RANKS. Which of the two this is: RANK. */
static inline struct ranks *ranks_map(void)
{
	int file = open(getenv("RANKS"), O_RDWR);
	struct ranks *ranks = mmap(NULL, sizeof(*ranks), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

	MUST(ranks != MAP_FAILED);
	return ranks;
}

#endif
