/* local.c - kernels whose threads need local memory, on the simulated driver: it counts from the first launch on, above the
 * first stack, as much as the largest kernel needs, and ends with the context. After each step it prints what is free in
 * MiB, and waits for a line. */
#include <string.h>

#include "client.h"

#define STACK 1024
#define STEP 128			/* bytes for each of 40960 threads: 5 MiB */

static CUmodule module;

static void step(const char *name)
{
	char line[16];

	printf("%s %llu\n", name, (unsigned long long)(client_free() / MIB));
	fflush(stdout);
	if (fgets(line, sizeof(line), stdin) == NULL)
		exit(3);
}

static void *function(int bytes)
{
	char name[32];
	void *found;

	snprintf(name, sizeof(name), "local_%d", bytes);
	MUST(CU(cuModuleGetFunction)(&found, module, name) == CUDA_SUCCESS);
	return found;
}

static CUresult launch(void *what)
{
	return CU(cuLaunchKernel)(what, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static CUresult launch_ex(void *what)
{
	struct CUlaunch_config config;

	memset(&config, 0, sizeof(config));
	for (unsigned int i = 0; i < 6; i++)
		((unsigned int *)&config)[i] = 1;	/* grid and block */
	return CU(cuLaunchKernelEx)(&config, what, NULL, NULL);
}

static CUkernel kernel(int bytes)
{
	CUlibrary library;
	char name[32];
	CUkernel found;

	snprintf(name, sizeof(name), "local_%d", bytes);
	MUST(CU(cuLibraryLoadData)(&library, "image", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
	MUST(CU(cuLibraryGetKernel)(&found, library, name) == CUDA_SUCCESS);
	return found;
}

/* All but so many MiB. */
static CUdeviceptr leave(uint64_t mib)
{
	CUdeviceptr at;

	MUST(CU(cuMemAlloc_v2)(&at, client_free() - mib * MIB) == CUDA_SUCCESS);
	return at;
}

int main(void)
{
	CUcontext context;
	CUkernel larger;
	CUdeviceptr at;

	client_open("libcuda.so.1");
	MUST(CU(cuInit)(0) == CUDA_SUCCESS && CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
	MUST(CU(cuModuleLoadData)(&module, "image") == CUDA_SUCCESS);
	MUST(launch(function(STACK)) == CUDA_SUCCESS);
	step("none");
	function(STACK + 40 * STEP);
	larger = kernel(STACK + 21 * STEP);
	step("asked");			/* and not launched */
	at = leave(100);
	MUST(launch(function(STACK + 20 * STEP + 1)) == CUDA_ERROR_OUT_OF_MEMORY);
	step("over");
	MUST(launch(function(STACK + 20 * STEP)) == CUDA_SUCCESS);
	step("at");
	MUST(launch(function(STACK + 10 * STEP)) == CUDA_SUCCESS && launch(function(STACK + 20 * STEP)) == CUDA_SUCCESS);
	step("smaller");
	MUST(launch_ex(larger) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS);
	MUST(launch_ex(larger) == CUDA_SUCCESS);
	step("kernel");
	MUST(CU(cuCtxSetLimit)(CU_LIMIT_STACK, STACK + 21 * STEP) == CUDA_SUCCESS);
	MUST(launch(function(STACK + 22 * STEP)) == CUDA_SUCCESS);
	MUST(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
	MUST(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
	step("ended");
	return 0;
}
