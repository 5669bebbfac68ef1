/* exported.c - backing that something else may keep counts after its release. The limit is 64 MiB and a context
 * takes 4 MiB. */
#include "client.h"

#define LEFT (60 * MIB)

static CUmemGenericAllocationHandle backing(void)
{
	struct CUmem_allocation_prop card = { .type = 1, .location = { CU_MEM_LOCATION_DEVICE, 0 } };
	CUmemGenericAllocationHandle handle;

	MUST(CU(cuMemCreate)(&handle, MIB, &card, 0) == CUDA_SUCCESS);
	return handle;
}

/* What is free after the release: less by what something else keeps. */
static uint64_t released(CUmemGenericAllocationHandle handle)
{
	MUST(CU(cuMemRelease)(handle) == CUDA_SUCCESS);
	return client_free();
}

/* What is bound to a multicast object counts until it is taken back by the very same numbers. */
static void bound(uint64_t left)
{
	CUmemGenericAllocationHandle handle = backing(), other = backing();

	MUST(CU(cuMulticastBindMem)(0, 0, handle, 0, MIB, 0) == CUDA_ERROR_INVALID_VALUE);
	MUST(CU(cuMulticastBindMem)(1, 0, handle, 0, MIB, 0) == CUDA_SUCCESS);
	MUST(CU(cuMulticastBindMem)(1, MIB, handle, 0, MIB, 0) == CUDA_SUCCESS);
	MUST(CU(cuMulticastBindMem)(2, 0, other, 0, MIB, 0) == CUDA_SUCCESS);
	MUST(released(handle) == left - 2 * MIB && released(other) == left - 2 * MIB);
	MUST(CU(cuMulticastUnbind)(1, 0, 0, MIB) == CUDA_SUCCESS && client_free() == left - 2 * MIB);
	MUST(CU(cuMulticastUnbind)(1, 0, 0, MIB) == CUDA_SUCCESS && client_free() == left - 2 * MIB);
	MUST(CU(cuMulticastUnbind)(2, 1, 0, MIB) == CUDA_ERROR_INVALID_VALUE);
	MUST(CU(cuMulticastUnbind)(1, 0, MIB, MIB) == CUDA_SUCCESS && client_free() == left - MIB);
	MUST(CU(cuMulticastUnbind)(2, 0, 0, MIB) == CUDA_SUCCESS && client_free() == left);
}

/* Bound twice by the same numbers: the first object was released, and may still be there. */
static void bound_again(uint64_t left)
{
	CUmemGenericAllocationHandle first = backing(), second = backing();

	MUST(CU(cuMulticastBindMem)(1, 0, first, 0, MIB, 0) == CUDA_SUCCESS);
	MUST(CU(cuMulticastBindMem)(1, 0, second, 0, MIB, 0) == CUDA_SUCCESS);
	MUST(CU(cuMulticastUnbind)(1, 0, 0, MIB) == CUDA_SUCCESS);
	MUST(released(first) == left - 2 * MIB && released(second) == left - 2 * MIB);
}

/* The backing of mappings, of which the first begins before what is bound, and of one beside it. */
static void bound_by_address(uint64_t left)
{
	CUmemGenericAllocationHandle pieces[21], beside = backing();

	for (int i = 0; i < 21; i++) {
		pieces[i] = backing();
		MUST(CU(cuMemMap)((1 << 30) + i * MIB, MIB, 0, pieces[i], 0) == CUDA_SUCCESS);
	}
	MUST(CU(cuMemMap)((1 << 30) + 21 * MIB, MIB, 0, beside, 0) == CUDA_SUCCESS);
	MUST(CU(cuMulticastBindAddr)(1, 0, (1 << 30) + MIB / 2, 20 * MIB, 0) == CUDA_SUCCESS);
	MUST(CU(cuMemUnmap)(1 << 30, 22 * MIB) == CUDA_SUCCESS);
	for (int i = 0; i < 21; i++)
		MUST(released(pieces[i]) == left - 22 * MIB);
	MUST(released(beside) == left - 21 * MIB);
	MUST(CU(cuMulticastUnbind)(1, 0, 0, 20 * MIB) == CUDA_SUCCESS && client_free() == left);
}

static void in_arrays(uint64_t left)
{
	struct CUarray3d_descriptor wanted = { 1024, 1024, 0, 0x20, 4, CU_ARRAY3D_SPARSE };
	CUmemGenericAllocationHandle first = backing(), second = backing();
	struct CUarray_map maps[3] = { { .operation = 1, .handle = first }, { .operation = 1, .handle = second },
				       { .operation = 2 } };
	CUmipmappedArray mipmap;
	CUarray array;

	MUST(CU(cuArray3DCreate_v2)(&array, &wanted) == CUDA_SUCCESS);
	MUST(CU(cuMipmappedArrayCreate)(&mipmap, &wanted, 1) == CUDA_SUCCESS);
	maps[0].array = maps[1].array = maps[2].array = array;
	MUST(CU(cuMemMapArrayAsync)(maps, 3, NULL) == CUDA_SUCCESS);
	MUST(CU(cuMemMapArrayAsync)(maps, 1, NULL) == CUDA_SUCCESS);	/* again: the same reference */
	maps[0].array = mipmap;
	MUST(CU(cuMemMapArrayAsync)(maps, 1, NULL) == CUDA_SUCCESS);
	MUST(released(first) == left - 2 * MIB && released(second) == left - 2 * MIB);
	MUST(CU(cuArrayDestroy)(array) == CUDA_SUCCESS && client_free() == left - MIB);
	MUST(CU(cuMipmappedArrayDestroy)(mipmap) == CUDA_SUCCESS && client_free() == left);
}

int main(void)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	uint64_t left;
	int file;

	client_open("libcuda.so.1");
	client_start();
	left = LEFT;
	MUST(client_free() == left && released(backing()) == left);
	handle = backing();
	MUST(CU(cuMemExportToShareableHandle)(&file, handle, 7, 0) == CUDA_ERROR_INVALID_VALUE);
	MUST(released(handle) == left);
	in_arrays(left);
	handle = backing();
	for (int i = 0; i < 3; i++)
		MUST(CU(cuMemExportToShareableHandle)(&file, handle, 1, 0) == CUDA_SUCCESS);
	MUST(released(handle) == (left -= MIB));
	bound(left);
	bound_by_address(left);
	bound_again(left);
	left -= 2 * MIB;
	MUST(CU(cuMemAlloc_v2)(&at, MIB) == CUDA_SUCCESS);
	MUST(CU(cuMemGetHandleForAddressRange)(&file, at, MIB, 1, 0) == CUDA_SUCCESS);
	MUST(CU(cuMemFree_v2)(at) == CUDA_SUCCESS && client_free() == (left -= MIB));
	MUST(CU(cuMemAlloc_v2)(&at, left + 1) == CUDA_ERROR_OUT_OF_MEMORY);
	return 0;
}
