/* cuda_async.c - allocation in a stream's order: from a pool, or as a node of what the stream captures. */
#include "cuda_graph.h"

static CUresult capture_alloc(struct cu_stream *stream, CUdeviceptr *out, uint64_t bytes)
{
	struct cu_node node = { .kind = NODE_ALLOC, .bytes = bytes, .dev = stream->object.dev };

	cu_lock();
	node.key = cu_addresses(bytes, 2 * SIM_MIB);
	cu_unlock();
	*out = node.key;
	return cu_captured(stream, node);
}

/* The lock is held; NULL: the device's current pool. */
static struct cu_pool *pool_of(struct cu_dev *dev, const struct cu_pool *handle)
{
	if (handle != NULL)
		return (struct cu_pool *)cu_find(CU_POOL, cu_key(handle));
	cu_pool_default(dev);
	return dev->pool;
}

static CUresult allocate(const char *call, CUdeviceptr *out, uint64_t bytes, CUstream handle,
			 const struct cu_pool *from)
{
	struct cu_stream *stream;
	CUresult ret = cu_enter_stream(call, handle, &stream);
	struct cu_pool *pool;
	CUdeviceptr at;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (cu_capture_of(stream) != NULL)
		return capture_alloc(stream, out, bytes);
	cu_lock();
	pool = pool_of(stream->object.dev, from);
	at = cu_addresses(bytes, bytes < 2 * SIM_MIB ? 512 : 2 * SIM_MIB);
	ret = pool == NULL ? CUDA_ERROR_INVALID_VALUE :
		cu_pool_take(pool, at, bytes);
	cu_unlock();
	if (ret == CUDA_SUCCESS)
		*out = at;
	return ret;
}

SIM_API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	return allocate(__func__, out, bytes, stream, NULL);
}

SIM_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, struct cu_pool *pool,
					 CUstream stream)
{
	return pool == NULL ? CUDA_ERROR_INVALID_VALUE : allocate(__func__, out, bytes, stream, pool);
}

SIM_API CUresult cuMemFreeAsync(CUdeviceptr at, CUstream handle)
{
	struct cu_stream *stream;
	CUresult ret = cu_enter_stream(__func__, handle, &stream);

	if (ret != CUDA_SUCCESS || at == 0)
		return ret != CUDA_SUCCESS ? ret : CUDA_ERROR_INVALID_VALUE;
	if (cu_capture_of(stream) != NULL)
		return cu_captured(stream, (struct cu_node){ .kind = NODE_FREE, .key = at });
	return cu_end(__func__, CU_MEMORY, at, CUDA_ERROR_INVALID_VALUE);
}
