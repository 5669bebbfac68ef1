/* nullobjects.c - more of the driver that answers at once: graphs that are one allocation each, and what may
 * keep memory that its program has released, and the oldest forms, of 32 bits. With KERNEL_MS each launch, by whatever function, takes the card so
 * long. */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "../cuda/cuda.h"

#define API __attribute__((visibility("default")))
#define GRAPH_BYTES (1 << 20)

/* Every one is that of nulldriver.c's cuLaunchKernel, and needs little. */
API CUresult cuModuleGetFunction(void **out, CUmodule module, const char *name)
{
	*out = (void *)1;
	return module != NULL && name != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuFuncGetAttribute(int *out, int which, void *function)
{
	*out = 0;
	return which >= 0 && function != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	(void)flags;
	*out = malloc(1);
	return graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	free(exec);
	return CUDA_SUCCESS;
}

API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	if (nodes != NULL)
		nodes[0] = (CUgraphNode)graph;
	*count = 1;
	return CUDA_SUCCESS;
}

API CUresult cuGraphNodeGetType(CUgraphNode node, int *type)
{
	*type = CU_GRAPH_NODE_ALLOC;
	return node != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A graph's handle is its device, and 1. */
API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, struct CUmem_alloc_node *out)
{
	*out = (struct CUmem_alloc_node){ .at = 1ull << 40, .bytes = GRAPH_BYTES };
	out->props.location = (struct CUmem_location){ CU_MEM_LOCATION_DEVICE, (int)(uintptr_t)node - 1 };
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int which, void *out)
{
	(void)device;
	(void)which;
	*(uint64_t *)out = 0;
	return CUDA_SUCCESS;
}

#ifdef KERNEL_MS
static CUresult run(unsigned int kernels);
#else
static CUresult run(unsigned int kernels)
{
	return kernels == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
#endif

API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	(void)stream;
	return exec != NULL ? run(1) : CUDA_ERROR_INVALID_VALUE;
}

