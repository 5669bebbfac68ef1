/* escapes.c - ways to take card memory, each until it is refused: `escapes WAY...`, or all of them.
 *
 * It says that it is ready and waits for a line. For each way it prints "WAY COUNT" and waits for a line; then it gives all back, prints "WAY back" and
 * waits again. Each take is of 64 MiB, as far as the way lets one choose. */
#include <string.h>

#include "client.h"

#define EACH (64 * MIB)
#define TAKES_MAX 4096

struct description;
struct resource {			/* CUdevResource */
	unsigned char bytes[144];
};

struct node_params {			/* CUgraphNodeParams */
	int kind, reserved[3];
	struct CUmem_alloc_node alloc;
	unsigned char rest[120];
};

_Static_assert(sizeof(struct node_params) == 256, "as in cuda.h");

CUresult cuStreamCreate(CUstream *out, unsigned int flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *out);
CUresult cuGraphCreate(CUgraph *out, unsigned int flags);
CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after,
				size_t count, struct CUmem_alloc_node *params);
CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after,
			       size_t count, CUdeviceptr at);
CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *after,
			   const void *edges, size_t count, struct node_params *params);
CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after,
				  size_t count, CUgraph child);
CUresult cuLibraryEnumerateKernels(CUkernel *out, unsigned int count, CUlibrary library);
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool);
CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t align, CUdeviceptr at,
			     unsigned long long flags);
CUresult cuDeviceGetDevResource(CUdevice device, struct resource *out, int type);
CUresult cuDevResourceGenerateDesc(void **out, struct resource *resources, unsigned int count);

static const struct CUmem_pool_props props = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };

/* What is held: a pointer or handle, and who frees it. */
static CUdeviceptr held[TAKES_MAX], range;
static int takes;
static CUmemoryPool own_pool;
static CUstream own_stream;

static CUresult plain(void)
{
	return CU(cuMemAlloc_v2)(&held[takes], EACH);
}

static CUresult looked_up(void)
{
	void *found = NULL;
	int status;

	MUST(CU(cuGetProcAddress_v2)("cuMemAlloc", &found, 12000, 0, &status) == 0 && found != NULL);
	return ((__typeof__(&cuMemAlloc_v2))found)(&held[takes], EACH);
}

static CUresult pitched(void)
{
	size_t pitch;

	return CU(cuMemAllocPitch_v2)(&held[takes], &pitch, 4000, EACH / 4096, 4);
}

static CUresult managed(void)
{
	return CU(cuMemAllocManaged)(&held[takes], EACH, 1);
}

static CUresult async(void)
{
	return CU(cuMemAllocAsync)(&held[takes], EACH, NULL);
}

static CUresult async_per_thread(void)
{
	return CU(cuMemAllocAsync_ptsz)(&held[takes], EACH, NULL);
}

