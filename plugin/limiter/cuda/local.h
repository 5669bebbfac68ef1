/* local.h - local memory: what each thread of a kernel has beyond its registers. */
#ifndef EDGEGPU_LIMITER_LOCAL_H
#define EDGEGPU_LIMITER_LOCAL_H

#include "charge.h"

/* The driver has given a function, or a kernel: what it needs is remembered, if that is much. */
void local_function(void *function);
void local_kernel(CUkernel kernel);

/* It is about to be launched in the current context. CUDA_ERROR_OUT_OF_MEMORY: what it needs would pass the limit. */
CUresult local_launch(const void *function);

/* In the hook of a launch: return from it where the kernel cannot have what it needs. */
#define LOCAL(function)                                                                           \
	do {                                                                                      \
		CUresult refused = NESTED ? CUDA_SUCCESS : local_launch(function);                \
		if (__builtin_expect(refused != CUDA_SUCCESS, 0))                                 \
			return refused;                                                           \
	} while (0)

#endif
