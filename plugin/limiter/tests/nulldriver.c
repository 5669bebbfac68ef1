/* nulldriver.c - a driver that answers at once and keeps few books: for races, for what a call costs,
 * and for kinds of memory that the simulated driver does not have. One card of 16 GiB, or so many as
 * DEVICES says; with UUID_ERROR it says of none who it is. nullobjects.c has what few tests need. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../cuda/cuda.h"
#include "sanitizer.h"

#define API __attribute__((visibility("default")))
#define PITCH 256
#ifndef DEVICES
#define DEVICES 1
#endif

static uint64_t next_address = 0x7f0000000000;
#ifdef __GLIBC__
/* Static programs that load a library have no __tls_get_addr that works. */
static __thread CUcontext current __attribute__((tls_model("initial-exec")));
#else	/* musl loads no such library */
static __thread CUcontext current;
#endif
static int retained;
static CUdevice primary;		/* a context begins with its device */

static uint64_t fresh(void)
{
	return __atomic_add_fetch(&next_address, 0x200000, __ATOMIC_RELAXED);
}

API void null_driver_alone(void)
{
}

/* What the driver calls in some of its functions, as it does for CUPTI; the program's. */
static void (*call_back)(void) = null_driver_alone;

API void null_driver_calls(void (*function)(void))
{
	call_back = function != NULL ? function : null_driver_alone;
}

API CUresult cuInit(unsigned int flags)
{
	return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuDeviceGetUuid_v2(struct CUuuid *out, CUdevice device)
{
	if (device < 0 || device >= DEVICES)
		return 101;
#ifdef UUID_ERROR
	return UUID_ERROR;
#endif
	memset(out->bytes, device == 0 ? 0xab : device, sizeof(out->bytes));
	return CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice device)
{
	*out = 1ull << 34;
	return device < DEVICES ? CUDA_SUCCESS : 101;
}

API CUresult cuCtxGetCurrent(CUcontext *out)
{
	*out = current;
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetCount(int *out)
{
	*out = DEVICES;
	return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *out)
{
	*out = current != NULL ? *(CUdevice *)current : 0;
	if (current == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	return *out >= 0 ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
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
	call_back();
	retained++;
	*out = (CUcontext)&primary;
	return device == 0 ? CUDA_SUCCESS : 101;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	call_back();
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

static void *dead;			/* the last context that was destroyed: its address comes again */

API CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
	CUdevice *made = sanitizer_exchange(&dead, NULL);

	(void)flags;
	if (made == NULL)
		made = malloc(sizeof(*made));
	*made = device;
	*out = current = (CUcontext)made;
	call_back();			/* as CUPTI is told of a context */
	return device < DEVICES ? CUDA_SUCCESS : 101;
}

/* A context with users: it ends with the last. */
static int users;

API CUresult cuGLCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
	users = 1;
	return cuCtxCreate_v2(out, flags, device);
}

API CUresult cuCtxAttach(CUcontext *out, unsigned int flags)
{
	users++;
	*out = current;
	return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuCtxDetach(CUcontext context)
{
	if (--users == 0) {
		current = NULL;
		free(context);
	}
	return CUDA_SUCCESS;
}

API CUresult cuCtxDestroy_v2(CUcontext context)
{
	if (current == context)
		current = NULL;
	*(CUdevice *)context = -1;
	free(sanitizer_exchange(&dead, context));
	call_back();
	return CUDA_SUCCESS;
}

API uint64_t null_driver_handle;	/* of the next memory, or its address; 0: any */
static CUresult allocate(CUdeviceptr *out, size_t bytes)
{
	if (current == NULL)
		return 201;
	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	*out = null_driver_handle != 0 ? null_driver_handle : fresh();
	return CUDA_SUCCESS;
}

/* An allocation of so much takes until somebody ends the process, or leaves it by siglongjmp. */
#define STUCK ((32ull << 20) + 3)

API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	while (bytes == STUCK)
		pause();
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

/* Pools hold what is used, to the byte. A pointer of theirs has its size in it. */
struct CUmemPoolHandle_st {
	uint64_t used;
};

#define POOLED (1ull << 62)
#define SIZE_BITS 40
#define DEVICE_BIT 48

static struct CUmemPoolHandle_st card_pools[DEVICES], *own_pool;

static CUresult pooled(CUdeviceptr *out, size_t bytes, CUmemoryPool pool)
{
	if (current == NULL || bytes == 0 || bytes >> SIZE_BITS != 0)
		return current == NULL ? 201 : CUDA_ERROR_INVALID_VALUE;
	__atomic_add_fetch(&pool->used, bytes, __ATOMIC_RELAXED);
	*out = POOLED | bytes | (pool == own_pool ? 1ull << 61 : (uint64_t)(pool - card_pools) << DEVICE_BIT);
	return CUDA_SUCCESS;
}

static CUresult give(CUdeviceptr at)
{
	CUmemoryPool pool = (at & (1ull << 61)) != 0 ? own_pool : &card_pools[(at >> DEVICE_BIT) & 0xff];

	if ((at & POOLED) != 0 && pool != NULL)
		__atomic_sub_fetch(&pool->used, at & ((1ull << SIZE_BITS) - 1), __ATOMIC_RELAXED);
	return at != 0xdead ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device)
{
	if (device < 0 || device >= DEVICES)
		return 101;
	*out = &card_pools[device];
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device)
{
	return cuDeviceGetMemPool(out, device);
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int which, void *out)
{
	call_back();
	*(uint64_t *)out = __atomic_load_n(&pool->used, __ATOMIC_RELAXED);
	return which == CU_MEMPOOL_RESERVED || which == CU_MEMPOOL_USED ? CUDA_SUCCESS
									 : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	(void)keep;
	return pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* One beside the card's own. */
API CUresult cuMemPoolCreate(CUmemoryPool *out, const struct CUmem_pool_props *props)
{
	if (props == NULL || own_pool != NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = own_pool = calloc(1, sizeof(*own_pool));
	return CUDA_SUCCESS;
}

API CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	free(pool);
	own_pool = NULL;
	return CUDA_SUCCESS;
}

API CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
	(void)stream;
	*status = 0;
	return CUDA_SUCCESS;
}

API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	(void)stream;
	return pooled(out, bytes, &card_pools[current != NULL ? *(CUdevice *)current : 0]);
}

API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	return cuMemAllocAsync(out, bytes, stream);
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
				     CUstream stream)
{
	(void)stream;
	return pool != NULL ? pooled(out, bytes, pool) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemFree_v2(CUdeviceptr at)
{
	return give(at);
}

API CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
	(void)stream;
	return give(at);
}

/* The image "slow" is one that is compiled first. */
API CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	call_back();
	if (strcmp(image, "slow") == 0)
		sleep(4);
	*out = (CUmodule)fresh();
	return CUDA_SUCCESS;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	if (free_bytes != NULL)
		*free_bytes = 1ull << 34;
	if (total != NULL)
		*total = 1ull << 34;
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
	*out = null_driver_handle != 0 ? null_driver_handle : fresh();
	return CUDA_SUCCESS;
}

