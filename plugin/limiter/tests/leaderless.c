/* leaderless.c - holds 50 MiB in a thread; the first one, by which the process is known, has ended. */
#include <pthread.h>
#include <unistd.h>

#include "client.h"

static void *hold(void *unused)
{
	CUdeviceptr at;

	client_start();
	MUST(CU(cuMemAlloc_v2)(&at, 50 * MIB) == CUDA_SUCCESS);
	puts("holding");
	fflush(stdout);
	for (;;)
		pause();
	return unused;
}

int main(void)
{
	pthread_t thread;

	client_open("libcuda.so.1");
	MUST(pthread_create(&thread, NULL, hold, NULL) == 0);
	pthread_exit(NULL);
}
