/* contexts.c - threads make and end contexts that hold memory, on the driver that gives the address of the last ended
 * one to whoever comes next, and map and unmap backing: `contexts THREADS ROUNDS`. Another thread retains and releases
 * the primary one. All is given back at the end, and all counts while it is there. The limit is 64 MiB and a context
 * takes 4 MiB. */
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

#include "client.h"

static int rounds, running;

static void map_and_unmap(void)
{
	struct CUmem_allocation_prop card = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at = (uintptr_t)&card & ~(MIB - 1);	/* the thread's */

	MUST(CU(cuMemCreate)(&handle, MIB, &card, 0) == CUDA_SUCCESS);
	MUST(CU(cuMemMap)(at, MIB, 0, handle, 0) == CUDA_SUCCESS);
	MUST(CU(cuMemRelease)(handle) == CUDA_SUCCESS && client_free() <= 54 * MIB);
	MUST(CU(cuMemUnmap)(at, MIB) == CUDA_SUCCESS);
}

static void *make_and_end(void *nothing)
{
	CUcontext context;
	CUdeviceptr at;

	for (int i = 0; i < rounds; i++) {
		MUST(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
		MUST(CU(cuMemAlloc_v2)(&at, MIB) == CUDA_SUCCESS);
		MUST(client_free() <= 55 * MIB);
		map_and_unmap();
		MUST(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
	}
	__atomic_sub_fetch(&running, 1, __ATOMIC_SEQ_CST);
	return nothing;
}

int main(int argc, char **argv)
{
	int threads = argc > 2 ? atoi(argv[1]) : 1;
	pthread_t thread[8];
	CUcontext primary;

	rounds = argc > 2 ? atoi(argv[2]) : 1;
	running = threads;
	alarm(60);
	client_open("libcuda.so.1");
	client_start();
	for (int i = 0; i < threads && i < 8; i++)
		MUST(pthread_create(&thread[i], NULL, make_and_end, NULL) == 0);
	while (__atomic_load_n(&running, __ATOMIC_SEQ_CST) > 0) {
		MUST(CU(cuDevicePrimaryCtxRetain)(&primary, 0) == CUDA_SUCCESS);
		MUST(CU(cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS);
	}
	for (int i = 0; i < threads && i < 8; i++)
		pthread_join(thread[i], NULL);
	MUST(client_free() == 60 * MIB);
	MUST(CU(cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS);
	return 0;
}