#ifndef KERNEL_MS			/* else nullobjects.c has them */
/* Events are over at once, but for while a kernel spins: SPIN begins that, RELEASE ends it. */
#define SPIN ((void *)0x51)
#define RELEASE ((void *)0x52)

static int spinning;

API CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	*out = (CUevent)fresh();
	return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuEventRecord(CUevent event, CUstream stream)
{
	(void)stream;
	return event != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuEventQuery(CUevent event)
{
	(void)event;
	return __atomic_load_n(&spinning, __ATOMIC_SEQ_CST) ? 600 : CUDA_SUCCESS;
}

API CUresult cuEventElapsedTime(float *out, CUevent from, CUevent to)
{
	(void)from;
	*out = 0;
	return cuEventQuery(to);
}

#endif

API CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
	*mode = 0;
	return CUDA_SUCCESS;
}

static uint64_t last_mapped;

API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	call_back();
	return handle != 0xdead ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *at)
{
	(void)at;
	*out = last_mapped;
	return CUDA_SUCCESS;
}

/* nullobjects.c has one that may wait. */
__attribute__((weak)) API CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset,
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
	call_back();
	return CUDA_SUCCESS;
}

#ifndef KERNEL_MS
/* Arguments of every class, on the stack as well: what a trampoline must leave alone. */
API CUresult cuLaunchKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
			    unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			    CUstream stream, void **params, void **extra)
{
	if (function == SPIN || function == RELEASE) {
		__atomic_store_n(&spinning, function == SPIN, __ATOMIC_SEQ_CST);
		return CUDA_SUCCESS;
	}
	return function == (void *)1 && gx == 2 && gy == 3 && gz == 4 && bx == 5 && by == 6 &&
	       bz == 7 && shared == 8 && stream == (CUstream)9 && params == (void **)10 &&
	       extra == (void **)11 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
#endif

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
	int own;

	if (status == NULL)
		status = &own;
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
