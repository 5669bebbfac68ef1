/* cuda_sync.c - waiting for streams and contexts; pools give back what they need no longer. */
#include "cuda_graph.h"

static void synchronised(struct cu_dev *dev)
{
	cu_lock();
	cu_pools_synchronised(dev);
	cu_unlock();
}

/* A stream that captures has nothing to wait for. */
static CUresult may_wait(struct cu_stream *stream)
{
	struct cu_graph *capture = cu_capture_of(stream);

	if (capture == NULL)
		return cu_unsafe();
	capture->invalid = true;
	return CUDA_ERROR_CAPTURE_UNSUPPORTED;
}

SIM_API CUresult cuStreamSynchronize(CUstream handle)
{
	struct cu_stream *stream;
	CUresult ret = cu_enter_stream(__func__, handle, &stream);

	if (ret == CUDA_SUCCESS)
		ret = may_wait(stream);
	if (ret != CUDA_SUCCESS)
		return ret;
	cu_wait_stream(stream);
	synchronised(stream->object.dev);
	return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamQuery(CUstream handle)
{
	struct cu_stream *stream;
	CUresult ret = cu_enter_stream(__func__, handle, &stream);

	if (ret == CUDA_SUCCESS)
		ret = may_wait(stream);
	if (ret != CUDA_SUCCESS)
		return ret;
	return cu_stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

struct busy {
	CUcontext ctx;
	struct cu_stream *stream;
};

static void find_busy(struct cu_stream *stream, void *data)
{
	struct busy *busy = data;

	if (stream->object.ctx == busy->ctx && !stream->ended &&
	    (stream->done < stream->given || stream->until > sim_now_ns()))
		busy->stream = stream;
}

static CUresult synchronise(CUcontext ctx)
{
	CUresult ret = cu_unsafe();

	if (ret != CUDA_SUCCESS)
		return ret;
	for (;;) {
		struct busy busy = { ctx, NULL };

		cu_engine_lock();
		cu_engine_each(find_busy, &busy);
		cu_engine_unlock();
		if (busy.stream == NULL)
			break;
		cu_wait_stream(busy.stream);
	}
	synchronised(ctx->dev);
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSynchronize(void)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(__func__, &ctx);

	return ret != CUDA_SUCCESS ? ret : synchronise(ctx);
}

SIM_API CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	CUresult ret = cu_enter(__func__);
	bool lives;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	lives = cu_lives(ctx);
	cu_unlock();
	return lives ? synchronise(ctx) : CUDA_ERROR_INVALID_CONTEXT;
}
