/* meanwhile.c - a second thread changes what the program has told the driver, and what the driver has answered, while
 * the driver is at work: `meanwhile DRIVER`. The limit is 64 MiB and a context takes 4 MiB. What counts is what the driver
 * was told, and what it gave; and what it gave comes back. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <string.h>

#include "client.h"

#define LEFT (60 * MIB)
#define ELSEWHERE 0x1234560

static void (*calls)(void (*)(void));
static unsigned long long (*told)(void);
static void (*sleeps)(int);

static struct CUmem_pool_props props;
static struct CUmem_allocation_prop backing;
static struct CUarray3d_descriptor wanted;
static uint64_t out;			/* an address or a handle */
static size_t pitch;
static struct CUarray_map tiles;
static char name[16];

/* What there is of the answer now, the other thread has seen; then something else stands there. */
static uint64_t seen;

static void change(void)
{
	if (out != 0 && out != ELSEWHERE)
		seen = out;
	out = ELSEWHERE;
	pitch = 1;
	props.location.type = 0;
	backing.location.type = CU_MEM_LOCATION_DEVICE;
	wanted.width = 1 << 20;
	tiles.handle = ELSEWHERE;
	strcpy(name, "cuCtxSetCurrent");
}

/* The call succeeds, and so much is counted for it. */
#define TAKES(bytes, ...)                                                                         \
	do {                                                                                      \
		uint64_t before = client_free();                                                  \
		out = seen = 0;                                                                   \
		calls(change);                                                                    \
		MUST((__VA_ARGS__) == CUDA_SUCCESS);                                              \
		calls(NULL);                                                                      \
		MUST(seen == 0 && out != 0 && out != ELSEWHERE);                                  \
		MUST(client_free() == before - (bytes));                                          \
	} while (0)

static void pointers(void)
{
	TAKES(MIB, CU(cuMemAlloc_v2)((CUdeviceptr *)&out, MIB));
	MUST(CU(cuMemFree_v2)(out) == CUDA_SUCCESS && client_free() == LEFT);
	TAKES(MIB, CU(cuMemAllocManaged)((CUdeviceptr *)&out, MIB, 1));
	MUST(CU(cuMemFree_v2)(out) == CUDA_SUCCESS && client_free() == LEFT);
	TAKES(MIB, CU(cuMemAllocPitch_v2)((CUdeviceptr *)&out, &pitch, 1000, 1024, 4));
	MUST(pitch == 1024 && CU(cuMemFree_v2)(out) == CUDA_SUCCESS && client_free() == LEFT);
	TAKES(MIB, CU(cuMemAllocAsync)((CUdeviceptr *)&out, MIB, NULL));
	MUST(CU(cuMemFreeAsync)(out, NULL) == CUDA_SUCCESS && client_free() == LEFT);
}

static void arrays(void)
{
	static const struct CUarray3d_descriptor small = { .width = 1024, .height = 1024, .format = 1, .channels = 1 };

	wanted = small;
	TAKES(told() * 1024, CU(cuArray3DCreate_v2)((CUarray *)&out, &wanted));
	MUST(CU(cuArrayDestroy)((CUarray)out) == CUDA_SUCCESS && client_free() == LEFT);
	wanted = small;
	TAKES(told() * 1024, CU(cuMipmappedArrayCreate)((CUmipmappedArray *)&out, &wanted, 1));
	MUST(CU(cuMipmappedArrayDestroy)((CUmipmappedArray)out) == CUDA_SUCCESS && client_free() == LEFT);
}

static void backings(void)
{
	static const struct CUmem_allocation_prop card = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };
	CUmemGenericAllocationHandle handle;

	backing = card;
	backing.location.type = 0;	/* the host's, as long as nobody changes it */
	TAKES(told() == CU_MEM_LOCATION_DEVICE ? MIB : 0,
	      CU(cuMemCreate)((CUmemGenericAllocationHandle *)&out, MIB, &backing, 0));
	MUST(CU(cuMemRelease)(out) == CUDA_SUCCESS && client_free() == LEFT);
	backing = card;
	TAKES(MIB, CU(cuMemCreate)((CUmemGenericAllocationHandle *)&out, MIB, &backing, 0));
	handle = out;
	MUST(CU(cuMemMap)(0x1000000, MIB, 0, handle, 0) == CUDA_SUCCESS);
	TAKES(0, CU(cuMemRetainAllocationHandle)((CUmemGenericAllocationHandle *)&out, (void *)0x1000000));
	MUST(out == handle && CU(cuMemUnmap)(0x1000000, MIB) == CUDA_SUCCESS);
	MUST(CU(cuMemRelease)(handle) == CUDA_SUCCESS && client_free() == LEFT - MIB);
	MUST(CU(cuMemRelease)(handle) == CUDA_SUCCESS && client_free() == LEFT);
}

