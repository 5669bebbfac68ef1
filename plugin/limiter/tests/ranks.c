/* ranks.c - one rank of a program whose kernels wait for those of another one: `ranks SECONDS DEPTH`. It launches DEPTH
 * kernels and waits for them, again and again, and for the last ones no longer than until both have ended. It prints how
 * many kernels were over in that time, and how many calls the driver got for each, the program's own apart. */
#include <unistd.h>

#include "client.h"
#include "ranks.h"

int main(int argc, char **argv)
{
	uint64_t until = now_ns() + (uint64_t)(atof(argc > 1 ? argv[1] : "1") * 1e9), before, own = 0;
	int depth = atoi(argc > 2 ? argv[2] : "1");
	struct ranks *ranks = ranks_map();
	__typeof__(&cuStreamSynchronize) synchronize;
	__typeof__(&cuLaunchKernel) launch;
	unsigned int rank, launches = 0;

	client_open("libcuda.so.1");
	client_start();
	launch = CU(cuLaunchKernel);
	synchronize = CU(cuStreamSynchronize);
	rank = setting("RANK") != 0;
	for (before = ranks->calls[rank]; now_ns() < until; own++) {
		for (int i = 0; i < depth; i++, launches++)
			MUST(launch((void *)0x77, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
		printf("%u %.2f\n", launches, (double)(ranks->calls[rank] - before - own) / launches);
		fflush(stdout);
		MUST(synchronize(NULL) == CUDA_SUCCESS);
	}
	return 0;
}
