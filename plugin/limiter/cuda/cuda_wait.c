/* cuda_wait.c - where a program waits for the card: what it launched is charged, and what pools gave back
 * is counted, for there the driver gives back what they keep too much of.
 *
 * So the work of a program that ends after its last result has been charged too, and idle time that
 * follows a wait is in no segment. */
#include "account.h"
#include "gpu_time.h"

#define COPIED(name, ...)                                                                         \
	do {                                                                                      \
		CUresult ret = CALL(name, __VA_ARGS__);                                           \
		gpu_time_settle();                                                                \
		return ret;                                                                       \
	} while (0)

static CUresult waited(CUresult ret)
{
	gpu_time_settle();
	if (ret == CUDA_SUCCESS)
		accounts_synchronised();
	return ret;
}

CUresult EXPORT cuStreamSynchronize(CUstream stream)
{
	if (NESTED)
		return DRIVER(cuStreamSynchronize)(stream);
	gpu_time_close(stream, false);
	return waited(CALL(cuStreamSynchronize, stream));
}

CUresult EXPORT cuStreamSynchronize_ptsz(CUstream stream)
{
	if (NESTED)
		return DRIVER(cuStreamSynchronize_ptsz)(stream);
	gpu_time_close(stream, true);
	return waited(CALL(cuStreamSynchronize_ptsz, stream));
}

/* Of other streams than the default one nobody knows here whether they still live. */
CUresult EXPORT cuCtxSynchronize(void)
{
	if (NESTED)
		return DRIVER(cuCtxSynchronize)();
	gpu_time_close(NULL, false);
	return waited(CALL(cuCtxSynchronize));
}

CUresult EXPORT cuCtxSynchronize_v2(CUcontext context)
{
	if (NESTED)
		return DRIVER(cuCtxSynchronize_v2)(context);
	gpu_time_close(NULL, false);
	return waited(CALL(cuCtxSynchronize_v2, context));
}

CUresult EXPORT cuEventSynchronize(CUevent event)
{
	if (NESTED)
		return DRIVER(cuEventSynchronize)(event);
	return waited(CALL(cuEventSynchronize, event));
}

CUresult EXPORT cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	if (NESTED)
		return DRIVER(cuMemcpyDtoH_v2)(to, from, bytes);
	gpu_time_close(NULL, false);
	COPIED(cuMemcpyDtoH_v2, to, from, bytes);
}

CUresult EXPORT cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t bytes)
{
	if (NESTED)
		return DRIVER(cuMemcpyDtoH_v2_ptds)(to, from, bytes);
	gpu_time_close(NULL, true);
	COPIED(cuMemcpyDtoH_v2_ptds, to, from, bytes);
}
