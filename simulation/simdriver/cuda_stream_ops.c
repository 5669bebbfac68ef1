/* cuda_stream_ops.c - host functions, and values that streams wait for and write. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "cuda_graph.h"

enum { WAIT_32 = 1, WRITE_32 = 2, WAIT_64 = 4, WRITE_64 = 5, BARRIER = 6 };

union batch_op {			/* CUstreamBatchMemOpParams */
	int operation;
	struct {
		int operation;
		CUdeviceptr address;
		uint64_t value;
		unsigned int flags;
		CUdeviceptr alias;
	} memory;
	uint64_t pad[6];
};

static CUresult do_value(struct cu_stream *stream, enum cu_op_kind kind, struct cu_value value)
{
	if (value.address == 0 || (value.flags & ~(kind == OP_WAIT_VALUE ? 3U : 1U)) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (cu_capture_of(stream) != NULL)
		return cu_captured(stream, (struct cu_node){ .kind = NODE_EMPTY });
	cu_lock();
	value.host = cu_value_on_host(value.address);
	cu_unlock();
	return cu_submit(stream, (struct cu_op){ .kind = kind, .value = value });
}

static CUresult on_value(const char *call, CUstream handle, enum cu_op_kind kind, struct cu_value value)
{
	struct cu_stream *stream;
	CUresult ret = cu_enter_stream(call, handle, &stream);

	return ret != CUDA_SUCCESS ? ret : do_value(stream, kind, value);
}

#define VALUE_CALL(name, op, type, is_wide)							\
	SIM_API CUresult name(CUstream stream, CUdeviceptr address, type value,		\
			      unsigned int flags)						\
	{											\
		return on_value(__func__, stream, op,						\
				(struct cu_value){ .address = address, .value = value,		\
						   .flags = flags, .wide = is_wide });		\
	}

VALUE_CALL(cuStreamWaitValue32, OP_WAIT_VALUE, uint32_t, false)
VALUE_CALL(cuStreamWaitValue32_v2, OP_WAIT_VALUE, uint32_t, false)
VALUE_CALL(cuStreamWaitValue64, OP_WAIT_VALUE, uint64_t, true)
VALUE_CALL(cuStreamWaitValue64_v2, OP_WAIT_VALUE, uint64_t, true)
VALUE_CALL(cuStreamWriteValue32, OP_WRITE_VALUE, uint32_t, false)
VALUE_CALL(cuStreamWriteValue32_v2, OP_WRITE_VALUE, uint32_t, false)
VALUE_CALL(cuStreamWriteValue64, OP_WRITE_VALUE, uint64_t, true)
VALUE_CALL(cuStreamWriteValue64_v2, OP_WRITE_VALUE, uint64_t, true)

static CUresult batch_one(struct cu_stream *stream, const union batch_op *op)
{
	bool wait = op->operation == WAIT_32 || op->operation == WAIT_64;
	bool wide = op->operation == WAIT_64 || op->operation == WRITE_64;
	struct cu_value value = { .address = op->memory.address, .flags = op->memory.flags, .wide = wide,
				  .value = wide ? op->memory.value : (uint32_t)op->memory.value };

	if (op->operation == BARRIER)
		return CUDA_SUCCESS;
	if (!wait && op->operation != WRITE_32 && op->operation != WRITE_64)
		return CUDA_ERROR_INVALID_VALUE;
	return do_value(stream, wait ? OP_WAIT_VALUE : OP_WRITE_VALUE, value);
}

SIM_API CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned int count, const union batch_op *ops,
				       unsigned int flags)
{
	struct cu_stream *stream;
	CUresult ret = cu_enter_stream(__func__, handle, &stream);

	if (ret == CUDA_SUCCESS && ((ops == NULL && count > 0) || count > 256 || flags != 0))
		ret = CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; ret == CUDA_SUCCESS && i < count; i++)
		ret = batch_one(stream, &ops[i]);
	return ret;
}

SIM_API CUresult cuStreamBatchMemOp(CUstream handle, unsigned int count, const union batch_op *ops,
				    unsigned int flags)
{
	return cuStreamBatchMemOp_v2(handle, count, ops, flags);
}

static CUresult host_call(struct cu_stream *stream, void (*call)(void *data), void *data)
{
	if (cu_capture_of(stream) != NULL)
		return cu_captured(stream, (struct cu_node){ .kind = NODE_HOST, .call = call,
							     .data = data });
	return cu_submit(stream, (struct cu_op){ .kind = OP_HOST, .call = call, .data = data });
}

SIM_API CUresult cuLaunchHostFunc(CUstream handle, void (*call)(void *data), void *data)
{
	struct cu_stream *stream;
	CUresult ret = cu_enter_stream(__func__, handle, &stream);

	if (ret != CUDA_SUCCESS)
		return ret;
	return call == NULL ? CUDA_ERROR_INVALID_VALUE : host_call(stream, call, data);
}

struct callback {
	void (*call)(CUstream stream, CUresult status, void *data);
	CUstream handle;
	void *data;
};

static void run_callback(void *data)
{
	struct callback *callback = data;

	callback->call(callback->handle, CUDA_SUCCESS, callback->data);
	free(callback);
}

SIM_API CUresult cuStreamAddCallback(CUstream handle,
				     void (*call)(CUstream stream, CUresult status, void *data),
				     void *data, unsigned int flags)
{
	struct cu_stream *stream;
	CUresult ret = cu_enter_stream(__func__, handle, &stream);
	struct callback *callback;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (call == NULL || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (cu_capture_of(stream) != NULL)
		return CUDA_ERROR_CAPTURE_UNSUPPORTED;
	callback = malloc(sizeof(*callback));
	if (callback == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*callback = (struct callback){ call, handle, data };
	return host_call(stream, run_callback, callback);
}
