/* contention.c - many processes of many threads take memory that fits and give it back, all at once: `contention PROCESSES
 * THREADS SECONDS`. None of them is told that there is none. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

#define THREADS_MAX 64

static time_t until;

static time_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

static void *take(void *context)
{
	__typeof__(&cuMemAlloc_v2) alloc = CU(cuMemAlloc_v2);
	__typeof__(&cuMemFree_v2) release = CU(cuMemFree_v2);
	CUdeviceptr at;

	MUST(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
	while (now_s() < until) {
		MUST(alloc(&at, 4096) == CUDA_SUCCESS);
		MUST(release(at) == CUDA_SUCCESS);
	}
	return NULL;
}

static void run(int threads)
{
	pthread_t all[THREADS_MAX];
	CUcontext context;

	client_open("libcuda.so.1");
	client_start();
	MUST(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
	for (int i = 0; i < threads; i++)
		MUST(pthread_create(&all[i], NULL, take, context) == 0);
	for (int i = 0; i < threads; i++)
		pthread_join(all[i], NULL);
}

int main(int argc, char **argv)
{
	int processes = argc == 4 ? atoi(argv[1]) : 0, threads = argc == 4 ? atoi(argv[2]) : 0, status;

	MUST(processes > 0 && threads > 0 && threads <= THREADS_MAX);
	until = now_s() + atoi(argv[3]);
	for (int i = 0; i < processes; i++) {
		if (fork() != 0)
			continue;
		run(threads);
		_exit(0);
	}
	for (int i = 0; i < processes; i++)
		MUST(wait(&status) > 0 && status == 0);
	return 0;
}
