/* cuda_pool_calls.c - pools as programs make, set and trim them. */
#include "cuda_objects.h"

#define ON_DEVICE 1

enum { REUSE_FIRST = 1, REUSE_LAST = 3, THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7,
       USED_HIGH = 8 };

struct pool_props {			/* the begin of CUmemPoolProps */
	int type, handles;
	int location[2];		/* type, device */
};

SIM_API CUresult cuMemPoolCreate(struct cu_pool **out, const struct pool_props *props)
{
	CUresult ret = cu_enter(__func__);
	struct cu_dev *dev;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || props == NULL || props->type != 1 || props->location[0] != ON_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	dev = cu_dev_at(props->location[1]);
	if (dev == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	cu_lock();
	ret = cu_pool_make(dev, out);
	cu_unlock();
	return ret;
}

static bool built_in(const struct cu_pool *pool)
{
	return pool == pool->dev->default_pool || pool == pool->dev->graph_pool;
}

static struct cu_pool *find(const struct cu_pool *handle)
{
	return (struct cu_pool *)cu_find(CU_POOL, cu_key(handle));
}

SIM_API CUresult cuMemPoolDestroy(struct cu_pool *handle)
{
	CUresult ret = cu_enter(__func__);
	struct cu_pool *pool;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	pool = find(handle);
	if (pool == NULL || built_in(pool))
		ret = CUDA_ERROR_INVALID_VALUE;
	else
		cu_pool_end(pool);
	cu_unlock();
	return ret;
}

static CUresult device_pool(const char *call, struct cu_pool **out, CUdevice index, bool current)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(call, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	*out = cu_pool_default(dev);
	if (current && *out != NULL)
		*out = dev->pool;
	cu_unlock();
	return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API CUresult cuDeviceGetDefaultMemPool(struct cu_pool **out, CUdevice index)
{
	return device_pool(__func__, out, index, false);
}

SIM_API CUresult cuDeviceGetMemPool(struct cu_pool **out, CUdevice index)
{
	return device_pool(__func__, out, index, true);
}

SIM_API CUresult cuDeviceSetMemPool(CUdevice index, struct cu_pool *handle)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);
	struct cu_pool *pool;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	pool = find(handle);
	if (pool == NULL || pool->dev != dev)
		ret = CUDA_ERROR_INVALID_VALUE;
	else
		dev->pool = pool;
	cu_unlock();
	return ret;
}

SIM_API CUresult cuMemGetDefaultMemPool(struct cu_pool **out, const int *location, int type)
{
	if (location == NULL || location[0] != ON_DEVICE || type != 1)
		return CUDA_ERROR_NOT_SUPPORTED;
	return device_pool(__func__, out, location[1], false);
}

SIM_API CUresult cuMemGetMemPool(struct cu_pool **out, const int *location, int type)
{
	if (location == NULL || location[0] != ON_DEVICE || type != 1)
		return CUDA_ERROR_NOT_SUPPORTED;
	return device_pool(__func__, out, location[1], true);
}

SIM_API CUresult cuMemSetMemPool(const int *location, int type, struct cu_pool *pool)
{
	if (location == NULL || location[0] != ON_DEVICE || type != 1)
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuDeviceSetMemPool(location[1], pool);
}

SIM_API CUresult cuMemPoolTrimTo(struct cu_pool *handle, size_t keep)
{
	CUresult ret = cu_enter(__func__);
	struct cu_pool *pool;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	pool = find(handle);
	if (pool != NULL)
		cu_pool_trim(pool, keep);
	cu_unlock();
	return pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set(struct cu_pool *pool, int which, const void *value)
{
	if (which >= REUSE_FIRST && which <= REUSE_LAST)
		pool->reuse[which - REUSE_FIRST] = *(const int *)value;
	else if (which == THRESHOLD)
		pool->threshold = *(const uint64_t *)value;
	else if (which == RESERVED_HIGH && *(const uint64_t *)value == 0)
		pool->reserved_high = pool->object.bytes;
	else if (which == USED_HIGH && *(const uint64_t *)value == 0)
		pool->used_high = pool->used;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult get(const struct cu_pool *pool, int which, void *value)
{
	const uint64_t wide[] = { pool->threshold, pool->object.bytes, pool->reserved_high, pool->used,
				  pool->used_high };

	if (which >= REUSE_FIRST && which <= REUSE_LAST)
		*(int *)value = pool->reuse[which - REUSE_FIRST];
	else if (which >= THRESHOLD && which <= USED_HIGH)
		*(uint64_t *)value = wide[which - THRESHOLD];
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolSetAttribute(struct cu_pool *handle, int which, void *value)
{
	CUresult ret = cu_enter(__func__);
	struct cu_pool *pool;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	pool = find(handle);
	ret = pool == NULL || value == NULL ? CUDA_ERROR_INVALID_VALUE : set(pool, which, value);
	cu_unlock();
	return ret;
}

SIM_API CUresult cuMemPoolGetAttribute(struct cu_pool *handle, int which, void *value)
{
	CUresult ret = cu_enter(__func__);
	struct cu_pool *pool;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	pool = find(handle);
	ret = pool == NULL || value == NULL ? CUDA_ERROR_INVALID_VALUE : get(pool, which, value);
	cu_unlock();
	return ret;
}

SIM_API CUresult cuMemPoolSetAccess(struct cu_pool *pool, const void *access, size_t count)
{
	return pool == NULL || access == NULL || count == 0 ? CUDA_ERROR_INVALID_VALUE :
		cu_enter(__func__);
}
