/* turns.c - kernels of whoever takes his turn: `turns threads NS THREADS SECONDS`, many threads that each launch one and wait
 * for it, again and again, and print the percent of the card that they got; `turns process NS BEFORE`, a program that
 * launches one, behind so many short ones, and ends. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "client.h"

CUresult cuModuleGetFunction(void **out, CUmodule module, const char *name);
CUresult cuStreamCreate(CUstream *out, unsigned int flags);

#define THREADS_MAX 64
#define SHORT_NS 1000

static void *spin;
static uint64_t kernel_ns, until;
static unsigned int kernels;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void launch(CUstream stream, uint64_t ns)
{
	void *params[] = { &ns };

	MUST(CU(cuLaunchKernel)(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL) == CUDA_SUCCESS);
}

static void *launch_and_wait(void *unused)
{
	CUstream stream;
	(void)unused;

	client_start();
	MUST(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
	while (now_ns() < until) {
		launch(stream, kernel_ns);
		__atomic_add_fetch(&kernels, 1, __ATOMIC_SEQ_CST);
		MUST(CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
	}
	return NULL;
}

static void run_threads(int count, double seconds)
{
	pthread_t threads[THREADS_MAX];
	uint64_t began = now_ns();

	MUST(count <= THREADS_MAX);
	until = began + (uint64_t)(seconds * 1e9);
	for (int i = 0; i < count; i++)
		MUST(pthread_create(&threads[i], NULL, launch_and_wait, NULL) == 0);
	for (int i = 0; i < count; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
	launch(NULL, SHORT_NS);		/* is let in when all else has been paid for */
	printf("%.2f\n", 100.0 * (double)(kernels * kernel_ns) / (double)(now_ns() - began));
}

int main(int argc, char **argv)
{
	CUmodule module;

	MUST(argc == 4 || argc == 5);
	client_open("libcuda.so.1");
	client_start();
	MUST(CU(cuModuleLoadData)(&module, "image") == CUDA_SUCCESS);
	MUST(CU(cuModuleGetFunction)(&spin, module, "sim_spin") == CUDA_SUCCESS);
	kernel_ns = strtoull(argv[2], NULL, 10);
	if (argc == 5) {
		run_threads(atoi(argv[3]), atof(argv[4]));
		return 0;
	}
	for (int i = 0, before = atoi(argv[3]); i <= before; i++) {
		launch(NULL, i < before ? SHORT_NS : kernel_ns);
		MUST(CU(cuStreamSynchronize)(NULL) == CUDA_SUCCESS);
	}
	return 0;
}
