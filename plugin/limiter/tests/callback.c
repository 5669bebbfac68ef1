/* callback.c - the driver calls the program back, which calls the driver: `callback DRIVER`. The limit is 64 MiB and a
 * context takes 4 MiB. */
#define _GNU_SOURCE
#include <unistd.h>

#include "client.h"

static int depth, deepest;

static void one_of_each(void)
{
	struct CUmem_allocation_prop card = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };
	CUmemGenericAllocationHandle handle;
	CUcontext context;
	CUmodule module;
	CUdeviceptr at;

	MUST(CU(cuMemCreate)(&handle, MIB, &card, 0) == CUDA_SUCCESS && CU(cuMemRelease)(handle) == CUDA_SUCCESS);
	MUST(CU(cuMemAllocAsync)(&at, MIB, NULL) == CUDA_SUCCESS && CU(cuMemFreeAsync)(at, NULL) == CUDA_SUCCESS);
	MUST(CU(cuModuleLoadData)(&module, "image") == CUDA_SUCCESS);
	MUST(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
	MUST(CU(cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS);
}

static void called(void)
{
	deepest = ++depth > deepest ? depth : deepest;
	MUST(depth < 100);
	client_free();
	if (depth <= 2)
		one_of_each();
	depth--;
}

static CUcontext again;

static void make_another(void)
{
	static int began;
	CUdeviceptr at;

	if (began++ != 0)
		return;
	MUST(CU(cuCtxCreate_v2)(&again, 0, 0) == CUDA_SUCCESS && CU(cuMemAlloc_v2)(&at, 10 * MIB) == CUDA_SUCCESS);
}

/* The driver has ended a context, and gives its address to another before the call comes back: as it may to another
 * thread. What that one takes counts. */
static void address_comes_again(void (*calls)(void (*)(void)))
{
	uint64_t before = client_free();
	CUcontext context;
	CUdeviceptr at;

	MUST(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS && CU(cuMemAlloc_v2)(&at, MIB) == CUDA_SUCCESS);
	calls(make_another);
	MUST(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS && again == context);
	calls(NULL);
	MUST(client_free() == before - 14 * MIB);
	MUST(CU(cuCtxDestroy_v2)(again) == CUDA_SUCCESS && CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
	MUST(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS && client_free() == before);
}

static CUdeviceptr early;

static void allocate_early(void)
{
	static int began;

	if (began++ == 0)
		MUST(CU(cuMemAlloc_v2)(&early, 10 * MIB) == CUDA_SUCCESS);
}

/* Who is told of a new context takes memory in it at once: both count, the context once, until it ends. */
static void context_is_told_of(void (*calls)(void (*)(void)))
{
	uint64_t before = client_free();
	CUcontext first = NULL, context;

	MUST(CU(cuCtxGetCurrent)(&first) == CUDA_SUCCESS);
	calls(allocate_early);
	MUST(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS && early != 0);
	calls(NULL);
	MUST(client_free() == before - (4 + 10) * MIB);
	MUST(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
	MUST(CU(cuCtxSetCurrent)(first) == CUDA_SUCCESS && client_free() == before);
}

static CUcontext primary;
static CUdeviceptr other;

static void allocate_in_primary(void)
{
	if (other != 0)
		return;
	MUST(CU(cuCtxSetCurrent)(primary) == CUDA_SUCCESS && CU(cuMemAlloc_v2)(&other, 10 * MIB) == CUDA_SUCCESS);
}

/* The same of memory in another context: what had its address ended, and counts no more. */
static void memory_comes_again(void (*calls)(void (*)(void)), uint64_t *next)
{
	uint64_t before = client_free();
	CUcontext context;
	CUdeviceptr at;

	MUST(CU(cuDevicePrimaryCtxRetain)(&primary, 0) == CUDA_SUCCESS);
	MUST(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS && CU(cuMemAlloc_v2)(&at, 20 * MIB) == CUDA_SUCCESS);
	*next = at;
	calls(allocate_in_primary);
	MUST(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS && other == at);
	calls(NULL);
	*next = 0;
	MUST(client_free() == before - 10 * MIB);
	MUST(CU(cuMemFree_v2)(other) == CUDA_SUCCESS && client_free() == before);
}

static CUmemGenericAllocationHandle backing(void)
{
	struct CUmem_allocation_prop card = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };
	CUmemGenericAllocationHandle handle;

	MUST(CU(cuMemCreate)(&handle, MIB, &card, 0) == CUDA_SUCCESS);
	return handle;
}

#define PLACE (1ull << 40)

static CUmemGenericAllocationHandle mapped;

static void map_again(void)
{
	if (mapped != 0)
		return;
	mapped = backing();
	MUST(CU(cuMemMap)(PLACE, MIB, 0, mapped, 0) == CUDA_SUCCESS && CU(cuMemRelease)(mapped) == CUDA_SUCCESS);
}

/* The same of what is mapped: before the driver's call comes back, another mapping is there. */
static void place_comes_again(void (*calls)(void (*)(void)))
{
	uint64_t before = client_free();
	CUmemGenericAllocationHandle handle = backing();

	MUST(CU(cuMemMap)(PLACE, MIB, 0, handle, 0) == CUDA_SUCCESS && CU(cuMemRelease)(handle) == CUDA_SUCCESS);
	calls(map_again);
	MUST(CU(cuMemUnmap)(PLACE, MIB) == CUDA_SUCCESS && mapped != 0);
	calls(NULL);
	MUST(client_free() == before - MIB);
	MUST(CU(cuMemUnmap)(PLACE, MIB) == CUDA_SUCCESS && client_free() == before);
}

/* And of a handle: the backing of before is released, and still mapped. */
static void handle_comes_again(uint64_t *next)
{
	uint64_t before = client_free();
	CUmemGenericAllocationHandle handle = backing();

	MUST(CU(cuMemMap)(PLACE, MIB, 0, handle, 0) == CUDA_SUCCESS && CU(cuMemRelease)(handle) == CUDA_SUCCESS);
	*next = handle;
	MUST(backing() == handle && client_free() == before - 2 * MIB);
	*next = 0;
	MUST(CU(cuMemUnmap)(PLACE, MIB) == CUDA_SUCCESS && client_free() == before - MIB);
	MUST(CU(cuMemRelease)(handle) == CUDA_SUCCESS && client_free() == before);
}

int main(int argc, char **argv)
{
	uint64_t *next;
	void *driver;
	void (*calls)(void (*)(void));
	CUdeviceptr at;

	alarm(30);
	client_open("libcuda.so.1");
	client_start();
	driver = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_NOLOAD);
	MUST(driver != NULL);
	calls = (void (*)(void (*)(void)))dlsym(driver, "null_driver_calls");
	MUST(calls != NULL && CU(cuMemAllocAsync)(&at, MIB, NULL) == CUDA_SUCCESS && client_free() == 59 * MIB);
	calls(called);
	one_of_each();
	calls(NULL);
	MUST(deepest > 3 && client_free() == 59 * MIB);
	MUST(CU(cuMemFreeAsync)(at, NULL) == CUDA_SUCCESS && client_free() == 60 * MIB);
	next = (uint64_t *)dlsym(driver, "null_driver_handle");
	context_is_told_of(calls);
	address_comes_again(calls);
	memory_comes_again(calls, next);
	place_comes_again(calls);
	handle_comes_again(next);
	return 0;
}
