/* meanwhile.c - a second thread changes what the program has told the driver, and what the driver has answered, while
 * the driver is at work: `meanwhile DRIVER`. The limit is 64 MiB and a context takes 4 MiB. What counts is what the driver
 * was told, and what it gave. */
#define _GNU_SOURCE
#include <string.h>

#include "client.h"

#define LEFT (60 * MIB)

static void (*calls)(void (*)(void));

static struct CUmem_pool_props props;

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
		CUmemoryPool *out = within ? (CUmemoryPool *)(void *)&props.location : &pool;

		props = card;
		calls(within ? NULL : change_props);
		MUST(CU(cuMemPoolCreate)(out, &props) == CUDA_SUCCESS);
		calls(NULL);
		pool = *out;
		MUST(CU(cuMemAllocFromPoolAsync)(&at, 8 * MIB, pool, NULL) == CUDA_SUCCESS);
		MUST(client_free() == LEFT - 8 * MIB);
		MUST(CU(cuMemFreeAsync)(at, NULL) == CUDA_SUCCESS && CU(cuMemPoolDestroy)(pool) == CUDA_SUCCESS);
		MUST(client_free() == LEFT);
	}
	MUST(CU(cuMemPoolCreate)(&pool, NULL) == CUDA_ERROR_INVALID_VALUE);
}

int main(int argc, char **argv)
{
	void *driver;

	client_open("libcuda.so.1");
	client_start();
	driver = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_NOLOAD);
	MUST(driver != NULL);
	calls = (void (*)(void (*)(void)))dlsym(driver, "null_driver_calls");
	MUST(calls != NULL && client_free() == LEFT);
	pools();
	return 0;
}
