/* elsewhere.c - memory of another card's own pool counts there, also where nobody had seen the pool. Two cards of 64
 * MiB each; a context takes 4 MiB. */
#include "client.h"

int main(void)
{
	CUcontext first, second;
	CUmemoryPool pool;
	CUdeviceptr at;

	client_open("libcuda.so.1");
	MUST(CU(cuInit)(0) == CUDA_SUCCESS);
	MUST(CU(cuCtxCreate_v2)(&second, 0, 1) == CUDA_SUCCESS && CU(cuCtxCreate_v2)(&first, 0, 0) == CUDA_SUCCESS);
	MUST(CU(cuDeviceGetDefaultMemPool)(&pool, 1) == CUDA_SUCCESS);
	MUST(CU(cuMemAllocFromPoolAsync)(&at, 60 * MIB + 1, pool, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	MUST(CU(cuMemAllocFromPoolAsync)(&at, 50 * MIB, pool, NULL) == CUDA_SUCCESS);
	MUST(client_free() == 60 * MIB);
	MUST(CU(cuCtxSetCurrent)(second) == CUDA_SUCCESS && client_free() == 10 * MIB);
	MUST(CU(cuMemFreeAsync)(at, NULL) == CUDA_SUCCESS && client_free() == 60 * MIB);
	return 0;
}
