/* memory.c - card memory in four ways, a little of each, and given back. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "hooks.h"
#include "selftest.h"

CUresult cuMemGetAllocationGranularity(size_t *out, const struct CUmem_allocation_prop *prop, int which);

#define CU(name) ((__typeof__(&name))dlsym(cuda, #name))

static const struct CUmem_allocation_prop on_card = { .type = CU_MEM_ALLOCATION_PINNED,
						      .location = { CU_MEM_LOCATION_DEVICE, 0 } };

static CUresult take_virtual(void *cuda, CUdeviceptr *out)
{
	size_t step = 0;
	CUresult ret = CU(cuMemGetAllocationGranularity)(&step, &on_card, 0);

	if (ret != CUDA_SUCCESS || step == 0)
		return ret != CUDA_SUCCESS ? ret : CUDA_ERROR_NOT_SUPPORTED;
	return CU(cuMemCreate)(out, (EACH + step - 1) / step * step, &on_card, 0);
}

static CUresult take_one(void *cuda, enum way way, CUdeviceptr *out)
{
	switch (way) {
	case WAY_PLAIN:
		return CU(cuMemAlloc_v2)(out, EACH);
	case WAY_MANAGED:
		return CU(cuMemAllocManaged)(out, EACH, 1);
	case WAY_ASYNC:
		return CU(cuMemAllocAsync)(out, EACH, NULL);
	default:
		return take_virtual(cuda, out);
	}
}

static void give_one(void *cuda, enum way way, CUdeviceptr at)
{
	switch (way) {
	case WAY_PLAIN:
	case WAY_MANAGED:
		CU(cuMemFree_v2)(at);
		break;
	case WAY_ASYNC:
		CU(cuMemFreeAsync)(at, NULL);
		break;
	default:
		CU(cuMemRelease)(at);
	}
}

/* What a pool keeps would count against the next way. */
static void empty_pool(void *cuda)
{
	CUmemoryPool pool;

	CU(cuStreamSynchronize)(NULL);
	if (CU(cuDeviceGetDefaultMemPool)(&pool, 0) == CUDA_SUCCESS)
		CU(cuMemPoolTrimTo)(pool, 0);
}

static bool is_there(void *cuda, enum way way)
{
	static const char *const needed[WAYS][3] = {
		{ "cuMemAlloc_v2", "cuMemFree_v2", "cuMemFree_v2" },
		{ "cuMemAllocManaged", "cuMemFree_v2", "cuMemFree_v2" },
		{ "cuMemAllocAsync", "cuMemFreeAsync", "cuMemPoolTrimTo" },
		{ "cuMemCreate", "cuMemRelease", "cuMemGetAllocationGranularity" },
	};

	for (int i = 0; i < 3; i++)
		if (dlsym(cuda, needed[way][i]) == NULL)
			return false;
	return true;
}

void memory_take(void *cuda, enum way way, bool hold, struct taken *out)
{
	CUdeviceptr held[TRIES];

	memset(out, 0, sizeof(*out));
	if (!is_there(cuda, way)) {
		out->missing = true;
		return;
	}
	while (out->granted < TRIES) {
		out->code = take_one(cuda, way, &held[out->granted]);
		if (out->code != CUDA_SUCCESS)
			break;
		out->granted++;
	}
	for (int i = 0; i < out->granted && !hold; i++)
		give_one(cuda, way, held[i]);
	if (way == WAY_ASYNC)
		empty_pool(cuda);
}
