/* cuda_wait.c - where a program waits for the card: what it launched is charged, and what pools gave back
 * is counted, for there the driver gives back what they keep too much of.
 *
 * So the work of a program that ends after its last result has been charged too, and idle time that
 * follows a wait is in no segment. */
#include "account.h"
#include "gpu_time.h"
#include "local.h"

/* The program waits for a copy from the card, behind all of the default stream. */
#define COPIED(name, per_thread, ...)                                                             \
	do {                                                                                      \
		struct gpu_place place;                                                           \
		CUresult ret;                                                                     \
		if (NESTED)                                                                       \
			return DRIVER(name)(__VA_ARGS__);                                         \
		place = gpu_time_close(NULL, per_thread);                                         \
		ret = CALL(name, __VA_ARGS__);                                                    \
		gpu_time_settle_at(place);                                                        \
		return ret;                                                                       \
	} while (0)

/* The program waits for the work before `closes`, which ends what is measured of it. */
#define WAITED(closes, name, ...)                                                                 \
	do {                                                                                      \
		struct gpu_place place;                                                           \
		if (NESTED)                                                                       \
			return DRIVER(name)(__VA_ARGS__);                                         \
		place = closes;                                                                   \
		return waited(CALL(name, __VA_ARGS__), place);                                    \
	} while (0)

/* The program marks a place in the stream, to wait there or for it: what is being measured ends before it. */
#define BEHIND(how, name, stream, per_thread, ...)                                                    \
	do {                                                                                      \
		if (NESTED)                                                                       \
			return DRIVER(name)(__VA_ARGS__);                                         \
		gpu_time_##how(stream, per_thread);                                               \
		return CALL(name, __VA_ARGS__);                                                   \
	} while (0)

static CUresult waited(CUresult ret, struct gpu_place place)
{
	gpu_time_settle_at(place);
	if (ret == CUDA_SUCCESS)
		accounts_synchronised();
	return ret;
}

CUresult EXPORT cuStreamSynchronize(CUstream stream)
{
	WAITED(gpu_time_close(stream, false), cuStreamSynchronize, stream);
}

CUresult EXPORT cuStreamSynchronize_ptsz(CUstream stream)
{
	WAITED(gpu_time_close(stream, true), cuStreamSynchronize_ptsz, stream);
}

CUresult EXPORT cuCtxSynchronize(void)
{
	WAITED(gpu_time_close_all(), cuCtxSynchronize);
}

CUresult EXPORT cuCtxSynchronize_v2(CUcontext context)
{
	WAITED(gpu_time_close_all(), cuCtxSynchronize_v2, context);
}

CUresult EXPORT cuEventSynchronize(CUevent event)
{
	WAITED((struct gpu_place){ 0 }, cuEventSynchronize, event);
}

/* It may be asked again and again. */
static CUresult asked(CUresult ret)
{
	if (ret == CUDA_SUCCESS)
		gpu_time_settle();
	return ret;
}

CUresult EXPORT cuStreamQuery(CUstream stream)
{
	if (NESTED)
		return DRIVER(cuStreamQuery)(stream);
	gpu_time_mark(stream, false);
	return asked(CALL(cuStreamQuery, stream));
}

CUresult EXPORT cuStreamQuery_ptsz(CUstream stream)
{
	if (NESTED)
		return DRIVER(cuStreamQuery_ptsz)(stream);
	gpu_time_mark(stream, true);
	return asked(CALL(cuStreamQuery_ptsz, stream));
}

CUresult EXPORT cuEventRecord(CUevent event, CUstream stream)
{
	BEHIND(mark, cuEventRecord, stream, false, event, stream);
}

CUresult EXPORT cuEventRecord_ptsz(CUevent event, CUstream stream)
{
	BEHIND(mark, cuEventRecord_ptsz, stream, true, event, stream);
}

CUresult EXPORT cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	BEHIND(mark, cuEventRecordWithFlags, stream, false, event, stream, flags);
}

CUresult EXPORT cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags)
{
	BEHIND(mark, cuEventRecordWithFlags_ptsz, stream, true, event, stream, flags);
}

CUresult EXPORT cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	BEHIND(close, cuStreamWaitEvent, stream, false, stream, event, flags);
}

CUresult EXPORT cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
	BEHIND(close, cuStreamWaitEvent_ptsz, stream, true, stream, event, flags);
}

CUresult EXPORT cuStreamDestroy(CUstream stream)
{
	if (NESTED)
		return DRIVER(cuStreamDestroy)(stream);
	gpu_time_stream_ends(stream);
	local_stream_ends();
	return CALL(cuStreamDestroy, stream);
}

CUresult EXPORT cuStreamDestroy_v2(CUstream stream)
{
	if (NESTED)
		return DRIVER(cuStreamDestroy_v2)(stream);
	gpu_time_stream_ends(stream);
	local_stream_ends();
	return CALL(cuStreamDestroy_v2, stream);
}

CUresult EXPORT cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	COPIED(cuMemcpyDtoH_v2, false, to, from, bytes);
}

CUresult EXPORT cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t bytes)
{
	COPIED(cuMemcpyDtoH_v2_ptds, true, to, from, bytes);
}
