/* families.c - each kind of memory: counted to the byte, refused over the limit, given back.
 * The limit is 64 MiB and a context takes 4 MiB. */
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

#define LIMIT (64 * MIB)
#define CONTEXT (4 * MIB)
#define LEFT (LIMIT - CONTEXT)
#define OOM CUDA_ERROR_OUT_OF_MEMORY

static void plain(void)
{
	CUdeviceptr at, more;

	MUST(CU(cuMemAlloc_v2)(&at, LEFT + 1) == OOM);
	MUST(CU(cuMemAlloc_v2)(&at, SIZE_MAX) == OOM);
	MUST(CU(cuMemAlloc_v2)(&at, 0) == CUDA_ERROR_INVALID_VALUE);
	MUST(CU(cuMemAlloc_v2)(NULL, 1) == CUDA_ERROR_INVALID_VALUE);
	MUST(CU(cuMemAlloc_v2)(&at, LEFT) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuMemAlloc_v2)(&more, 1) == OOM);
	MUST(CU(cuMemFree_v2)(0xdead) == CUDA_ERROR_INVALID_VALUE && client_free() == 0);
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuMemAllocManaged)(&at, LEFT + 1, 1) == OOM);
	MUST(CU(cuMemAllocManaged)(&at, LEFT, 7) == CUDA_ERROR_INVALID_VALUE && client_free() == LEFT);
	MUST(CU(cuMemAllocManaged)(&at, LEFT, 1) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS && client_free() == LEFT);
}

static void pitched(void)
{
	CUdeviceptr at;
	size_t pitch;

	/* The driver's rows are multiples of 256, the reserve's of 512. */
	MUST(CU(cuMemAllocPitch_v2)(&at, &pitch, 700, 1024, 4) == CUDA_SUCCESS);
	MUST(pitch == 768 && client_free() == LEFT - 768 * 1024);
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuMemAllocPitch_v2)(&at, &pitch, 1024, LEFT / 1024, 4) == CUDA_SUCCESS);
	MUST(client_free() == 0 && CU(cuMemFree_v2)(at) == CUDA_SUCCESS);
	MUST(CU(cuMemAllocPitch_v2)(&at, &pitch, 1024, LEFT / 1024 + 1, 4) == OOM);
	MUST(CU(cuMemAllocPitch_v2)(&at, &pitch, 1ull << 40, 1ull << 23, 4) == OOM);
	MUST(client_free() == LEFT);
}

static void pools(void)
{
	CUmemoryPool card, missing = NULL;
	CUdeviceptr at, more;

	MUST(CU(cuDeviceGetMemPool)(&card, 0) == CUDA_SUCCESS);
	MUST(CU(cuMemAllocAsync)(&at, LEFT, NULL) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuMemAllocFromPoolAsync)(&more, 1, card, NULL) == OOM);
	MUST(CU(cuMemFreeAsync)(at, NULL) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuMemAllocFromPoolAsync)(&at, LEFT, card, NULL) == CUDA_SUCCESS);
	MUST(CU(cuMemAllocAsync)(&more, 1, NULL) == OOM);
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuMemAllocAsync)(&at, 0, NULL) == CUDA_ERROR_INVALID_VALUE);
	MUST(CU(cuMemAllocFromPoolAsync)(&at, 1, missing, NULL) == CUDA_ERROR_INVALID_VALUE);
	/* A form that this driver does not have. */
	MUST(CU(cuMemAllocFromPoolAsync_ptsz)(&at, 1, card, NULL) == CUDA_ERROR_NOT_SUPPORTED);
	MUST(client_free() == LEFT);
}

