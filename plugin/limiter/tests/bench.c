/* bench.c - nanoseconds of the limiter's own per call: on a driver that answers at once, with the limiter
 * and without, the best of several runs each. `bench LIBRARY` prints what one of both takes. */
#include <time.h>

#include "client.h"

#define CALLS 2000			/* short enough to fall between the turns of other programs */
#define RUNS 500

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

#define BEST(name, call)                                                                          \
	do {                                                                                      \
		double best = 1e18;                                                               \
		for (int run = 0; run < RUNS; run++) {                                            \
			double began = now_ns(), took;                                            \
			for (int i = 0; i < CALLS; i++)                                           \
				call;                                                             \
			took = (now_ns() - began) / CALLS;                                        \
			best = took < best ? took : best;                                         \
		}                                                                                 \
		printf("%s %.2f\n", name, best);                                                  \
	} while (0)

int main(int argc, char **argv)
{
	__typeof__(&cuMemAlloc_v2) alloc;
	__typeof__(&cuMemFree_v2) release;
	__typeof__(&cuMemAllocAsync) alloc_async;
	__typeof__(&cuMemFreeAsync) release_async;
	__typeof__(&cuLaunchKernel) launch;
	CUdeviceptr at;
	CUmodule module;
	void *kernel;

	client_open(argc > 1 ? argv[1] : "libcuda.so.1");
	client_start();
	alloc = CU(cuMemAlloc_v2);
	release = CU(cuMemFree_v2);
	alloc_async = CU(cuMemAllocAsync);
	release_async = CU(cuMemFreeAsync);
	launch = CU(cuLaunchKernel);
	MUST(CU(cuModuleLoadData)(&module, "image") == CUDA_SUCCESS);
	MUST(CU(cuModuleGetFunction)(&kernel, module, "kernel") == CUDA_SUCCESS);
	BEST("alloc_and_free", (alloc(&at, 4096), release(at)));
	BEST("async_pair", (alloc_async(&at, 4096, NULL), release_async(at, NULL)));
	BEST("launch", launch(kernel, 2, 3, 4, 5, 6, 7, 8, (CUstream)9, (void **)10, (void **)11));
	return 0;
}
