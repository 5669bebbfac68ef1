/* form.h - the forms of a function: names that differ in version and stream alone. */
#ifndef EDGEGPU_LIMITER_FORM_H
#define EDGEGPU_LIMITER_FORM_H

#include <stdbool.h>
#include <stddef.h>

size_t form_stem(const char *name);	/* the length of what all forms have in common */

bool form_same_stem(const char *name, const char *symbol);

/* The function that cuGetProcAddress means by a symbol at a version of CUDA, by the list alone, among those that `exists`
 * has; per_thread: for the default stream of each thread. -1: none. */
int form_choose(const char *symbol, int version, bool per_thread, bool (*exists)(int function));

#endif