/* What was not freed outlives its pool; a pool on the host takes nothing of the card. */
static void own_pools(void)
{
	struct CUmem_pool_props props = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };
	CUmemoryPool pool;
	CUdeviceptr at;

	MUST(CU(cuMemPoolCreate)(&pool, NULL) == CUDA_ERROR_INVALID_VALUE);
	MUST(CU(cuMemPoolCreate)(&pool, &props) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuMemAllocFromPoolAsync)(&at, LEFT + 1, pool, NULL) == OOM);
	MUST(CU(cuMemAllocFromPoolAsync)(&at, MIB, pool, NULL) == CUDA_SUCCESS);
	MUST(client_free() == LEFT - MIB && CU(cuMemPoolDestroy)(pool) == CUDA_SUCCESS);
	MUST(client_free() == LEFT - MIB && CU(cuMemFreeAsync)(at, NULL) == CUDA_SUCCESS);
	MUST(client_free() == LEFT);
	props.location.type = 2;
	MUST(CU(cuMemPoolCreate)(&pool, &props) == CUDA_SUCCESS);
	MUST(CU(cuMemAllocFromPoolAsync)(&at, 2 * LIMIT, pool, NULL) == CUDA_SUCCESS);
	MUST(client_free() == LEFT && CU(cuMemPoolDestroy)(pool) == CUDA_SUCCESS);
	MUST(client_free() == LEFT);
}

static void arrays(void)
{
	struct CUarray_descriptor flat = { 1024, 1024, 0x20, 4 };
	struct CUarray3d_descriptor deep = { 256, 256, 16, 0x01, 4, 0 };
	CUmipmappedArray mipmap;
	CUarray array;

	MUST(CU(cuArrayCreate_v2)(&array, &flat) == CUDA_SUCCESS && client_free() == LEFT - 16 * MIB);
	MUST(CU(cuArrayDestroy)(array) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuArray3DCreate_v2)(&array, &deep) == CUDA_SUCCESS && client_free() == LEFT - 4 * MIB);
	MUST(CU(cuArrayDestroy)(array) == CUDA_SUCCESS && client_free() == LEFT);
	flat.height = 4096;
	MUST(CU(cuArrayCreate_v2)(&array, &flat) == OOM);
	deep.flags = CU_ARRAY3D_SPARSE;
	deep.depth = 1 << 20;
	MUST(CU(cuArray3DCreate_v2)(&array, &deep) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuArrayDestroy)(array) == CUDA_SUCCESS && client_free() == LEFT);
	deep = (struct CUarray3d_descriptor){ 1024, 1024, 0, 0x20, 1, 0 };
	MUST(CU(cuMipmappedArrayCreate)(&mipmap, &deep, 3) == CUDA_SUCCESS);
	MUST(client_free() == LEFT - (4 * MIB + MIB + MIB / 4));
	MUST(CU(cuMipmappedArrayDestroy)(mipmap) == CUDA_SUCCESS && client_free() == LEFT);
	deep.width = deep.height = 8192;
	MUST(CU(cuMipmappedArrayCreate)(&mipmap, &deep, 1) == OOM);
}

/* A row of 1 MiB: as many as are left are given, and not one more. */
static void arrays_at_the_limit(void)
{
	struct CUarray_descriptor flat = { MIB / 16, LEFT / MIB, 0x20, 4 };
	struct CUarray3d_descriptor deep = { 1024, 1024, LEFT / MIB, 0x01, 1, 0 };
	CUmipmappedArray mipmap;
	CUarray array;

	MUST(CU(cuArrayCreate_v2)(&array, &flat) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuArrayDestroy)(array) == CUDA_SUCCESS && client_free() == LEFT);
	flat.height++;
	MUST(CU(cuArrayCreate_v2)(&array, &flat) == OOM && client_free() == LEFT);
	MUST(CU(cuArray3DCreate_v2)(&array, &deep) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuArrayDestroy)(array) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuMipmappedArrayCreate)(&mipmap, &deep, 1) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuMipmappedArrayDestroy)(mipmap) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuMipmappedArrayCreate)(&mipmap, &deep, 2) == OOM && client_free() == LEFT);
	deep.depth++;
	MUST(CU(cuArray3DCreate_v2)(&array, &deep) == OOM && client_free() == LEFT);
	MUST(CU(cuMipmappedArrayCreate)(&mipmap, &deep, 1) == OOM && client_free() == LEFT);
}

