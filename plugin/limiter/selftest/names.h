/* names.h - each function that the limiter stands in, looked up in each form that programs use. */
#ifndef EDGEGPU_SELFTEST_NAMES_H
#define EDGEGPU_SELFTEST_NAMES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "functions.h"

enum {
	HOOKED_COUNT = 0
#define FUNCTION(name, since, hooked) + hooked
#include "functions.def"
#undef FUNCTION
};

/* dlsym, dlvsym; each generation of cuGetProcAddress at two versions with three flags, and by the form's own name. */
enum { QUESTION_DLSYM, QUESTION_DLVSYM, QUESTION_LOOKUP, QUESTION_OWN = QUESTION_LOOKUP + 2 * 2 * 3,
       QUESTIONS = QUESTION_OWN + 2 };

enum { ANSWER_NONE = 0, ANSWER_UNKNOWN = UINT16_MAX };	/* else 1 + the number of the library's function */

struct names {
	bool done;
	int newest;				/* the version of CUDA asked for, beside each form's own */
	uint16_t same_as[FN_COUNT];		/* the first function at the same address */
	uint16_t answers[HOOKED_COUNT][QUESTIONS];
};

/* Look all up in a library; no call but these is needed before. */
void names_look_up(void *library, int newest, struct names *out);

/* What differs between the driver's answers and those of the limiter over it, as JSON. */
void names_write(FILE *out, const struct names *native, const struct names *held);

#endif
