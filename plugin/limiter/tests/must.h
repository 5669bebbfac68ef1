/* must.h - what holds in a test program, or ends it. */
#ifndef EDGEGPU_LIMITER_TESTS_MUST_H
#define EDGEGPU_LIMITER_TESTS_MUST_H

#include <stdio.h>
#include <stdlib.h>

#define MUST(what)                                                                                \
	do {                                                                                      \
		if (!(what)) {                                                                    \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);        \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

#endif