static void virtual_memory(void)
{
	struct CUmem_allocation_prop card = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };
	struct CUmem_allocation_prop host = { .type = 1, .location = { 2, 0 } };
	CUmemGenericAllocationHandle handle, again;

	MUST(CU(cuMemCreate)(&handle, LEFT + 1, &card, 0) == OOM);
	MUST(CU(cuMemCreate)(&handle, LEFT, &card, 0) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuMemRelease)(0xdead) == CUDA_ERROR_INVALID_VALUE);
	/* Two mappings and a second reference keep the backing after its release. */
	MUST(CU(cuMemMap)(1 << 30, MIB, 0, handle, 0) == CUDA_SUCCESS);
	MUST(CU(cuMemMap)((1 << 30) + MIB, MIB, MIB, handle, 0) == CUDA_SUCCESS);
	MUST(CU(cuMemRetainAllocationHandle)(&again, NULL) == CUDA_SUCCESS && again == handle);
	MUST(CU(cuMemRelease)(handle) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuMemUnmap)(1 << 30, 2 * MIB) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuMemRelease)(handle) == CUDA_SUCCESS && client_free() == LEFT);
	MUST(CU(cuMemCreate)(&handle, 1ull << 40, &host, 0) == CUDA_SUCCESS && client_free() == LEFT);
}

static void contexts(void)
{
	CUcontext own;
	CUdeviceptr at;

	MUST(CU(cuCtxCreate_v2)(&own, 0, 0) == CUDA_SUCCESS && client_free() == LEFT - CONTEXT);
	MUST(CU(cuMemAlloc_v2)(&at, MIB) == CUDA_SUCCESS);
	MUST(CU(cuCtxDestroy_v2)(own) == CUDA_SUCCESS);
	client_start();
	MUST(client_free() == LEFT);
	MUST(CU(cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS && client_free() == LEFT);
	for (int i = 0; i < 3000; i++)
		MUST(CU(cuMemAlloc_v2)(&at, 1024) == CUDA_SUCCESS);
	MUST(client_free() == LEFT - 3000 * 1024);
	MUST(CU(cuDevicePrimaryCtxReset_v2)(0) == CUDA_SUCCESS && client_free() == LIMIT);
	client_start();
	MUST(client_free() == LEFT);
	MUST(CU(cuMemAlloc_v2)(&at, LEFT) == CUDA_SUCCESS);
	MUST(CU(cuCtxCreate_v2)(&own, 0, 0) == OOM);
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS);
}

/* A context ends with its last user. */
static void attached(void)
{
	CUcontext own, same;
	CUdeviceptr at;

	MUST(CU(cuGLCtxCreate_v2)(&own, 0, 0) == CUDA_SUCCESS && client_free() == LEFT - CONTEXT);
	MUST(CU(cuMemAlloc_v2)(&at, MIB) == CUDA_SUCCESS);
	MUST(CU(cuCtxAttach)(&same, 0) == CUDA_SUCCESS && same == own);
	MUST(CU(cuCtxDetach)(own) == CUDA_SUCCESS && client_free() == LEFT - CONTEXT - MIB);
	MUST(CU(cuCtxDetach)(own) == CUDA_SUCCESS);
	client_start();
	MUST(client_free() == LEFT && CU(cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS);
	MUST(CU(cuMemAlloc_v2)(&at, LEFT) == CUDA_SUCCESS);
	MUST(CU(cuGLCtxCreate_v2)(&own, 0, 0) == OOM);
	MUST(CU(cuVDPAUCtxCreate_v2)(&own, 0, 0, 0, NULL) == OOM);
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS);
	MUST(CU(cuVDPAUCtxCreate_v2)(&own, 0, 0, 0, NULL) == CUDA_ERROR_NOT_SUPPORTED);
	MUST(client_free() == LEFT);
}

