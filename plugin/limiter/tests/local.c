/* local.c - kernels whose threads need local memory, on the simulated driver: it counts from the first launch on, above the
 * first stack, as much as the largest kernel needs, and ends with the context. After each step it prints what is free in
 * MiB, and waits for a line. */
#include <pthread.h>
#include <string.h>

#include "client.h"

CUresult cuStreamCreate(CUstream *out, unsigned int flags);

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

static CUresult launch_in(CUstream stream, void *what)
{
	return CU(cuLaunchKernel)(what, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static CUresult launch(void *what)
{
	return launch_in(NULL, what);
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

static CUcontext context;
static pthread_barrier_t both;
static void *shared;

static void *launch_at_once(void *unused)
{
	(void)unused;
	MUST(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
	pthread_barrier_wait(&both);
	MUST(launch(shared) == CUDA_SUCCESS);
	return NULL;
}

/* Two threads are the first to launch it in a context: it counts once. */
static void race(void)
{
	uint64_t before = client_free();
	pthread_t threads[2];
	CUcontext outer = context;

	MUST(pthread_barrier_init(&both, NULL, 2) == 0);
	shared = function(STACK + 30 * STEP);
	for (int i = 0; i < 200; i++) {
		MUST(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
		for (int j = 0; j < 2; j++)
			MUST(pthread_create(&threads[j], NULL, launch_at_once, NULL) == 0);
		for (int j = 0; j < 2; j++)
			MUST(pthread_join(threads[j], NULL) == 0);
		MUST(client_free() == before - (100 + 30 * 5) * MIB);
		MUST(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS && client_free() == before);
	}
	context = outer;
}

/* In a stream of another context than the current one, which has it then. */
static void elsewhere(void)
{
	CUcontext other;
	CUstream stream;

	MUST(CU(cuCtxCreate_v2)(&other, 0, 0) == CUDA_SUCCESS && CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
	MUST(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
	MUST(launch_in(stream, function(STACK + 20 * STEP)) == CUDA_SUCCESS);
	step("elsewhere");
	MUST(CU(cuCtxSetCurrent)(NULL) == CUDA_SUCCESS);
	MUST(launch_in(stream, function(STACK + 40 * STEP)) == CUDA_SUCCESS);
	MUST(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
	step("nowhere");
	MUST(CU(cuCtxDestroy_v2)(other) == CUDA_SUCCESS);
}

int main(void)
{
	CUkernel larger;
	CUdeviceptr at;

	client_open("libcuda.so.1");
	MUST(CU(cuInit)(0) == CUDA_SUCCESS && CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
	MUST(CU(cuModuleLoadData)(&module, "image") == CUDA_SUCCESS);
	MUST(launch(function(STACK)) == CUDA_SUCCESS);
	step("none");
	MUST(CU(cuCtxSetLimit)(CU_LIMIT_STACK, 16) == CUDA_SUCCESS);
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
	MUST(launch_ex(larger) == CUDA_SUCCESS && launch_ex(larger) == CUDA_SUCCESS);
	step("kernel");
	MUST(CU(cuCtxSetLimit)(CU_LIMIT_STACK, STACK + 21 * STEP) == CUDA_SUCCESS);
	step("stack");			/* there already */
	MUST(CU(cuCtxSetLimit)(CU_LIMIT_STACK, STACK + 25 * STEP) == CUDA_SUCCESS);
	MUST(launch(function(STACK + 22 * STEP)) == CUDA_SUCCESS);
	step("larger");
	MUST(CU(cuCtxSetLimit)(CU_LIMIT_STACK, STACK) == CUDA_SUCCESS);
	step("lower");			/* down to what the kernels need */
	MUST(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
	MUST(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
	MUST(CU(cuModuleLoadData)(&module, "image") == CUDA_SUCCESS);
	step("ended");
	race();
	elsewhere();
	step("back");
	return 0;
}
