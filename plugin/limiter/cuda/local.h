/* local.h - local memory: what each thread of a kernel has beyond its registers. */
#ifndef EDGEGPU_LIMITER_LOCAL_H
#define EDGEGPU_LIMITER_LOCAL_H

#include "charge.h"

/* The driver has given a function, or a kernel: what it needs is asked for at its first launch. */
void local_function(const void *function);
void local_kernel(CUkernel kernel);

/* It is about to be launched in a stream. CUDA_ERROR_OUT_OF_MEMORY: what it needs would pass the limit. */
CUresult local_launch(const void *function, CUstream stream);

void local_stream_ends(void);		/* its handle may come again */

/* In the hook of a launch: return from it where the kernel cannot have what it needs. */
#define LOCAL(function, stream)                                                                   \
	do {                                                                                      \
		CUresult refused = NESTED ? CUDA_SUCCESS : local_launch(function, stream);        \
		if (__builtin_expect(refused != CUDA_SUCCESS, 0))                                 \
			return refused;                                                           \
	} while (0)

#endif
