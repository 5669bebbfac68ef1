/* cuda_copy.c - copies check their ranges; what is read from a card is zeros.
 *
 * One that is not asynchronous waits for the default stream. Others take no time in their stream. */
#include <string.h>

#include "cuda_engine.h"

static CUresult check(const char *call, CUdeviceptr at, size_t bytes)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(call, &ctx);
	bool valid;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	valid = cu_range_valid(at, bytes);
	cu_unlock();
	return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_and_wait(const char *call, CUdeviceptr at, size_t bytes)
{
	CUresult ret = check(call, at, bytes);
	struct cu_stream *stream;

	if (ret == CUDA_SUCCESS)
		ret = cu_enter_stream(call, NULL, &stream);
	if (ret == CUDA_SUCCESS)
		cu_wait_stream(stream);
	return ret;
}

static CUresult read_zeros(const char *call, void *to, CUdeviceptr from, size_t bytes)
{
	CUresult ret = check(call, from, bytes);

	if (ret == CUDA_SUCCESS && to != NULL)
		memset(to, 0, bytes);
	return ret;
}

SIM_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	return from == NULL ? CUDA_ERROR_INVALID_VALUE : check_and_wait(__func__, to, bytes);
}

SIM_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
				      CUstream stream)
{
	(void)stream;
	return from == NULL ? CUDA_ERROR_INVALID_VALUE : check(__func__, to, bytes);
}

SIM_API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	CUresult ret = to == NULL ? CUDA_ERROR_INVALID_VALUE : check_and_wait(__func__, from, bytes);

	return ret != CUDA_SUCCESS ? ret : read_zeros(__func__, to, from, bytes);
}

SIM_API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	(void)stream;
	return to == NULL ? CUDA_ERROR_INVALID_VALUE : read_zeros(__func__, to, from, bytes);
}

SIM_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	CUresult ret = check(__func__, to, bytes);

	return ret != CUDA_SUCCESS ? ret : check(__func__, from, bytes);
}

SIM_API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes)
{
	(void)value;
	return check(__func__, to, bytes);
}
