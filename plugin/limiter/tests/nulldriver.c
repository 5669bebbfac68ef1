/* nulldriver.c - a driver that answers at once and keeps no books: for races, for what a call costs,
 * and for kinds of memory that the simulated driver does not have. One card of 16 GiB. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "../cuda/cuda.h"

#define API __attribute__((visibility("default")))
#define PITCH 256

static uint64_t next_address = 0x7f0000000000;
static __thread CUcontext current;
static int retained;
static char primary;

static uint64_t fresh(void)
{
	return __atomic_add_fetch(&next_address, 0x200000, __ATOMIC_RELAXED);
}

API void null_driver_alone(void)
{
}

API CUresult cuInit(unsigned int flags)
{
	return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuDeviceGetUuid_v2(struct CUuuid *out, CUdevice device)
{
	if (device != 0)
		return 101;
	memset(out->bytes, 0xab, sizeof(out->bytes));
	return CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice device)
{
	*out = 1ull << 34;
	return device == 0 ? CUDA_SUCCESS : 101;
}

API CUresult cuCtxGetCurrent(CUcontext *out)
{
	*out = current;
	return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *out)
{
	*out = 0;
	return current != NULL ? CUDA_SUCCESS : 201;
}

API CUresult cuCtxSetCurrent(CUcontext context)
{
	current = context;
	return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	(void)device;
	*flags = 0;
	*active = retained > 0;
	return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	retained++;
	*out = (CUcontext)&primary;
	return device == 0 ? CUDA_SUCCESS : 101;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	if (retained == 0)
		return 201;
	retained--;
	return device == 0 ? CUDA_SUCCESS : 101;
}

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	retained = 0;
	return device == 0 ? CUDA_SUCCESS : 101;
}

API CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
	(void)flags;
	*out = current = malloc(1);
	return device == 0 ? CUDA_SUCCESS : 101;
}

API CUresult cuCtxDestroy_v2(CUcontext context)
{
	if (current == context)
		current = NULL;
	free(context);
	return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *out, size_t bytes)
{
	if (current == NULL)
		return 201;
	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	*out = fresh();
	return CUDA_SUCCESS;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	return out != NULL ? allocate(out, bytes) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
	return flags == 1 ? allocate(out, bytes) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
				unsigned int element)
{
	(void)element;
	*pitch = (width + PITCH - 1) / PITCH * PITCH;
	return allocate(out, *pitch * height);
}

API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	(void)stream;
	return allocate(out, bytes);
}

API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	(void)stream;
	return allocate(out, bytes);
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
				     CUstream stream)
{
	(void)pool;
	(void)stream;
	return allocate(out, bytes);
}

API CUresult cuMemFree_v2(CUdeviceptr at)
{
	return at != 0xdead ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
	(void)stream;
	return at != 0xdead ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	*free_bytes = *total = 1ull << 34;
	return CUDA_SUCCESS;
}

API CUresult cuArrayCreate_v2(CUarray *out, const struct CUarray_descriptor *wanted)
{
	(void)wanted;
	*out = (CUarray)fresh();
	return CUDA_SUCCESS;
}

API CUresult cuArray3DCreate_v2(CUarray *out, const struct CUarray3d_descriptor *wanted)
{
	(void)wanted;
	*out = (CUarray)fresh();
	return CUDA_SUCCESS;
}

API CUresult cuArrayDestroy(CUarray array)
{
	return array != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const struct CUarray3d_descriptor *wanted,
				    unsigned int levels)
{
	(void)wanted;
	(void)levels;
	*out = (CUmipmappedArray)fresh();
	return CUDA_SUCCESS;
}

API CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	return array != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
			 const struct CUmem_allocation_prop *prop, unsigned long long flags)
{
	(void)bytes;
	(void)prop;
	(void)flags;
	*out = fresh();
	return CUDA_SUCCESS;
}

static uint64_t last_mapped;

API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	return handle != 0xdead ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *at)
{
	(void)at;
	*out = last_mapped;
	return CUDA_SUCCESS;
}

API CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset,
		      CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	(void)at;
	(void)bytes;
	(void)offset;
	(void)flags;
	last_mapped = handle;
	return CUDA_SUCCESS;
}

API CUresult cuMemUnmap(CUdeviceptr at, size_t bytes)
{
	(void)at;
	(void)bytes;
	return CUDA_SUCCESS;
}

/* Arguments of every class, on the stack as well: what a trampoline must leave alone. */
API CUresult cuLaunchKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
			    unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			    CUstream stream, void **params, void **extra)
{
	return function == (void *)1 && gx == 2 && gy == 3 && gz == 4 && bx == 5 && by == 6 &&
	       bz == 7 && shared == 8 && stream == (CUstream)9 && params == (void **)10 &&
	       extra == (void **)11 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuParamSetf(void *function, int offset, float value)
{
	return function == (void *)1 && offset == 2 && value == 2.5f ? CUDA_SUCCESS
								      : CUDA_ERROR_INVALID_VALUE;
}

/* A form that is exported under no name. */
static CUresult hidden_alloc(CUdeviceptr *out, size_t bytes, int what)
{
	(void)what;
	return allocate(out, bytes);
}

API CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags,
				 int *status)
{
	*out = NULL;
	*status = 0;
	if (strcmp(symbol, "cuMemAlloc") == 0)
		*out = version > 99000 ? (void *)&hidden_alloc : (void *)&cuMemAlloc_v2;
	else if (strcmp(symbol, "cuMemAllocAsync") == 0)
		*out = flags == 2 ? (void *)&cuMemAllocAsync_ptsz : (void *)&cuMemAllocAsync;
	else if (strcmp(symbol, "cuCtxSetCurrent") == 0)
		*out = (void *)&cuCtxSetCurrent;
	else
		*status = 1;
	return CUDA_SUCCESS;
}
