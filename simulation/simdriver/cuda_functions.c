/* cuda_functions.c - what is asked of functions and kernels; a kernel's handle is its function's. */
#define _GNU_SOURCE
#include <string.h>

#include "cuda_modules.h"

#define MAX_THREADS 1024
#define ATTRIBUTE_LAST 20
#define LOCAL_BYTES 3
#define BLOCKS_PER_MULTIPROCESSOR 16

static CUresult find(const char *call, const void *handle, struct cu_function_object **out)
{
	CUresult ret = cu_enter(call);

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	*out = (struct cu_function_object *)cu_find(CU_FUNCTION, cu_key(handle));
	cu_unlock();
	return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult attribute(const char *call, int *out, int which, const void *handle)
{
	struct cu_function_object *function;
	CUresult ret = find(call, handle, &function);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || which < 0 || which > ATTRIBUTE_LAST)
		return CUDA_ERROR_INVALID_VALUE;
	*out = which == 0 ? MAX_THREADS : which == LOCAL_BYTES ? function->local : 0;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetAttribute(int *out, int which, struct cu_function_object *handle)
{
	return attribute(__func__, out, which, handle);
}

SIM_API CUresult cuKernelGetAttribute(int *out, int which, struct cu_function_object *handle,
				      CUdevice device)
{
	(void)device;
	return attribute(__func__, out, which, handle);
}

SIM_API CUresult cuFuncSetAttribute(struct cu_function_object *handle, int which, int value)
{
	struct cu_function_object *function;

	(void)which;
	(void)value;
	return find(__func__, handle, &function);
}

SIM_API CUresult cuFuncGetModule(struct cu_module **out, struct cu_function_object *handle)
{
	struct cu_function_object *function;
	CUresult ret = find(__func__, handle, &function);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = function->module;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetName(const char **out, struct cu_function_object *handle)
{
	struct cu_function_object *function;
	CUresult ret = find(__func__, handle, &function);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = function->name;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuKernelGetName(const char **out, struct cu_function_object *handle)
{
	return cuFuncGetName(out, handle);
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, struct cu_function_object *handle,
							     int threads, size_t shared)
{
	struct cu_function_object *function;
	CUresult ret = find(__func__, handle, &function);

	(void)shared;
	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	*out = threads > MAX_THREADS ? 0 : MAX_THREADS / threads < BLOCKS_PER_MULTIPROCESSOR ?
		MAX_THREADS / threads : BLOCKS_PER_MULTIPROCESSOR;
	return CUDA_SUCCESS;
}
