/* ways.c - each way in which a program may find the driver's functions, over the limit of 64 MiB. */
#define _GNU_SOURCE
#include <string.h>

#include "client.h"

static void refused(void *found)
{
	CUdeviceptr at;

	MUST(found != NULL);
	MUST(((__typeof__(&cuMemAlloc_v2))found)(&at, 64 * MIB + 1) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void by_handle(void *handle)
{
	MUST(handle != NULL);
	refused(dlsym(handle, "cuMemAlloc_v2"));
	refused(dlvsym(handle, "cuMemAlloc_v2", "libcuda.so.1"));
	MUST(dlvsym(handle, "cuMemAlloc_v2", "GLIBC_2.17") == NULL);
}

int main(void)
{
	/* The second copy has a thread's context of its own. */
	void *other = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);

	MUST(other != NULL);
	client_library = other;
	client_start();
	by_handle(other);
	client_open("libcuda.so.1");
	client_start();
	by_handle(client_library);
	by_handle(dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND | RTLD_LOCAL));
	MUST(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL);	/* neither ours nor the driver's */
	MUST(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) != NULL);
	refused(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
	refused(dlsym(RTLD_NEXT, "cuMemAlloc_v2"));	/* the first behind the program: ours */
	/* What only the driver has is found by nobody. */
	MUST(dlsym(RTLD_DEFAULT, "null_driver_alone") == NULL);
	MUST(dlsym(client_library, "null_driver_alone") == NULL);
	return 0;
}
