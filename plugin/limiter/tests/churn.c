/* churn.c - allocates and frees at random until it is killed, or for so many rounds: `churn 1000`.
 * With rounds it says how much is free at the end, all of its own given back. */
#include <string.h>

#include "client.h"

#define HELD 64

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : -1;
	CUdeviceptr held[HELD] = { 0 };
	unsigned int random = (unsigned int)(uintptr_t)&rounds | 1;
	__typeof__(&cuMemAlloc_v2) alloc;
	__typeof__(&cuMemFree_v2) release;

	client_open("libcuda.so.1");
	while (!client_try_start())	/* others may hold all of it for a moment */
		;
	alloc = CU(cuMemAlloc_v2);
	release = CU(cuMemFree_v2);
	for (long i = 0; rounds < 0 || i < rounds; i++) {
		unsigned int at;
		CUresult ret;

		random = random * 1664525 + 1013904223;
		at = random >> 16 & (HELD - 1);
		if (held[at] != 0) {
			MUST(release(held[at]) == CUDA_SUCCESS);
			held[at] = 0;
			continue;
		}
		ret = alloc(&held[at], 1 + (random >> 8) % (2 * MIB));
		if (ret != CUDA_SUCCESS)
			held[at] = 0;
		MUST(ret == CUDA_SUCCESS || ret == CUDA_ERROR_OUT_OF_MEMORY);
	}
	for (int i = 0; i < HELD; i++)
		if (held[i] != 0)
			MUST(release(held[i]) == CUDA_SUCCESS);
	printf("%llu\n", (unsigned long long)client_free());
	return 0;
}
