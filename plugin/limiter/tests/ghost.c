/* ghost.c - a thread whose current context ended launches; then another context gets that address. Prints the ms that
 * four launches there take. */
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

#include "client.h"

static CUcontext ended;

static void launch(void)
{
	MUST(CU(cuLaunchKernel)((void *)1, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
}

static void *ghost(void *nothing)
{
	CUdeviceptr at;

	MUST(CU(cuCtxSetCurrent)(ended) == CUDA_SUCCESS);
	MUST(CU(cuMemAlloc_v2)(&at, 1 << 30) != CUDA_ERROR_OUT_OF_MEMORY);	/* the driver's word */
	launch();
	return nothing;
}

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int main(void)
{
	CUcontext again;
	pthread_t thread;
	double began;

	client_open("libcuda.so.1");
	MUST(CU(cuInit)(0) == CUDA_SUCCESS && CU(cuCtxCreate_v2)(&ended, 0, 0) == CUDA_SUCCESS);
	launch();
	MUST(CU(cuCtxDestroy_v2)(ended) == CUDA_SUCCESS);
	MUST(pthread_create(&thread, NULL, ghost, NULL) == 0 && pthread_join(thread, NULL) == 0);
	MUST(CU(cuCtxCreate_v2)(&again, 0, 0) == CUDA_SUCCESS && again == ended);
	began = now_ms();
	for (int i = 0; i < 4; i++)
		launch();
	printf("%.1f\n", now_ms() - began);
	return 0;
}
