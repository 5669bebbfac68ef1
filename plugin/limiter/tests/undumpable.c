/* undumpable.c - a process that is not root and lets nobody look into it still counts itself. The limit is 64 MiB and
 * a context takes 4 MiB. Prints what is free at last. */
#define _GNU_SOURCE
#include <sys/prctl.h>
#include <unistd.h>

#include "client.h"

int main(void)
{
	CUdeviceptr at;

	client_open("libcuda.so.1");
	client_start();
	MUST(CU(cuMemAlloc_v2)(&at, 40 * MIB) == CUDA_SUCCESS);
	if (geteuid() == 0)
		MUST(setgid(65534) == 0 && setuid(65534) == 0);
	MUST(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
	/* Before a refusal it is looked at who lives. */
	MUST(CU(cuMemAlloc_v2)(&at, 21 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(CU(cuMemAlloc_v2)(&at, 20 * MIB) == CUDA_SUCCESS);
	MUST(CU(cuMemAlloc_v2)(&at, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	usleep(150000);			/* and when somebody asks, every 100 ms */
	printf("%llu\n", (unsigned long long)client_free());
	return 0;
}