/* Loaded into no context, until something of it is asked for. */
API CUresult cuLibraryLoadData(CUlibrary *out, const void *code, int *jit, void **jit_values, unsigned int jit_count,
			       int *options, void **values, unsigned int number)
{
	(void)jit;
	(void)jit_values;
	(void)options;
	(void)values;
	*out = malloc(1);
	return code != NULL && jit_count + number == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuLibraryGetModule(CUmodule *out, CUlibrary library)
{
	*out = (CUmodule)library;
	return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr at)
{
	*base = at;
	*bytes = 1;
	return CUDA_SUCCESS;
}

/* Whatever is done with the object CROWD waits, for ten seconds at most, until another thread has exported
 * something: as until all devices of a multicast object are added. */
#define CROWD 0xc0de

static int exports;

static CUresult wait_for_others(CUmemGenericAllocationHandle object)
{
	struct timespec pause = { 0, 1000000 };

	for (int i = 0; object == CROWD && __atomic_load_n(&exports, __ATOMIC_SEQ_CST) == 0; i++) {
		if (i == 10000)
			return 999;
		nanosleep(&pause, NULL);
	}
	return object != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
					  unsigned long long flags)
{
	(void)out;
	(void)handle;
	if (type != 1 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	__atomic_add_fetch(&exports, 1, __ATOMIC_SEQ_CST);
	return CUDA_SUCCESS;
}

API CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		      unsigned long long flags)
{
	(void)at;
	(void)bytes;
	(void)offset;
	return flags == 0 ? wait_for_others(handle) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t where, size_t bytes)
{
	(void)object;
	(void)where;
	return device == 0 && bytes != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemGetHandleForAddressRange(void *out, CUdeviceptr at, size_t bytes, int type,
					   unsigned long long flags)
{
	(void)out;
	(void)at;
	(void)bytes;
	return type == 1 && flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t where,
				CUmemGenericAllocationHandle handle, size_t offset, size_t bytes,
				unsigned long long flags)
{
	(void)where;
	(void)handle;
	(void)offset;
	(void)bytes;
	return flags == 0 ? wait_for_others(object) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t where, CUdeviceptr at,
				 size_t bytes, unsigned long long flags)
{
	(void)where;
	(void)at;
	(void)bytes;
	return flags == 0 ? wait_for_others(object) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemMapArrayAsync(struct CUarray_map *list, unsigned int count, CUstream stream)
{
	(void)stream;
	return list != NULL && count > 0 && list[0].flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#ifdef KERNEL_MS
static uint64_t busy_until;		/* ns: one card, one queue */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static CUresult run(unsigned int kernels)
{
	uint64_t now = now_ns();

	busy_until = (busy_until > now ? busy_until : now) + kernels * KERNEL_MS * 1000000ull;
	return CUDA_SUCCESS;
}

API CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	*out = malloc(sizeof(uint64_t));
	return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuEventRecord(CUevent event, CUstream stream)
{
	uint64_t now = now_ns();

	(void)stream;
	*(uint64_t *)event = busy_until > now ? busy_until : now;
	return CUDA_SUCCESS;
}

API CUresult cuEventQuery(CUevent event)
{
	return *(uint64_t *)event > now_ns() ? 600 : CUDA_SUCCESS;
}

API CUresult cuEventElapsedTime(float *out, CUevent from, CUevent to)
{
	*out = (float)(int64_t)(*(uint64_t *)to - *(uint64_t *)from) / 1e6f;
	return cuEventQuery(to);
}

#define LAUNCH(name, ...) API CUresult name(__VA_ARGS__) { return run(1); }
#define GRID unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, \
	unsigned int bz, unsigned int shared
#pragma GCC diagnostic ignored "-Wunused-parameter"

LAUNCH(cuLaunch, void *function)
LAUNCH(cuLaunchGrid, void *function, int width, int height)
LAUNCH(cuLaunchGridAsync, void *function, int width, int height, CUstream stream)
LAUNCH(cuLaunchKernel, void *function, GRID, CUstream stream, void **params, void **extra)
LAUNCH(cuLaunchKernel_ptsz, void *function, GRID, CUstream stream, void **params, void **extra)
LAUNCH(cuLaunchKernelEx, const struct CUlaunch_config *config, void *function, void **params, void **extra)
LAUNCH(cuLaunchKernelEx_ptsz, const struct CUlaunch_config *config, void *function, void **params, void **extra)
LAUNCH(cuLaunchCooperativeKernel, void *function, GRID, CUstream stream, void **params)
LAUNCH(cuLaunchCooperativeKernel_ptsz, void *function, GRID, CUstream stream, void **params)
LAUNCH(cuGraphLaunch_ptsz, CUgraphExec exec, CUstream stream)

API CUresult cuLaunchCooperativeKernelMultiDevice(struct CUlaunch_params *list, unsigned int count,
						  unsigned int flags)
{
	return run(count);
}
#endif

static unsigned int next_low = 0x10000;

static CUresult low(unsigned int *out)
{
	*out = next_low += 0x10000;
	return CUDA_SUCCESS;
}

API CUresult cuMemAlloc(CUdeviceptr_v1 *out, unsigned int bytes)
{
	return bytes != 0 ? low(out) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemAllocPitch(CUdeviceptr_v1 *out, unsigned int *pitch, unsigned int width, unsigned int height,
			     unsigned int element)
{
	*pitch = (width + 255) / 256 * 256;
	return height != 0 && element != 0 ? low(out) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemFree(CUdeviceptr_v1 at)
{
	return at != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* As much as fits: the card has 16 GiB. */
API CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total)
{
	*free_bytes = *total = UINT32_MAX;
	return CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem(unsigned int *out, CUdevice device)
{
	*out = UINT32_MAX;
	return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuArrayCreate(CUarray *out, const struct CUarray_descriptor_v1 *wanted)
{
	*out = malloc(1);		/* until the program ends */
	return wanted->width != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuArray3DCreate(CUarray *out, const struct CUarray3d_descriptor_v1 *wanted)
{
	*out = malloc(1);
	return wanted->width != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
