/* brought.c - a context that has come past the limiter, as through one of the driver's private tables: made by the driver's
 * own function, `brought DRIVER MIB`. It prints what a call in it gives that takes so much memory, and then what is
 * still held when the context has ended, as the limiter tells. */
#include <pthread.h>

#include "client.h"

static CUcontext context;

static void *enter(void *unused)
{
	(void)unused;
	MUST(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
	client_free();
	return NULL;
}

int main(int argc, char **argv)
{
	void *driver = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	__typeof__(&cuCtxCreate_v2) create = driver != NULL ? (__typeof__(&cuCtxCreate_v2))dlsym(driver, "cuCtxCreate_v2") : NULL;
	uint64_t before, bytes = create != NULL ? strtoull(argv[2], NULL, 10) * MIB : 0;
	pthread_t threads[8];
	CUdeviceptr at;

	MUST(create != NULL);
	client_open("libcuda.so.1");
	MUST(CU(cuInit)(0) == CUDA_SUCCESS && create(&context, 0, 0) == CUDA_SUCCESS);
	for (int i = 0; i < 8; i++)	/* it counts once, whoever is first */
		MUST(pthread_create(&threads[i], NULL, enter, NULL) == 0);
	for (int i = 0; i < 8; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
	printf("%d\n", CU(cuMemAlloc_v2)(&at, bytes));
	before = client_free();
	MUST(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
	client_start();
	printf("%lld\n", (long long)(client_free() - before) / (long long)MIB);
	return 0;
}
