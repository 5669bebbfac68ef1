/* client.h - a program in the container: it links nothing, and finds libcuda.so.1 as others do. */
#ifndef EDGEGPU_LIMITER_TESTS_CLIENT_H
#define EDGEGPU_LIMITER_TESTS_CLIENT_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../cuda/hooks.h"
#include "must.h"

CUresult cuInit(unsigned int flags);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuParamSetf(void *function, int offset, float value);

#define MIB (1ull << 20)

static void *client_library;

static inline void client_open(const char *path)
{
	client_library = dlopen(path, RTLD_NOW);
	if (client_library == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		exit(2);
	}
}

static inline void *client_symbol(const char *name)
{
	void *found = dlsym(client_library, name);

	if (found == NULL) {
		fprintf(stderr, "no %s\n", name);
		exit(2);
	}
	return found;
}

#define CU(name) ((__typeof__(&name))client_symbol(#name))

/* With the primary context; false: there is no memory for it. */
static inline int client_try_start(void)
{
	CUcontext context;
	CUresult ret;

	MUST(CU(cuInit)(0) == CUDA_SUCCESS);
	ret = CU(cuDevicePrimaryCtxRetain)(&context, 0);
	if (ret == CUDA_ERROR_OUT_OF_MEMORY)
		return 0;
	MUST(ret == CUDA_SUCCESS && CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
	return 1;
}

static inline void client_start(void)
{
	MUST(client_try_start());
}

static inline uint64_t client_free(void)
{
	size_t free_bytes, total;

	MUST(CU(cuMemGetInfo_v2)(&free_bytes, &total) == CUDA_SUCCESS);
	return free_bytes;
}

#endif
