/* linked.c - a program that has libcuda.so.1 in its own list of libraries. */
#include "client.h"

int main(void)
{
	CUcontext context;
	CUdeviceptr at;

	MUST(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
	MUST(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	MUST(cuMemAlloc_v2(&at, 60 * MIB + 1) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(cuMemAlloc_v2(&at, 60 * MIB) == CUDA_SUCCESS);
	return 0;
}
