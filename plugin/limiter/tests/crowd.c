/* crowd.c - to bind to a multicast object, or to map one, waits in the driver for others: `crowd bind`, `crowd map`.
 * Another thread of the process makes, maps, exports and releases backing meanwhile. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

#define LEFT (60 * MIB)
#define CROWD 0xc0de			/* nullobjects.c */

static CUmemGenericAllocationHandle backing(void)
{
	struct CUmem_allocation_prop card = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };
	CUmemGenericAllocationHandle handle;

	MUST(CU(cuMemCreate)(&handle, MIB, &card, 0) == CUDA_SUCCESS);
	return handle;
}

static CUmemGenericAllocationHandle shared;
static int done;

static void *wait_in_bind(void *nothing)
{
	(void)nothing;
	MUST(CU(cuMulticastBindMem)(CROWD, 0, shared, 0, MIB, 0) == CUDA_SUCCESS);
	__atomic_store_n(&done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void *wait_in_map(void *nothing)
{
	(void)nothing;
	MUST(CU(cuMemMap)(1ull << 40, MIB, 0, CROWD, 0) == CUDA_SUCCESS);
	__atomic_store_n(&done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

int main(int argc, char **argv)
{
	int bind = argc > 1 && strcmp(argv[1], "bind") == 0, file;
	CUmemGenericAllocationHandle other;
	pthread_t waiter;

	client_open("libcuda.so.1");
	client_start();
	shared = backing();
	MUST(pthread_create(&waiter, NULL, bind ? wait_in_bind : wait_in_map, NULL) == 0);
	usleep(200000);
	other = backing();
	MUST(CU(cuMemMap)(1 << 30, MIB, 0, other, 0) == CUDA_SUCCESS);
	MUST(CU(cuMemUnmap)(1 << 30, MIB) == CUDA_SUCCESS && CU(cuMemRelease)(other) == CUDA_SUCCESS);
	MUST(client_free() == LEFT - MIB);
	MUST(__atomic_load_n(&done, __ATOMIC_SEQ_CST) == 0);
	MUST(CU(cuMemRelease)(shared) == CUDA_SUCCESS && client_free() == LEFT - (bind ? MIB : 0));
	other = backing();
	MUST(CU(cuMemExportToShareableHandle)(&file, other, 1, 0) == CUDA_SUCCESS);
	MUST(pthread_join(waiter, NULL) == 0);
	if (bind)
		MUST(CU(cuMulticastUnbind)(CROWD, 0, 0, MIB) == CUDA_SUCCESS);
	MUST(client_free() == LEFT - MIB);	/* what was exported */
	return 0;
}
