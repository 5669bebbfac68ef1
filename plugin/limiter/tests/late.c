/* late.c - a program that has no descriptor left when it first asks for memory gets none, and later it does. */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <unistd.h>

#include "client.h"

int main(void)
{
	struct rlimit before, none;
	int tries = 0;

	client_open("libcuda.so.1");
	MUST(CU(cuInit)(0) == CUDA_SUCCESS && getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = before;
	none.rlim_cur = 0;
	MUST(setrlimit(RLIMIT_NOFILE, &none) == 0 && !client_try_start());
	MUST(setrlimit(RLIMIT_NOFILE, &before) == 0);
	for (; !client_try_start(); tries++) {
		MUST(tries < 100);
		usleep(20000);
	}
	MUST(client_free() == 60 * MIB);
	return 0;
}
