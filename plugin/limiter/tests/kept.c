/* kept.c - what pools and graphs hold between uses, on the simulated driver: counted, used again where
 * the driver can, and given up before anything is refused. The limit is 1024 MiB, a context 100. */
#include "client.h"

#define LEFT (924 * MIB)
#define OOM CUDA_ERROR_OUT_OF_MEMORY

CUresult cuStreamCreate(CUstream *out, unsigned int flags);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *out);
CUresult cuGraphCreate(CUgraph *out, unsigned int flags);
CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after,
				size_t count, struct CUmem_alloc_node *params);
CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after,
			       size_t count, CUdeviceptr at);

static void synchronise(void)
{
	MUST(CU(cuStreamSynchronize)(NULL) == CUDA_SUCCESS);
}

static void pools(void)
{
	uint64_t all = UINT64_MAX, none = 0;
	CUmemoryPool pool;
	CUdeviceptr at;

	MUST(CU(cuDeviceGetDefaultMemPool)(&pool, 0) == CUDA_SUCCESS);
	MUST(CU(cuMemAllocAsync)(&at, LEFT + 1, NULL) == OOM && client_free() == LEFT);
	MUST(CU(cuMemAllocAsync)(&at, LEFT, NULL) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuMemFreeAsync)(at, NULL) == CUDA_SUCCESS && client_free() == 0);
	synchronise();
	MUST(client_free() == LEFT);
	/* Under its threshold it keeps them, and uses them again. */
	MUST(CU(cuMemPoolSetAttribute)(pool, 4, &all) == CUDA_SUCCESS);
	MUST(CU(cuMemAllocAsync)(&at, 600 * MIB, NULL) == CUDA_SUCCESS);
	MUST(CU(cuMemFreeAsync)(at, NULL) == CUDA_SUCCESS);
	synchronise();
	MUST(client_free() == LEFT - 600 * MIB);
	MUST(CU(cuMemAllocAsync)(&at, 900 * MIB, NULL) == CUDA_SUCCESS);
	MUST(client_free() == LEFT - 900 * MIB && CU(cuMemFreeAsync)(at, NULL) == CUDA_SUCCESS);
	/* Before anything else is refused it gives them up. */
	MUST(CU(cuMemAlloc_v2)(&at, LEFT) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuMemAllocAsync)(&at, 3 * MIB, NULL) == CUDA_SUCCESS);
	MUST(client_free() == LEFT - 4 * MIB);	/* its steps are of 2 MiB */
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS);
	MUST(CU(cuMemPoolTrimTo)(pool, 0) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuMemPoolSetAttribute)(pool, 4, &none) == CUDA_SUCCESS);
}

static CUgraphExec executable(uint64_t bytes, int frees, CUdeviceptr *at)
{
	struct CUmem_alloc_node params = { .props = { .type = 1, .location = { 1, 0 } }, .bytes = bytes };
	CUgraphNode node, last;
	CUgraphExec exec;
	CUgraph graph;

	MUST(CU(cuGraphCreate)(&graph, 0) == CUDA_SUCCESS);
	MUST(CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &params) == CUDA_SUCCESS);
	if (frees)
		MUST(CU(cuGraphAddMemFreeNode)(&last, graph, &node, 1, params.at) == CUDA_SUCCESS);
	MUST(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0) == CUDA_SUCCESS);
	*at = params.at;
	return exec;
}

static void trim(void)
{
	MUST(CU(cuDeviceGraphMemTrim)(0) == CUDA_SUCCESS && client_free() == LEFT);
}

static void graphs_that_free(void)
{
	CUdeviceptr at;
	CUgraphExec small = executable(600 * MIB, 1, &at), large = executable(900 * MIB, 1, &at);
	CUgraphExec exact = executable(LEFT, 1, &at), over = executable(LEFT + 1, 1, &at);
	CUstream other;

	MUST(client_free() == LEFT);
	MUST(CU(cuGraphLaunch)(over, NULL) == OOM && client_free() == LEFT);
	MUST(CU(cuGraphLaunch)(exact, NULL) == CUDA_SUCCESS && client_free() == 0);
	trim();
	for (int i = 0; i < 4; i++)	/* of what it freed itself */
		MUST(CU(cuGraphLaunch)(small, NULL) == CUDA_SUCCESS && client_free() == LEFT - 600 * MIB);
	MUST(CU(cuGraphLaunch)(large, NULL) == CUDA_SUCCESS && client_free() == LEFT - 900 * MIB);
	/* On another stream it could run beside them: all that is unused goes first. */
	MUST(CU(cuStreamCreate)(&other, 1) == CUDA_SUCCESS);
	MUST(CU(cuGraphLaunch)(small, other) == CUDA_SUCCESS && client_free() == LEFT - 600 * MIB);
	MUST(CU(cuMemAlloc_v2)(&at, LEFT) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuGraphLaunch)(small, NULL) == OOM && CU(cuMemFree_v2)(at) == CUDA_SUCCESS);
	MUST(CU(cuGraphExecDestroy)(small) == CUDA_SUCCESS);
	MUST(CU(cuGraphExecDestroy)(large) == CUDA_SUCCESS);
	trim();
}

