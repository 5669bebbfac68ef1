/* cuda_streams.c - streams: the default one of each context, and own ones. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "cuda_engine.h"

#define LEGACY 1			/* handles that stand for the default stream */
#define PER_THREAD 2
#define NON_BLOCKING 1U
#define HIGHEST_PRIORITY (-5)

static void drop_stream(struct cu_object *object)
{
	struct cu_stream *stream = (struct cu_stream *)object;

	if (stream->object.ctx->stream == stream)
		stream->object.ctx->stream = NULL;
	cu_engine_remove(stream, false);
}

static void finish_stream(struct cu_object *object)
{
	cu_engine_remove((struct cu_stream *)object, true);
}

CUresult cu_stream_make(const char *call, unsigned int flags, int priority, struct cu_stream **out)
{
	struct cu_object *object;
	struct cu_stream *stream;
	CUresult ret;

	if (out == NULL || flags > NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	ret = cu_make(call, CU_STREAM, sizeof(**out), &object);
	if (ret != CUDA_SUCCESS)
		return ret;
	stream = (struct cu_stream *)object;
	object->drop = drop_stream;
	stream->flags = flags;
	stream->priority = priority > 0 ? 0 :
		priority < HIGHEST_PRIORITY ? HIGHEST_PRIORITY : priority;
	ret = cu_keep(object);
	if (ret != CUDA_SUCCESS)
		return ret;
	cu_engine_add(stream);
	*out = stream;
	return CUDA_SUCCESS;
}

static CUresult default_stream(const char *call, struct cu_stream **out)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(call, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (ctx->stream == NULL) {
		ret = cu_stream_make(call, 0, 0, out);
		if (ret != CUDA_SUCCESS)
			return ret;
		ctx->stream = *out;
	}
	*out = ctx->stream;
	return CUDA_SUCCESS;
}

CUresult cu_enter_stream(const char *call, struct cu_stream *handle, struct cu_stream **out)
{
	CUresult ret;

	if (cu_key(handle) <= PER_THREAD)
		return default_stream(call, out);
	ret = cu_enter(call);
	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	*out = (struct cu_stream *)cu_find(CU_STREAM, cu_key(handle));
	cu_unlock();
	if (*out == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	return sim_lost((*out)->object.dev->card->entry) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cu_ask_stream(const char *call, struct cu_stream *handle, const void *answer, struct cu_stream **out)
{
	CUresult ret = cu_enter_stream(call, handle, out);

	return ret == CUDA_SUCCESS && answer == NULL ? CUDA_ERROR_INVALID_VALUE : ret;
}

SIM_API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	return cu_stream_make(__func__, flags, priority, out);
}

SIM_API CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	return cu_stream_make(__func__, flags, 0, out);
}

/* Returns at once; what was submitted is still done. */
SIM_API CUresult cuStreamDestroy_v2(CUstream handle)
{
	CUresult ret = cu_enter(__func__);
	struct cu_object *object;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	object = cu_find(CU_STREAM, cu_key(handle));
	if (object == NULL) {
		ret = CUDA_ERROR_INVALID_HANDLE;
	} else {
		object->drop = finish_stream;
		cu_drop(object);
	}
	cu_unlock();
	return ret;
}

SIM_API CUresult cuStreamGetFlags(CUstream handle, unsigned int *out)
{
	struct cu_stream *stream;
	CUresult ret = cu_ask_stream(__func__, handle, out, &stream);

	if (ret != CUDA_SUCCESS)
		return ret;
	*out = stream->flags;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetPriority(CUstream handle, int *out)
{
	struct cu_stream *stream;
	CUresult ret = cu_ask_stream(__func__, handle, out, &stream);

	if (ret != CUDA_SUCCESS)
		return ret;
	*out = stream->priority;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetId(CUstream handle, unsigned long long *out)
{
	struct cu_stream *stream;
	CUresult ret = cu_ask_stream(__func__, handle, out, &stream);

	if (ret != CUDA_SUCCESS)
		return ret;
	*out = cu_key(stream);
	return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetCtx(CUstream handle, CUcontext *out)
{
	struct cu_stream *stream;
	CUresult ret = cu_ask_stream(__func__, handle, out, &stream);

	if (ret != CUDA_SUCCESS)
		return ret;
	*out = stream->object.ctx;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetDevice(CUstream handle, CUdevice *out)
{
	struct cu_stream *stream;
	CUresult ret = cu_ask_stream(__func__, handle, out, &stream);

	if (ret != CUDA_SUCCESS)
		return ret;
	*out = cu_dev_index(stream->object.dev);
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(__func__, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (least != NULL)
		*least = 0;
	if (greatest != NULL)
		*greatest = HIGHEST_PRIORITY;
	return CUDA_SUCCESS;
}
