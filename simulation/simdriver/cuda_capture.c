/* cuda_capture.c - which streams capture, and what may not happen meanwhile. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>

#include "cuda_graph.h"

enum { MODE_GLOBAL = 0, MODE_THREAD_LOCAL = 1, MODE_RELAXED = 2 };
enum { STATUS_NONE = 0, STATUS_ACTIVE = 1, STATUS_INVALIDATED = 2 };

static _Atomic int captures;		/* of all streams: unsafe calls need not look where there is none */
static _Atomic uint64_t begun;		/* captures since the process's start */
static __thread int thread_mode = MODE_GLOBAL;

struct search {
	bool found;
};

struct cu_graph *cu_capture_of(struct cu_stream *stream)
{
	return captures > 0 ? stream->capture : NULL;
}

CUresult cu_captured(struct cu_stream *stream, struct cu_node node)
{
	CUresult ret = CUDA_ERROR_CAPTURE_INVALIDATED;

	cu_lock();
	if (stream->capture != NULL && !stream->capture->invalid)	/* another thread may have ended it by now */
		ret = cu_graph_add(stream->capture, node, NULL);
	cu_unlock();
	return ret;
}

/* A capture that the calling thread may not disturb is no longer valid. */
static void disturb(struct cu_stream *stream, void *data)
{
	struct cu_graph *capture = stream->capture;
	bool own = stream->capture_thread == (unsigned long)pthread_self();

	if (capture == NULL || stream->capture_mode == MODE_RELAXED ||
	    (!own && (stream->capture_mode == MODE_THREAD_LOCAL || thread_mode == MODE_THREAD_LOCAL)))
		return;
	capture->invalid = true;
	((struct search *)data)->found = true;
}

CUresult cu_unsafe(void)
{
	struct search search = { false };

	if (captures == 0 || thread_mode == MODE_RELAXED)
		return CUDA_SUCCESS;
	cu_engine_lock();
	cu_engine_each(disturb, &search);
	cu_engine_unlock();
	return search.found ? CUDA_ERROR_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

SIM_API CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
	int before = thread_mode;
	CUresult ret = cu_enter(__func__);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (mode == NULL || *mode < MODE_GLOBAL || *mode > MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

/* Of the default stream there is no capture. */
SIM_API CUresult cuStreamBeginCapture_v2(CUstream handle, int mode)
{
	struct cu_stream *stream;
	CUresult ret = cu_enter_stream(__func__, handle, &stream);
	struct cu_graph *graph;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (handle == NULL)
		return CUDA_ERROR_CAPTURE_UNSUPPORTED;
	if (mode < MODE_GLOBAL || mode > MODE_RELAXED || stream->capture != NULL)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	graph = cu_graph_new(CU_GRAPH);
	cu_unlock();
	if (graph == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->capture_id = ++begun;
	stream->capture_mode = mode;
	stream->capture_thread = (unsigned long)pthread_self();
	stream->capture = graph;
	captures++;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamEndCapture(CUstream handle, struct cu_graph **out)
{
	struct cu_stream *stream;
	CUresult ret = cu_enter_stream(__func__, handle, &stream);
	struct cu_graph *graph;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	graph = stream->capture;
	if (graph == NULL || out == NULL) {
		ret = CUDA_ERROR_INVALID_VALUE;
	} else {
		stream->capture = NULL;
		captures--;
		*out = graph;
		if (graph->invalid) {
			cu_drop(&graph->object);
			*out = NULL;
			ret = CUDA_ERROR_CAPTURE_INVALIDATED;
		}
	}
	cu_unlock();
	return ret;
}

static int status_of(const struct cu_stream *stream)
{
	if (stream->capture == NULL)
		return STATUS_NONE;
	return stream->capture->invalid ? STATUS_INVALIDATED : STATUS_ACTIVE;
}

SIM_API CUresult cuStreamIsCapturing(CUstream handle, int *out)
{
	struct cu_stream *stream;
	CUresult ret = cu_ask_stream(__func__, handle, out, &stream);

	if (ret != CUDA_SUCCESS)
		return ret;
	*out = status_of(stream);
	return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetCaptureInfo_v2(CUstream handle, int *status, uint64_t *id,
					   struct cu_graph **graph, const void ***dependencies,
					   size_t *count)
{
	struct cu_stream *stream;
	CUresult ret = cu_ask_stream(__func__, handle, status, &stream);

	if (ret != CUDA_SUCCESS)
		return ret;
	*status = status_of(stream);
	if (id != NULL)
		*id = *status == STATUS_ACTIVE ? stream->capture_id : 0;
	if (graph != NULL)
		*graph = stream->capture;
	if (dependencies != NULL)
		*dependencies = NULL;
	if (count != NULL)
		*count = 0;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetCaptureInfo(CUstream handle, int *status, uint64_t *id)
{
	return cuStreamGetCaptureInfo_v2(handle, status, id, NULL, NULL, NULL);
}

SIM_API CUresult cuStreamGetCaptureInfo_v3(CUstream handle, int *status, uint64_t *id,
					   struct cu_graph **graph, const void ***dependencies,
					   const void **edges, size_t *count)
{
	if (edges != NULL)
		*edges = NULL;
	return cuStreamGetCaptureInfo_v2(handle, status, id, graph, dependencies, count);
}
