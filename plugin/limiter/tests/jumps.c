/* jumps.c - a handler of a signal leaves the driver by siglongjmp, or calls it: what comes then counts as before.
 * The limit is 64 MiB and a context takes 4 MiB. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include "client.h"

#define STUCK (32 * MIB + 3)		/* an allocation that does not come back (nulldriver.c) */

static sigjmp_buf before;
static int jump;
static CUresult within;

static void handler(int signal)
{
	CUdeviceptr at;

	(void)signal;
	if (jump)
		siglongjmp(before, 1);
	within = CU(cuMemAlloc_v2)(&at, 60 * MIB);	/* below a call that has 32 MiB reserved */
	jump = 1;
	alarm(1);
}

static void leave(void)
{
	CUdeviceptr at;

	alarm(1);
	if (sigsetjmp(before, 1) == 0)
		CU(cuMemAlloc_v2)(&at, STUCK);
}

/* Deep below the frame that was left, which nothing has written to meanwhile. */
static CUresult deep(CUdeviceptr *at, uint64_t bytes)
{
	volatile char untouched[1 << 16];
	CUresult ret = CU(cuMemAlloc_v2)(at, bytes);

	untouched[0] = (char)ret;
	return untouched[0];
}

int main(void)
{
	CUdeviceptr at, more;
	uint64_t left;

	client_open("libcuda.so.1");
	client_start();
	signal(SIGALRM, handler);
	leave();
	MUST(within == CUDA_ERROR_OUT_OF_MEMORY);
	left = client_free();
	MUST(left == 60 * MIB - STUCK);		/* what was left stays counted */
	MUST(deep(&at, left + 1) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(CU(cuMemAlloc_v2)(&at, left + 1) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(deep(&at, MIB) == CUDA_SUCCESS && client_free() == left - MIB);
	MUST(CU(cuMemAllocManaged)(&more, MIB, 1) == CUDA_SUCCESS && client_free() == left - 2 * MIB);
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS && CU(cuMemFree_v2)(more) == CUDA_SUCCESS);
	MUST(client_free() == left);
	return 0;
}