static void graphs_that_do_not(void)
{
	CUdeviceptr first_at, second_at;
	CUgraphExec first = executable(500 * MIB, 0, &first_at);
	CUgraphExec second = executable(500 * MIB, 0, &second_at);

	MUST(CU(cuGraphLaunch)(first, NULL) == CUDA_SUCCESS && client_free() == LEFT - 500 * MIB);
	MUST(CU(cuGraphLaunch)(second, NULL) == OOM && client_free() == LEFT - 500 * MIB);
	MUST(CU(cuMemFree_v2)(first_at) == CUDA_SUCCESS && client_free() == LEFT - 500 * MIB);
	MUST(CU(cuGraphLaunch)(second, NULL) == CUDA_SUCCESS && client_free() == LEFT - 500 * MIB);
	MUST(CU(cuGraphLaunch)(first, NULL) == OOM);
	MUST(CU(cuMemFreeAsync)(second_at, NULL) == CUDA_SUCCESS);
	trim();
	/* The graph may go before what it took. */
	MUST(CU(cuGraphLaunch)(first, NULL) == CUDA_SUCCESS);
	MUST(CU(cuGraphExecDestroy)(first) == CUDA_SUCCESS && client_free() == LEFT - 500 * MIB);
	MUST(CU(cuMemFree_v2)(first_at) == CUDA_SUCCESS);
	trim();
}

/* In a capture nothing is taken and nothing freed, however much it would be. */
static void captures(void)
{
	CUdeviceptr held, at;
	CUgraphExec exec, child = executable(LEFT, 1, &at);
	CUstream stream;
	CUgraph graph;

	MUST(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
	MUST(CU(cuMemAllocAsync)(&held, LEFT, stream) == CUDA_SUCCESS);
	MUST(CU(cuStreamBeginCapture_v2)(stream, 2) == CUDA_SUCCESS);
	MUST(CU(cuMemAllocAsync)(&at, LEFT, stream) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuMemFreeAsync)(at, stream) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
	MUST(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0) == CUDA_SUCCESS);
	MUST(CU(cuGraphLaunch)(exec, stream) == OOM && client_free() == 0);
	MUST(CU(cuStreamBeginCapture_v2)(stream, 2) == CUDA_SUCCESS);
	MUST(CU(cuGraphLaunch)(child, stream) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
	MUST(CU(cuMemFreeAsync)(held, stream) == CUDA_SUCCESS);
	MUST(CU(cuGraphLaunch)(exec, stream) == CUDA_SUCCESS && client_free() == 0);
	synchronise();
	trim();
}

/* A free that was captured has freed nothing: the memory outlives its pool, and counts. */
static void captured_free(void)
{
	struct CUmem_pool_props props = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };
	CUmemoryPool pool;
	CUstream stream;
	CUdeviceptr at;
	CUgraph graph;

	MUST(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
	MUST(CU(cuMemPoolCreate)(&pool, &props) == CUDA_SUCCESS);
	MUST(CU(cuMemAllocFromPoolAsync)(&at, 8 * MIB, pool, stream) == CUDA_SUCCESS);
	MUST(CU(cuStreamBeginCapture_v2)(stream, 2) == CUDA_SUCCESS);
	MUST(CU(cuMemFreeAsync)(at, stream) == CUDA_SUCCESS);
	MUST(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
	MUST(CU(cuMemPoolDestroy)(pool) == CUDA_SUCCESS && client_free() == LEFT - 8 * MIB);
	MUST(CU(cuMemFreeAsync)(at, stream) == CUDA_SUCCESS && client_free() == LEFT);
}

static void settings(void)
{
	size_t heap, now;

	MUST(CU(cuCtxGetLimit)(&heap, CU_LIMIT_HEAP) == CUDA_SUCCESS);
	MUST(CU(cuCtxSetLimit)(CU_LIMIT_HEAP, heap + LEFT + 1) == OOM && client_free() == LEFT);
	MUST(CU(cuCtxSetLimit)(CU_LIMIT_HEAP, heap + LEFT) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuCtxSetLimit)(CU_LIMIT_HEAP, heap / 2) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuCtxSetLimit)(CU_LIMIT_HEAP, heap) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuCtxGetLimit)(&now, CU_LIMIT_HEAP) == CUDA_SUCCESS && now == heap);
	MUST(CU(cuCtxSetLimit)(CU_LIMIT_STACK, 1024 + 25600) == OOM);
	MUST(CU(cuCtxSetLimit)(99, 1) == CUDA_ERROR_INVALID_VALUE && client_free() == LEFT);
}

int main(void)
{
	client_open("libcuda.so.1");
	client_start();
	pools();
	graphs_that_free();
	graphs_that_do_not();
	captures();
	captured_free();
	settings();
	return 0;
}
