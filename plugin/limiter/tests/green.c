/* green.c - `green MIB`: so much of 1 MiB that was allocated in a green context counts when that has ended, with no
 * context current. A context takes 100 MiB. */
#include "client.h"

struct resource {
	unsigned char b[144];
};

CUresult cuDeviceGetDevResource(CUdevice device, struct resource *out, int type);
CUresult cuDevResourceGenerateDesc(void **out, struct resource *all, unsigned int number);
CUresult cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx green);

#define CONTEXT (100 * MIB)

int main(int argc, char **argv)
{
	struct resource resource;
	CUcontext primary, context;
	uint64_t before;
	CUgreenCtx green;
	CUdeviceptr at;
	void *description;

	client_open("libcuda.so.1");
	client_start();
	MUST(CU(cuCtxGetCurrent)(&primary) == CUDA_SUCCESS);
	MUST(CU(cuDeviceGetDevResource)(0, &resource, 1) == CUDA_SUCCESS);
	MUST(CU(cuDevResourceGenerateDesc)(&description, &resource, 1) == CUDA_SUCCESS);
	before = client_free();
	MUST(CU(cuGreenCtxCreate)(&green, description, 0, 1) == CUDA_SUCCESS);
	MUST(CU(cuCtxFromGreenCtx)(&context, green) == CUDA_SUCCESS && CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
	MUST(client_free() == before - CONTEXT && CU(cuMemAlloc_v2)(&at, MIB) == CUDA_SUCCESS);
	MUST(CU(cuCtxSetCurrent)(NULL) == CUDA_SUCCESS && CU(cuGreenCtxDestroy)(green) == CUDA_SUCCESS);
	MUST(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS && context == NULL);
	MUST(CU(cuCtxSetCurrent)(primary) == CUDA_SUCCESS && argc > 1);
	MUST(client_free() == before - MIB * (uint64_t)atoi(argv[1]));
	return 0;
}
