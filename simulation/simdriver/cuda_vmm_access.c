/* cuda_vmm_access.c - who may use a mapping, and in which steps memory is backed. */
#include "cuda_objects.h"

#define GRANULARITY (2 * SIM_MIB)
#define READ_WRITE 3

SIM_API CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const void *access, size_t count)
{
	CUresult ret = cu_enter(__func__);
	bool mapped;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	mapped = cu_find_at(CU_MAPPING, at) != NULL;
	cu_unlock();
	return mapped && bytes > 0 && access != NULL && count > 0 ? CUDA_SUCCESS :
		CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuMemGetAccess(unsigned long long *flags, const void *location, CUdeviceptr at)
{
	CUresult ret = cu_enter(__func__);
	bool mapped;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	mapped = cu_find_at(CU_MAPPING, at) != NULL;
	cu_unlock();
	if (!mapped || flags == NULL || location == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = READ_WRITE;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuMemGetAllocationGranularity(size_t *out, const void *properties, int option)
{
	CUresult ret = cu_enter(__func__);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || properties == NULL || option < 0 || option > 1)
		return CUDA_ERROR_INVALID_VALUE;
	*out = GRANULARITY;
	return CUDA_SUCCESS;
}