/* What the driver has mapped into the array counts until that ends, whatever handle stands in the list then. */
static void mapped_arrays(void)
{
	static const struct CUmem_allocation_prop card = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };
	static const struct CUarray3d_descriptor sparse = { .width = 1024, .height = 1024, .format = 1, .channels = 1,
							    .flags = CU_ARRAY3D_SPARSE };
	CUmemGenericAllocationHandle handle;
	CUarray array;

	MUST(CU(cuMemCreate)(&handle, MIB, &card, 0) == CUDA_SUCCESS);
	MUST(CU(cuArray3DCreate_v2)(&array, &sparse) == CUDA_SUCCESS);
	tiles = (struct CUarray_map){ .array = array, .operation = CU_MEM_OPERATION_MAP, .handle = handle };
	calls(change);
	MUST(CU(cuMemMapArrayAsync)(&tiles, 1, NULL) == CUDA_SUCCESS);
	calls(NULL);
	MUST(told() == handle && CU(cuMemRelease)(handle) == CUDA_SUCCESS && client_free() == LEFT - MIB);
	MUST(CU(cuArrayDestroy)(array) == CUDA_SUCCESS && client_free() == LEFT);
}

/* A graph of 1 MiB: what is launched is what was instantiated. */
static void graphs(void)
{
	CUdeviceptr most;

	TAKES(0, CU(cuGraphInstantiateWithFlags)((CUgraphExec *)&out, (CUgraph)1, 0));
	MUST(CU(cuMemAlloc_v2)(&most, LEFT - MIB + 1) == CUDA_SUCCESS);
	MUST(CU(cuGraphLaunch)((CUgraphExec)out, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(CU(cuMemFree_v2)(most) == CUDA_SUCCESS && CU(cuGraphLaunch)((CUgraphExec)out, NULL) == CUDA_SUCCESS);
	MUST(CU(cuGraphExecDestroy)((CUgraphExec)out) == CUDA_SUCCESS && client_free() == LEFT);
}

static void change_props(void)
{
	props.location.type = 0;
}

/* A pool of the card that is told to be one of the host, or the answer is written over what was asked for. */
static void pools(void)
{
	static const struct CUmem_pool_props card = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };
	CUmemoryPool pool;
	CUdeviceptr at;

	for (int within = 0; within < 2; within++) {
		CUmemoryPool *place = within ? (CUmemoryPool *)(void *)&props.location : &pool;

		props = card;
		calls(within ? NULL : change_props);
		MUST(CU(cuMemPoolCreate)(place, &props) == CUDA_SUCCESS);
		calls(NULL);
		pool = *place;
		MUST(CU(cuMemAllocFromPoolAsync)(&at, 8 * MIB, pool, NULL) == CUDA_SUCCESS);
		MUST(client_free() == LEFT - 8 * MIB);
		MUST(CU(cuMemFreeAsync)(at, NULL) == CUDA_SUCCESS && CU(cuMemPoolDestroy)(pool) == CUDA_SUCCESS);
		MUST(client_free() == LEFT);
	}
	MUST(CU(cuMemPoolCreate)(&pool, NULL) == CUDA_ERROR_INVALID_VALUE);
}

static void contexts(void)
{
	CUcontext primary;

	MUST(CU(cuCtxGetCurrent)(&primary) == CUDA_SUCCESS);
	TAKES(0, CU(cuDevicePrimaryCtxRetain)((CUcontext *)&out, 0));
	MUST((CUcontext)out == primary && CU(cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS);
	TAKES(4 * MIB, CU(cuCtxCreate_v2)((CUcontext *)&out, 0, 0));
	MUST(CU(cuCtxDestroy_v2)((CUcontext)out) == CUDA_SUCCESS);
	MUST(CU(cuCtxSetCurrent)(primary) == CUDA_SUCCESS && client_free() == LEFT);
}

static char image[8];

static void change_image(void)
{
	strcpy(image, "40");
}

/* What is loaded counts, whatever stands in its place afterwards. */
static void modules(void)
{
	strcpy(image, "20");
	TAKES(20 * MIB, CU(cuModuleLoadData)((CUmodule *)&out, image));
	MUST(CU(cuModuleUnload)((CUmodule)out) == CUDA_SUCCESS && client_free() == LEFT);
	out = 0;
	calls(change_image);
	MUST(CU(cuModuleLoadData)((CUmodule *)&out, image) == CUDA_SUCCESS);
	calls(NULL);
	MUST(strcmp(image, "40") == 0 && client_free() == LEFT - 40 * MIB);
	MUST(CU(cuModuleUnload)((CUmodule)out) == CUDA_SUCCESS && client_free() == LEFT);
}

static void wake(void)
{
	sleeps(0);
}

/* Another thread initialises the driver between our look and the call: what does not fit goes back, what fits counts. */
#define WAKES(fits, ...)                                                                          \
	do {                                                                                      \
		sleeps(1);                                                                        \
		calls(wake);                                                                      \
		MUST((__VA_ARGS__) == ((fits) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY));        \
		calls(NULL);                                                                      \
	} while (0)

static void initialised_meanwhile(void)
{
	static const struct CUmem_allocation_prop card = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };
	struct CUarray3d_descriptor large = { .width = 1024, .height = 61 * 1024, .format = 1, .channels = 1 };
	CUmemGenericAllocationHandle handle;
	CUcontext primary, context;
	CUdeviceptr at;
	CUarray array;

	MUST(CU(cuCtxGetCurrent)(&primary) == CUDA_SUCCESS);
	WAKES(false, CU(cuMemAlloc_v2)(&at, LEFT + 1));
	WAKES(false, CU(cuMemAllocAsync)(&at, LEFT + 1, NULL));
	WAKES(false, CU(cuArray3DCreate_v2)(&array, &large));
	WAKES(false, CU(cuMemCreate)(&handle, LEFT + 1, &card, 0));
	MUST(client_free() == LEFT);
	WAKES(true, CU(cuMemAlloc_v2)(&at, LEFT));
	MUST(client_free() == 0);
	WAKES(false, CU(cuCtxCreate_v2)(&context, 0, 0));
	MUST(CU(cuCtxSetCurrent)(primary) == CUDA_SUCCESS);
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS && client_free() == LEFT);
	WAKES(true, CU(cuMemCreate)(&handle, LEFT, &card, 0));
	MUST(client_free() == 0 && CU(cuMemRelease)(handle) == CUDA_SUCCESS);
	WAKES(true, CU(cuMemAllocAsync)(&at, LEFT, NULL));
	MUST(client_free() == 0 && CU(cuMemFreeAsync)(at, NULL) == CUDA_SUCCESS);
	WAKES(true, CU(cuCtxCreate_v2)(&context, 0, 0));
	MUST(CU(cuCtxSetCurrent)(primary) == CUDA_SUCCESS && client_free() == LEFT - 4 * MIB);
	MUST(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS && client_free() == LEFT);
}

/* The driver's own function is never to be seen, whichever name the driver and we have read. */
static void addresses(void)
{
	void *hook = client_symbol("cuMemAlloc_v2");
	int status;

	strcpy(name, "cuMemAlloc");
	TAKES(0, CU(cuGetProcAddress_v2)(name, (void **)&out, 12000, 0, &status));
	MUST(status == CU_PROC_ADDRESS_SUCCESS && (void *)out == hook);
}

int main(int argc, char **argv)
{
	void *driver;

	client_open("libcuda.so.1");
	client_start();
	driver = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_NOLOAD);
	MUST(driver != NULL);
	calls = (void (*)(void (*)(void)))dlsym(driver, "null_driver_calls");
	told = (unsigned long long (*)(void))dlsym(driver, "null_driver_told");
	sleeps = (void (*)(int))dlsym(driver, "null_driver_sleeps");
	MUST(calls != NULL && told != NULL && sleeps != NULL && client_free() == LEFT);
	pointers();
	arrays();
	backings();
	mapped_arrays();
	graphs();
	pools();
	contexts();
	modules();
	initialised_meanwhile();
	addresses();
	return 0;
}
