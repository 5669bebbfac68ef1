/* uncounted.c - a card that cannot be counted gives nothing: `uncounted DEVICE ANSWER`. The context came past
 * the limiter, as by an export table. */
#include "client.h"

static CUresult answer;			/* to what would take memory */

static void memory(CUdevice device)
{
	struct CUmem_allocation_prop backing = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, device } };
	struct CUmem_pool_props props = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, device } };
	struct CUarray_descriptor flat = { 16, 16, 0x20, 1 };
	struct CUarray3d_descriptor deep = { 16, 16, 16, 0x20, 1, 0 };
	CUmemGenericAllocationHandle handle;
	CUmipmappedArray mipmap;
	CUmemoryPool pool;
	CUmodule module;
	CUdeviceptr at;
	CUarray array;
	size_t pitch;

	MUST(CU(cuMemAlloc_v2)(&at, 1) == answer);
	MUST(CU(cuMemAllocManaged)(&at, 1, 1) == answer);
	MUST(CU(cuMemAllocPitch_v2)(&at, &pitch, 16, 16, 4) == answer);
	MUST(CU(cuMemAllocAsync)(&at, 1, NULL) == answer);
	MUST(CU(cuMemAllocAsync_ptsz)(&at, 1, NULL) == answer);
	MUST(CU(cuMemPoolCreate)(&pool, &props) == CUDA_SUCCESS);
	MUST(CU(cuMemAllocFromPoolAsync)(&at, 1, pool, NULL) == answer);
	MUST(CU(cuMemPoolDestroy)(pool) == CUDA_SUCCESS);
	MUST(CU(cuArrayCreate_v2)(&array, &flat) == answer);
	MUST(CU(cuArray3DCreate_v2)(&array, &deep) == answer);
	MUST(CU(cuMipmappedArrayCreate)(&mipmap, &deep, 1) == answer);
	MUST(CU(cuMemCreate)(&handle, MIB, &backing, 0) == answer);
	MUST(CU(cuModuleLoadData)(&module, "image") == answer);
}

int main(int argc, char **argv)
{
	CUdevice device = argc > 1 ? atoi(argv[1]) : 0;
	size_t free_bytes, total;
	CUgraphExec exec;
	CUlibrary library;
	CUmodule module;
	CUcontext own;

	answer = argc > 2 ? atoi(argv[2]) : CUDA_ERROR_OUT_OF_MEMORY;
	client_open("libcuda.so.1");
	MUST(CU(cuInit)(0) == CUDA_SUCCESS);
	for (CUdevice one = 0; one < device; one++)
		CU(cuDeviceTotalMem_v2)(&total, one);
	MUST(CU(cuCtxCreate_v2)(&own, 0, device) == answer);
	MUST(CU(cuLibraryLoadData)(&library, "code", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
	MUST(CU(cuCtxSetCurrent)((CUcontext)&device) == CUDA_SUCCESS);
	memory(device);
	MUST(CU(cuLibraryGetModule)(&module, library) == answer);
	MUST(CU(cuGraphInstantiateWithFlags)(&exec, (CUgraph)((uintptr_t)device + 1), 0) == answer);
	MUST(CU(cuMemGetInfo_v2)(&free_bytes, &total) == CUDA_SUCCESS && free_bytes == 0 && total == 0);
	MUST(CU(cuCtxCreate_v2)(&own, 0, 10000) == CUDA_ERROR_INVALID_DEVICE);	/* the driver's own word */
	return 0;
}
