/* memory.c - card memory in each way, a little of each, and given back. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "hooks.h"
#include "selftest.h"

CUresult cuMemGetAllocationGranularity(size_t *out, const struct CUmem_allocation_prop *prop, int which);

#define CU(name) ((__typeof__(&name))dlsym(cuda, #name))

static const struct CUmem_allocation_prop on_card = { .type = CU_MEM_ALLOCATION_PINNED,
						      .location = { CU_MEM_LOCATION_DEVICE, 0 } };

struct piece {
	CUdeviceptr at;
	struct graph_memory graph;
};

static CUresult take_virtual(void *cuda, CUdeviceptr *out)
{
	size_t step = 0;
	CUresult ret = CU(cuMemGetAllocationGranularity)(&step, &on_card, 0);

	if (ret != CUDA_SUCCESS || step == 0)
		return ret != CUDA_SUCCESS ? ret : CUDA_ERROR_NOT_SUPPORTED;
	return CU(cuMemCreate)(out, (EACH + step - 1) / step * step, &on_card, 0);
}

static CUresult take_one(void *cuda, enum way way, struct piece *out)
{
	switch (way) {
	case WAY_PLAIN:
		return CU(cuMemAlloc_v2)(&out->at, EACH);
	case WAY_MANAGED:
		return CU(cuMemAllocManaged)(&out->at, EACH, 1);
	case WAY_ASYNC:
		return CU(cuMemAllocAsync)(&out->at, EACH, NULL);
	case WAY_VIRTUAL:
		return take_virtual(cuda, &out->at);
	case WAY_LOOKUP:
	case WAY_LOOKUP_V2:
		return lookup_take(cuda, way, &out->at);
	default:
		return graph_take(cuda, &out->graph);
	}
}

static void give_one(void *cuda, enum way way, const struct piece *piece)
{
	switch (way) {
	case WAY_PLAIN:
	case WAY_MANAGED:
	case WAY_LOOKUP:
	case WAY_LOOKUP_V2:
		CU(cuMemFree_v2)(piece->at);
		break;
	case WAY_ASYNC:
		CU(cuMemFreeAsync)(piece->at, NULL);
		break;
	case WAY_VIRTUAL:
		CU(cuMemRelease)(piece->at);
		break;
	default:
		graph_give(cuda, &piece->graph);
	}
}

/* What a pool or graphs keep would count against what comes next. */
static void empty(void *cuda, enum way way)
{
	CUmemoryPool pool;

	CU(cuStreamSynchronize)(NULL);
	if (way == WAY_GRAPH)
		CU(cuDeviceGraphMemTrim)(0);
	else if (CU(cuDeviceGetDefaultMemPool)(&pool, 0) == CUDA_SUCCESS)
		CU(cuMemPoolTrimTo)(pool, 0);
}

static bool is_there(void *cuda, enum way way)
{
	static const char *const needed[WAYS][9] = {
		{ "cuMemAlloc_v2", "cuMemFree_v2" },
		{ "cuMemAllocManaged", "cuMemFree_v2" },
		{ "cuMemAllocAsync", "cuMemFreeAsync", "cuDeviceGetDefaultMemPool", "cuMemPoolTrimTo" },
		{ "cuMemCreate", "cuMemRelease", "cuMemGetAllocationGranularity" },
		{ "cuGraphCreate", "cuGraphAddMemAllocNode", "cuGraphInstantiateWithFlags", "cuGraphLaunch",
		  "cuGraphExecDestroy", "cuGraphDestroy", "cuMemFree_v2", "cuDeviceGraphMemTrim" },
		{ "cuGetProcAddress", "cuMemFree_v2" },
		{ "cuGetProcAddress_v2", "cuMemFree_v2" },
	};

	for (int i = 0; needed[way][i] != NULL; i++)
		if (dlsym(cuda, needed[way][i]) == NULL)
			return false;
	return true;
}

void memory_take(void *cuda, enum way way, bool hold, struct taken *out)
{
	struct piece held[TRIES];

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
		give_one(cuda, way, &held[i]);
	if (way == WAY_ASYNC || way == WAY_GRAPH)
		empty(cuda, way);
}
