/* launches.c - each function that has the card compute is held at the share, by sleeping.
 *
 * It prints for how many ms each took with its kernels, and how many percent of all the time a core worked. */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <time.h>

#include "client.h"

#define LAUNCHES 4

static struct CUlaunch_config config;
static struct CUlaunch_params params[1];
static CUgraphExec exec;

#define GRID 1, 1, 1, 1, 1, 1, 0

static CUresult launch(int way)
{
	switch (way) {
	case 0: return CU(cuLaunchKernel)(NULL, GRID, NULL, NULL, NULL);
	case 1: return CU(cuLaunchKernel_ptsz)(NULL, GRID, NULL, NULL, NULL);
	case 2: return CU(cuLaunchKernelEx)(&config, NULL, NULL, NULL);
	case 3: return CU(cuLaunchKernelEx_ptsz)(&config, NULL, NULL, NULL);
	case 4: return CU(cuLaunchCooperativeKernel)(NULL, GRID, NULL, NULL);
	case 5: return CU(cuLaunchCooperativeKernel_ptsz)(NULL, GRID, NULL, NULL);
	case 6: return CU(cuLaunchCooperativeKernelMultiDevice)(params, 1, 0);
	case 7: return CU(cuLaunch)(NULL);
	case 8: return CU(cuLaunchGrid)(NULL, 1, 1);
	case 9: return CU(cuLaunchGridAsync)(NULL, 1, 1, NULL);
	case 10: return CU(cuGraphLaunch)(exec, NULL);
	case 11: return CU(cuGraphLaunch_ptsz)(exec, NULL);
	}
	return -1;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double worked_s(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

int main(void)
{
	uint64_t began, all;
	double before;
	CUresult ret;

	client_open("libcuda.so.1");
	client_start();
	MUST(CU(cuGraphInstantiateWithFlags)(&exec, (CUgraph)1, 0) == CUDA_SUCCESS);
	for (int i = 0; i < LAUNCHES; i++)	/* what was saved up is spent */
		MUST(launch(0) == CUDA_SUCCESS);
	all = now_ns();
	before = worked_s();
	for (int way = 0; (began = now_ns(), ret = launch(way)) != -1; way++) {
		MUST(ret == CUDA_SUCCESS);
		for (int i = 1; i < LAUNCHES; i++)
			MUST(launch(way) == CUDA_SUCCESS);
		printf("%d %.0f\n", way, (double)(now_ns() - began) / 1e6);
	}
	printf("worked %.1f\n", 100e9 * (worked_s() - before) / (double)(now_ns() - all));
	return 0;
}
