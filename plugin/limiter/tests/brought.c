/* brought.c - a context that has come past the limiter, as through one of the driver's private tables: made by the driver's
 * own function, `brought DRIVER MIB`. It prints what a call in it gives that takes so much memory, and then what is
 * still held when the context has ended, as the limiter tells. */
#include <pthread.h>

#include "client.h"

#define THREADS 8
#define ROUNDS 300

static pthread_barrier_t all;
static CUcontext context;

static void *enter(void *unused)
{
	__typeof__(&cuCtxSetCurrent) set = CU(cuCtxSetCurrent);
	__typeof__(&cuMemGetInfo_v2) ask = CU(cuMemGetInfo_v2);
	size_t free_bytes, total;

	(void)unused;
	pthread_barrier_wait(&all);
	MUST(set(context) == CUDA_SUCCESS && ask(&free_bytes, &total) == CUDA_SUCCESS);
	return NULL;
}

/* It counts once, whichever thread is first. */
static void count_once(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		MUST(pthread_create(&threads[i], NULL, enter, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
}

/* The primary one: it counts from the first call in it, and its reset is seen to end it, and what it held. */
static void reset_primary(void *driver)
{
	__typeof__(&cuDevicePrimaryCtxRetain) retain =
		(__typeof__(&cuDevicePrimaryCtxRetain))dlsym(driver, "cuDevicePrimaryCtxRetain");
	CUcontext first;
	uint64_t before;
	CUdeviceptr at;

	MUST(CU(cuCtxCreate_v2)(&first, 0, 0) == CUDA_SUCCESS);
	before = client_free();
	MUST(retain(&context, 0) == CUDA_SUCCESS && CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
	MUST(CU(cuMemAlloc_v2)(&at, MIB) == CUDA_SUCCESS && client_free() == before - (4 + 1) * MIB);
	MUST(CU(cuDevicePrimaryCtxReset_v2)(0) == CUDA_SUCCESS && client_free() == before);
	MUST(CU(cuCtxDestroy_v2)(first) == CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
	void *driver = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	__typeof__(&cuCtxCreate_v2) create = driver != NULL ? (__typeof__(&cuCtxCreate_v2))dlsym(driver, "cuCtxCreate_v2") : NULL;
	uint64_t before, bytes = create != NULL ? strtoull(argv[2], NULL, 10) * MIB : 0;
	CUdeviceptr at;

	MUST(create != NULL);
	client_open("libcuda.so.1");
	MUST(CU(cuInit)(0) == CUDA_SUCCESS && pthread_barrier_init(&all, NULL, THREADS) == 0);
	reset_primary(driver);
	before = 0;
	for (int i = 0; i < ROUNDS; i++) {
		MUST(create(&context, 0, 0) == CUDA_SUCCESS);
		count_once();
		MUST(before == 0 || client_free() == before);
		before = client_free();
		MUST(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
	}
	MUST(create(&context, 0, 0) == CUDA_SUCCESS);
	count_once();
	printf("%d\n", CU(cuMemAlloc_v2)(&at, bytes));
	before = client_free();
	MUST(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
	client_start();
	printf("%lld\n", (long long)(client_free() - before) / (long long)MIB);
	return 0;
}
