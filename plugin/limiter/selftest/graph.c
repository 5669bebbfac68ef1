/* graph.c - a graph with one node that takes memory (CUDA 11.4 and newer). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "hooks.h"
#include "selftest.h"

CUresult cuGraphCreate(CUgraph *out, unsigned int flags);
CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
				struct CUmem_alloc_node *params);
CUresult cuGraphDestroy(CUgraph graph);

#define CU(name) ((__typeof__(&name))dlsym(cuda, #name))

static const struct CUmem_pool_props on_card = { .type = CU_MEM_ALLOCATION_PINNED,
						 .location = { CU_MEM_LOCATION_DEVICE, 0 } };

/* In CUDA the memory is there once the launch is over, and stays when the graph ends. */
static CUresult launch(void *cuda, struct graph_memory *out)
{
	struct CUmem_alloc_node params = { .props = on_card, .bytes = EACH };
	CUgraphNode node;
	CUresult ret = CU(cuGraphAddMemAllocNode)(&node, out->graph, NULL, 0, &params);

	out->at = params.at;
	if (ret == CUDA_SUCCESS)
		ret = CU(cuGraphInstantiateWithFlags)(&out->exec, out->graph, 0);
	if (ret == CUDA_SUCCESS)
		ret = CU(cuGraphLaunch)(out->exec, NULL);
	return ret == CUDA_SUCCESS ? CU(cuStreamSynchronize)(NULL) : ret;
}

static void end(void *cuda, const struct graph_memory *memory)
{
	if (memory->exec != NULL)
		CU(cuGraphExecDestroy)(memory->exec);
	CU(cuGraphDestroy)(memory->graph);
}

CUresult graph_take(void *cuda, struct graph_memory *out)
{
	CUresult ret;

	memset(out, 0, sizeof(*out));
	ret = CU(cuGraphCreate)(&out->graph, 0);
	if (ret != CUDA_SUCCESS)
		return ret;
	ret = launch(cuda, out);
	if (ret != CUDA_SUCCESS)
		end(cuda, out);
	return ret;
}

void graph_give(void *cuda, const struct graph_memory *memory)
{
	CU(cuMemFree_v2)(memory->at);
	end(cuda, memory);
}
