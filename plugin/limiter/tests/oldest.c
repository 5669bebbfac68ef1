/* oldest.c - takes memory by the forms of CUDA 2 and 3.0, which each driver still exports: pointers and sizes of 32 bits. */
#include "client.h"

#define LEFT (60 * MIB)			/* a limit of 64 MiB, and a context of 4 */
#define OOM CUDA_ERROR_OUT_OF_MEMORY

static void plain(void)
{
	CUdeviceptr_v1 at, more, row;
	unsigned int pitch;

	MUST(CU(cuMemAlloc)(&at, LEFT - MIB) == CUDA_SUCCESS && client_free() == MIB);
	MUST(CU(cuMemAlloc)(&more, MIB + 1) == OOM && client_free() == MIB);
	MUST(CU(cuMemAllocPitch)(&row, &pitch, 700, 1024, 4) == CUDA_SUCCESS && pitch == 768);
	MUST(client_free() == 256 * 1024 && CU(cuMemAllocPitch)(&more, &pitch, 700, 1024, 4) == OOM);
	MUST(CU(cuMemFree)(row) == CUDA_SUCCESS && CU(cuMemFree)(at) == CUDA_SUCCESS && client_free() == LEFT);
}

static void arrays(void)
{
	struct CUarray_descriptor_v1 flat = { MIB / 16, LEFT / MIB, 0x20, 4 };
	struct CUarray3d_descriptor_v1 deep = { 1024, 1024, LEFT / MIB, 0x01, 1, 0 };
	CUarray array, more;

	MUST(CU(cuArrayCreate)(&array, &flat) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuArray3DCreate)(&more, &deep) == OOM && CU(cuArrayDestroy)(array) == CUDA_SUCCESS);
	MUST(CU(cuArray3DCreate)(&array, &deep) == CUDA_SUCCESS && client_free() == 0);
	MUST(CU(cuArrayCreate)(&more, &flat) == OOM && CU(cuArrayDestroy)(array) == CUDA_SUCCESS);
	MUST(client_free() == LEFT);
}

static void sizes(void)
{
	unsigned int left, total;

	MUST(CU(cuMemGetInfo)(&left, &total) == CUDA_SUCCESS && left == LEFT && total == LEFT + 4 * MIB);
	MUST(CU(cuDeviceTotalMem)(&total, 0) == CUDA_SUCCESS && total == LEFT + 4 * MIB);
}

int main(void)
{
	client_open("libcuda.so.1");
	client_start();
	plain();
	arrays();
	sizes();
	return 0;
}