/* What a program does not ask for is not written, and what it asks for is the limit's. */
static void half_asked(void)
{
	size_t seen = 0;

	MUST(CU(cuMemGetInfo_v2)(&seen, NULL) == CUDA_SUCCESS && seen == LEFT);
	MUST(CU(cuMemGetInfo_v2)(NULL, &seen) == CUDA_SUCCESS && seen == LIMIT);
	MUST(CU(cuMemGetInfo_v2)(NULL, NULL) == CUDA_SUCCESS);
	MUST(CU(cuDeviceTotalMem_v2)(&seen, 0) == CUDA_SUCCESS && seen == LIMIT);
}

static void lookup(void)
{
	void *found;
	int status;

	MUST(CU(cuGetProcAddress_v2)("cuMemAlloc", &found, 12000, 0, NULL) == 0);
	MUST(found == client_symbol("cuMemAlloc_v2"));
	MUST(CU(cuGetProcAddress_v2)("cuMemAlloc", &found, 99010, 0, NULL) == 0 && found == NULL);
	MUST(CU(cuGetProcAddress_v2)("cuMemAlloc", &found, 12000, 0, &status) == 0);
	MUST(found == client_symbol("cuMemAlloc_v2") && status == 0);
	MUST(CU(cuGetProcAddress_v2)("cuMemAllocAsync", &found, 12000, 2, &status) == 0);
	MUST(found == client_symbol("cuMemAllocAsync_ptsz"));
	MUST(CU(cuGetProcAddress_v2)("cuMemAllocAsync", &found, 12000, 0, &status) == 0);
	MUST(found == client_symbol("cuMemAllocAsync"));
	/* A form of ours that is not known is withheld, not passed on. */
	MUST(CU(cuGetProcAddress_v2)("cuMemAlloc", &found, 99010, 0, &status) == 0);
	MUST(found == NULL && status == CU_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	/* What no hook stands for is the driver's own. */
	MUST(CU(cuGetProcAddress_v2)("cuCtxSetCurrent", &found, 12000, 0, &status) == 0);
	MUST(found != NULL && found != client_symbol("cuCtxSetCurrent"));
	MUST(CU(cuGetProcAddress_v2)("cuNothing", &found, 12000, 0, &status) == 0);
	MUST(found == NULL && status == 1);
}

/* A child that the driver lets go on counts beside its parent, with a context of its own, and frees nothing of it. */
static void forked(void)
{
	CUdeviceptr at, own;
	int status;

	MUST(CU(cuMemAlloc_v2)(&at, LEFT - CONTEXT - MIB) == CUDA_SUCCESS);
	if (fork() == 0) {
		MUST(client_free() == MIB);
		MUST(CU(cuMemAlloc_v2)(&own, MIB + 1) == OOM);
		MUST(CU(cuMemAlloc_v2)(&own, MIB) == CUDA_SUCCESS && client_free() == 0);
		MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS && client_free() == 0);
		_exit(0);
	}
	MUST(wait(&status) > 0 && status == 0);
	MUST(CU(cuMemAlloc_v2)(&own, CONTEXT + MIB) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuMemFree_v2)(own) == CUDA_SUCCESS && CU(cuMemFree_v2)(at) == CUDA_SUCCESS);
	MUST(client_free() == LEFT);
}

static void trampolines(void)
{
	for (int i = 0; i < 2; i++) {	/* the first call binds */
		MUST(CU(cuLaunchKernel)((void *)1, 2, 3, 4, 5, 6, 7, 8, (CUstream)9, (void **)10,
					(void **)11) == CUDA_SUCCESS);
		MUST(CU(cuParamSetf)((void *)1, 2, 2.5f) == CUDA_SUCCESS);
	}
}

int main(int argc, char **argv)
{
	client_open(argc > 1 ? argv[1] : "libcuda.so.1");
	client_start();
	plain();
	pitched();
	pools();
	own_pools();
	arrays();
	arrays_at_the_limit();
	virtual_memory();
	contexts();
	attached();
	half_asked();
	lookup();
	trampolines();
	forked();
	return 0;
}