/* With a stream of its own a program needs no current context. */
static CUresult async_without_context(void)
{
	CUcontext context;
	CUresult ret;

	if (takes == 0)
		MUST(CU(cuStreamCreate)(&own_stream, 1) == CUDA_SUCCESS);
	MUST(CU(cuCtxPopCurrent_v2)(&context) == CUDA_SUCCESS);
	ret = CU(cuMemAllocAsync)(&held[takes], EACH, own_stream);
	MUST(CU(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS);
	return ret;
}

static CUresult own_pool_current(void)
{
	if (takes == 0) {
		MUST(CU(cuMemPoolCreate)(&own_pool, &props) == CUDA_SUCCESS);
		MUST(CU(cuDeviceSetMemPool)(0, own_pool) == CUDA_SUCCESS);
	}
	return CU(cuMemAllocAsync)(&held[takes], EACH, NULL);
}

static CUresult from_pool(void)
{
	if (takes == 0)
		MUST(CU(cuMemPoolCreate)(&own_pool, &props) == CUDA_SUCCESS);
	return CU(cuMemAllocFromPoolAsync)(&held[takes], EACH, own_pool, NULL);
}

/* The pool keeps 512 MiB that nothing uses; all else is to be had by others. */
static CUresult kept(void)
{
	static uint64_t most = UINT64_MAX;
	CUdeviceptr at;

	if (takes == 0) {
		MUST(CU(cuMemPoolCreate)(&own_pool, &props) == CUDA_SUCCESS);
		MUST(CU(cuMemPoolSetAttribute)(own_pool, 4, &most) == CUDA_SUCCESS);
		if (CU(cuMemAllocFromPoolAsync)(&at, 4 * EACH, own_pool, NULL) == CUDA_SUCCESS)
			MUST(CU(cuMemFreeAsync)(at, NULL) == CUDA_SUCCESS);
		MUST(CU(cuStreamSynchronize)(NULL) == CUDA_SUCCESS);
	}
	return plain();
}

static CUresult of_destroyed_pools(void)
{
	CUmemoryPool pool;
	CUresult ret;

	MUST(CU(cuMemPoolCreate)(&pool, &props) == CUDA_SUCCESS);
	ret = CU(cuMemAllocFromPoolAsync)(&held[takes], EACH, pool, NULL);
	MUST(CU(cuMemPoolDestroy)(pool) == CUDA_SUCCESS);
	return ret;
}

static CUresult of_destroyed_contexts(void)
{
	CUcontext context, before;
	CUresult ret;

	MUST(CU(cuCtxGetCurrent)(&before) == CUDA_SUCCESS);
	ret = CU(cuCtxCreate_v2)(&context, 0, 0);
	if (ret != CUDA_SUCCESS)
		return ret;
	ret = CU(cuMemAllocAsync)(&held[takes], EACH, NULL);
	MUST(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
	MUST(CU(cuCtxSetCurrent)(before) == CUDA_SUCCESS);
	return ret;
}

static CUresult array(void)
{
	struct CUarray_descriptor wanted = { 2048, 2048, 0x20, 4 };

	return CU(cuArrayCreate_v2)((CUarray *)&held[takes], &wanted);
}

static CUresult deep_array(void)
{
	struct CUarray3d_descriptor wanted = { 256, 256, 256, 0x20, 1, 0 };

	return CU(cuArray3DCreate_v2)((CUarray *)&held[takes], &wanted);
}

static CUresult mipmap(void)
{
	struct CUarray3d_descriptor wanted = { 2048, 2048, 0, 0x20, 4, 0 };

	return CU(cuMipmappedArrayCreate)((CUmipmappedArray *)&held[takes], &wanted, 1);
}

static const struct CUmem_allocation_prop on_card = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };

static CUresult backing(void)
{
	return CU(cuMemCreate)(&held[takes], EACH, &on_card, 0);
}

/* Released, and held by its mapping alone. */
static CUresult mapped(void)
{
	CUmemGenericAllocationHandle handle;
	CUresult ret;

	if (range == 0)
		MUST(CU(cuMemAddressReserve)(&range, 1ull << 40, 0, 0, 0) == CUDA_SUCCESS);
	ret = CU(cuMemCreate)(&handle, EACH, &on_card, 0);
	if (ret != CUDA_SUCCESS)
		return ret;
	held[takes] = range + (uint64_t)takes * EACH;
	MUST(CU(cuMemMap)(held[takes], EACH, 0, handle, 0) == CUDA_SUCCESS);
	MUST(CU(cuMemRelease)(handle) == CUDA_SUCCESS);
	return CUDA_SUCCESS;
}

static CUresult launched(CUgraph graph)
{
	CUgraphExec exec;

	MUST(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0) == CUDA_SUCCESS);
	return CU(cuGraphLaunch)(exec, NULL);
}

static CUgraph graph_with_node(CUdeviceptr *at)
{
	struct CUmem_alloc_node params = { .props = props, .bytes = EACH };
	CUgraphNode node;
	CUgraph graph;

	MUST(CU(cuGraphCreate)(&graph, 0) == CUDA_SUCCESS);
	MUST(CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &params) == CUDA_SUCCESS);
	*at = params.at;
	return graph;
}

static CUresult graph_node(void)
{
	return launched(graph_with_node(&held[takes]));
}

static CUresult graph_node_any(void)
{
	struct node_params params = { .kind = CU_GRAPH_NODE_ALLOC, .alloc = { .props = props, .bytes = EACH } };
	CUgraphNode node;
	CUgraph graph;

	MUST(CU(cuGraphCreate)(&graph, 0) == CUDA_SUCCESS);
	MUST(CU(cuGraphAddNode_v2)(&node, graph, NULL, NULL, 0, &params) == CUDA_SUCCESS);
	held[takes] = params.alloc.at;
	return launched(graph);
}

