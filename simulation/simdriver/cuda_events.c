/* cuda_events.c - events: recorded in a stream, with the time at which the card came to them. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "cuda_graph.h"

#define NO_TIMING 2U
#define EVENT_FLAGS 7U
#define NS_PER_MS 1e6F

static void drop_event(struct cu_object *object)
{
	cu_forget_event((struct cu_event *)object);
	free(object);
}

static CUresult find(const char *call, const struct cu_event *handle, struct cu_event **out)
{
	CUresult ret = cu_enter(call);

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	*out = (struct cu_event *)cu_find(CU_EVENT, cu_key(handle));
	cu_unlock();
	return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API CUresult cuEventCreate(struct cu_event **out, unsigned int flags)
{
	struct cu_object *object;
	CUresult ret;

	if (out == NULL || flags > EVENT_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	ret = cu_make(__func__, CU_EVENT, sizeof(**out), &object);
	if (ret != CUDA_SUCCESS)
		return ret;
	object->drop = drop_event;
	((struct cu_event *)object)->flags = flags;
	ret = cu_keep(object);
	if (ret == CUDA_SUCCESS)
		*out = (struct cu_event *)object;
	return ret;
}

SIM_API CUresult cuEventDestroy_v2(struct cu_event *event)
{
	return cu_end(__func__, CU_EVENT, cu_key(event), CUDA_ERROR_INVALID_HANDLE);
}

SIM_API CUresult cuEventRecordWithFlags(struct cu_event *handle, CUstream to, unsigned int flags)
{
	struct cu_stream *stream;
	struct cu_event *event;
	CUresult ret = find(__func__, handle, &event);

	if (ret == CUDA_SUCCESS)
		ret = cu_enter_stream(__func__, to, &stream);
	if (ret != CUDA_SUCCESS)
		return ret;
	if (flags > 1 || event->object.ctx != stream->object.ctx)
		return flags > 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	event->captured = cu_capture_of(stream) != NULL;
	if (event->captured)
		return cu_captured(stream, (struct cu_node){ .kind = NODE_RECORD });
	return cu_record(stream, event);
}

SIM_API CUresult cuEventRecord(struct cu_event *event, CUstream to)
{
	return cuEventRecordWithFlags(event, to, 0);
}

/* An event that a capture recorded has no time, and asking for it ends the capture. */
static CUresult may_ask(const struct cu_event *event)
{
	return event->captured ? CUDA_ERROR_CAPTURED_EVENT : cu_unsafe();
}

SIM_API CUresult cuEventQuery(struct cu_event *handle)
{
	struct cu_event *event;
	CUresult ret = find(__func__, handle, &event);
	uint64_t at;

	if (ret == CUDA_SUCCESS)
		ret = may_ask(event);
	if (ret != CUDA_SUCCESS)
		return ret;
	return cu_event_time(event, &at) && at <= sim_now_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_API CUresult cuEventSynchronize(struct cu_event *handle)
{
	struct cu_event *event;
	CUresult ret = find(__func__, handle, &event);

	if (ret == CUDA_SUCCESS)
		ret = may_ask(event);
	if (ret != CUDA_SUCCESS)
		return ret;
	cu_wait_event(event);
	cu_lock();
	cu_pools_synchronised(event->object.dev);
	cu_unlock();
	return CUDA_SUCCESS;
}

static CUresult elapsed(const char *call, float *out, struct cu_event *handles[2])
{
	struct cu_event *events[2];
	uint64_t at[2];

	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < 2; i++) {
		CUresult ret = find(call, handles[i], &events[i]);

		if (ret == CUDA_SUCCESS)
			ret = may_ask(events[i]);
		if (ret != CUDA_SUCCESS)
			return ret;
		if (events[i]->recorded == 0 || (events[i]->flags & NO_TIMING) != 0)
			return CUDA_ERROR_INVALID_HANDLE;
		if (!cu_event_time(events[i], &at[i]) || at[i] > sim_now_ns())
			return CUDA_ERROR_NOT_READY;
	}
	*out = (float)(int64_t)(at[1] - at[0]) / NS_PER_MS;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuEventElapsedTime(float *out, struct cu_event *from, struct cu_event *to)
{
	return elapsed(__func__, out, (struct cu_event *[]){ from, to });
}

SIM_API CUresult cuEventElapsedTime_v2(float *out, struct cu_event *from, struct cu_event *to)
{
	return elapsed(__func__, out, (struct cu_event *[]){ from, to });
}

/* A stream that waits for what a capture recorded joins the capture. */
SIM_API CUresult cuStreamWaitEvent(CUstream handle, struct cu_event *which, unsigned int flags)
{
	struct cu_stream *stream;
	struct cu_event *event;
	CUresult ret = find(__func__, which, &event);

	if (ret == CUDA_SUCCESS)
		ret = cu_enter_stream(__func__, handle, &stream);
	if (ret != CUDA_SUCCESS)
		return ret;
	if (flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (cu_capture_of(stream) != NULL)
		return cu_captured(stream, (struct cu_node){ .kind = NODE_WAIT_EVENT });
	if (event->captured)
		return CUDA_ERROR_CAPTURE_UNSUPPORTED;
	return cu_stream_wait(stream, event);
}
