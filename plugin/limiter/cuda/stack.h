/* stack.h - what the threads of a context's kernels have of the card: stacks, or local memory where that is more. */
#ifndef EDGEGPU_LIMITER_STACK_H
#define EDGEGPU_LIMITER_STACK_H

#include <stdbool.h>

#include "charge.h"

/* A kernel is about to be launched in the current context, which is that one, whose threads need so many bytes each. False:
 * that would pass the limit. */
bool stack_of_kernel(struct card *card, CUcontext context, uint64_t bytes);

/* cuCtxSetLimit for the stack, in the current context. */
CUresult stack_set(size_t value);

#endif