static CUresult child_graph(void)
{
	CUgraphNode node;
	CUgraph graph;

	MUST(CU(cuGraphCreate)(&graph, 0) == CUDA_SUCCESS);
	MUST(CU(cuGraphAddChildGraphNode)(&node, graph, NULL, 0, graph_with_node(&held[takes])) == CUDA_SUCCESS);
	return launched(graph);
}

static CUresult captured(void)
{
	CUstream stream;
	CUgraph graph;

	MUST(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
	MUST(CU(cuStreamBeginCapture_v2)(stream, 0) == CUDA_SUCCESS);
	MUST(CU(cuMemAllocAsync)(&held[takes], EACH, stream) == CUDA_SUCCESS);
	MUST(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
	MUST(CU(cuStreamDestroy_v2)(stream) == CUDA_SUCCESS);
	return launched(graph);
}

static CUresult module(void)
{
	return CU(cuModuleLoadData)((CUmodule *)&held[takes], "image");
}

static CUresult library(void)
{
	CUkernel kernel;

	MUST(CU(cuLibraryLoadData)((CUlibrary *)&held[takes], "image", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
	return CU(cuLibraryGetKernel)(&kernel, (CUlibrary)held[takes], "kernel");
}

/* Without a call by a kernel's name. */
static CUresult enumerated(void)
{
	CUkernel kernel;
	void *function;

	MUST(CU(cuLibraryLoadData)((CUlibrary *)&held[takes], "image", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
	MUST(CU(cuLibraryEnumerateKernels)(&kernel, 1, (CUlibrary)held[takes]) == CUDA_SUCCESS);
	return CU(cuKernelGetFunction)(&function, kernel);
}

/* The program keeps each library whose kernel it did not get, and tries the next one. */
static CUresult library_again(void)
{
	static int refused;
	CUresult ret = library();

	refused = takes == 0 ? 0 : refused;
	if (ret != CUDA_ERROR_OUT_OF_MEMORY || refused == 20)
		return ret;
	refused++;
	return CUDA_SUCCESS;
}

static CUresult context(void)
{
	CUcontext before;
	CUresult ret;

	MUST(CU(cuCtxGetCurrent)(&before) == CUDA_SUCCESS);
	ret = CU(cuCtxCreate_v2)((CUcontext *)&held[takes], 0, 0);
	MUST(CU(cuCtxSetCurrent)(before) == CUDA_SUCCESS);
	return ret;
}

static CUresult green_context(void)
{
	struct resource whole;
	void *description;

	MUST(CU(cuDeviceGetDevResource)(0, &whole, 1) == CUDA_SUCCESS);
	MUST(CU(cuDevResourceGenerateDesc)(&description, &whole, 1) == CUDA_SUCCESS);
	return CU(cuGreenCtxCreate)((CUgreenCtx *)&held[takes], description, 0, 1);
}

/* Each larger by a step than it was. */
static CUresult larger(int which, uint64_t step)
{
	size_t now;

	MUST(CU(cuCtxGetLimit)(&now, which) == CUDA_SUCCESS);
	held[takes] = now;
	return CU(cuCtxSetLimit)(which, now + step);
}

static CUresult heap(void)
{
	return larger(CU_LIMIT_HEAP, EACH);
}

static CUresult printf_buffer(void)
{
	return larger(CU_LIMIT_PRINTF, EACH);
}

static CUresult stacks(void)
{
	return larger(CU_LIMIT_STACK, 1600);	/* of 40960 threads */
}

static void free_memory(uint64_t at)
{
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS);
}

static void free_async(uint64_t at)
{
	MUST(CU(cuMemFreeAsync)(at, NULL) == CUDA_SUCCESS);
}

static void free_array(uint64_t at)
{
	MUST(CU(cuArrayDestroy)((CUarray)at) == CUDA_SUCCESS);
}

static void free_mipmap(uint64_t at)
{
	MUST(CU(cuMipmappedArrayDestroy)((CUmipmappedArray)at) == CUDA_SUCCESS);
}

static void free_backing(uint64_t at)
{
	MUST(CU(cuMemRelease)(at) == CUDA_SUCCESS);
}

static void free_mapped(uint64_t at)
{
	MUST(CU(cuMemUnmap)(at, EACH) == CUDA_SUCCESS);
}

static void free_module(uint64_t at)
{
	MUST(CU(cuModuleUnload)((CUmodule)at) == CUDA_SUCCESS);
}

static void free_library(uint64_t at)
{
	MUST(CU(cuLibraryUnload)((CUlibrary)at) == CUDA_SUCCESS);
}

static void free_context(uint64_t at)
{
	MUST(CU(cuCtxDestroy_v2)((CUcontext)at) == CUDA_SUCCESS);
}

static void free_green(uint64_t at)
{
	MUST(CU(cuGreenCtxDestroy)((CUgreenCtx)at) == CUDA_SUCCESS);
}

static void free_heap(uint64_t before)
{
	MUST(CU(cuCtxSetLimit)(CU_LIMIT_HEAP, before) == CUDA_SUCCESS);
}

static void free_printf(uint64_t before)
{
	MUST(CU(cuCtxSetLimit)(CU_LIMIT_PRINTF, before) == CUDA_SUCCESS);
}

static void free_stacks(uint64_t before)
{
	MUST(CU(cuCtxSetLimit)(CU_LIMIT_STACK, before) == CUDA_SUCCESS);
}

static const struct way {
	const char *name;
	CUresult (*take)(void);
	void (*give)(uint64_t what);
} ways[] = {
	{ "plain", plain, free_memory },
	{ "looked_up", looked_up, free_memory },
	{ "pitched", pitched, free_memory },
	{ "managed", managed, free_memory },
	{ "async", async, free_async },
	{ "async_per_thread", async_per_thread, free_async },
	{ "async_without_context", async_without_context, free_async },
	{ "own_pool_current", own_pool_current, free_async },
	{ "from_pool", from_pool, free_async },
	{ "kept", kept, free_memory },
	{ "of_destroyed_pools", of_destroyed_pools, free_async },
	{ "of_destroyed_contexts", of_destroyed_contexts, free_async },
	{ "array", array, free_array },
	{ "deep_array", deep_array, free_array },
	{ "mipmap", mipmap, free_mipmap },
	{ "backing", backing, free_backing },
	{ "mapped", mapped, free_mapped },
	{ "graph_node", graph_node, free_memory },
	{ "graph_node_any", graph_node_any, free_memory },
	{ "child_graph", child_graph, free_memory },
	{ "captured", captured, free_async },
	{ "module", module, free_module },
	{ "library", library, free_library },
	{ "enumerated", enumerated, free_library },
	{ "library_again", library_again, free_library },
	{ "context", context, free_context },
	{ "green_context", green_context, free_green },
	{ "heap", heap, free_heap },
	{ "printf_buffer", printf_buffer, free_printf },
	{ "stacks", stacks, free_stacks },
};

static void wait_line(void)
{
	char line[16];

	fflush(stdout);
	if (fgets(line, sizeof(line), stdin) == NULL)
		exit(3);
}

static void run(const struct way *way)
{
	CUresult ret = CUDA_SUCCESS;

	for (takes = 0; takes < TAKES_MAX; takes++) {
		ret = way->take();
		if (ret != CUDA_SUCCESS)
			break;
	}
	MUST(ret == CUDA_ERROR_OUT_OF_MEMORY);
	printf("%s %d\n", way->name, takes);
	wait_line();
	if (way->give == free_library)
		free_library(held[takes]);	/* it was loaded, and its kernel not to be had */
	while (takes > 0)
		way->give(held[--takes]);
	if (own_pool != NULL)
		MUST(CU(cuMemPoolDestroy)(own_pool) == CUDA_SUCCESS);
	own_pool = NULL;
	MUST(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
	MUST(CU(cuDeviceGraphMemTrim)(0) == CUDA_SUCCESS);
	printf("%s back\n", way->name);
	wait_line();
}

int main(int argc, char **argv)
{
	client_open("libcuda.so.1");
	client_start();
	puts("ready 0");
	wait_line();
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		int wanted = argc < 2;

		for (int a = 1; a < argc; a++)
			wanted |= strcmp(argv[a], ways[i].name) == 0;
		if (wanted)
			run(&ways[i]);
	}
	return 0;
}
