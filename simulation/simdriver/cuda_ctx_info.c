/* cuda_ctx_info.c - what a context says of itself, and its settings, which change nothing here. */
#include "cuda_objects.h"

#define LIMITS 16

static const size_t limits[LIMITS] = { 1024, 1 << 20, 8 << 20, 2, 2048 };	/* stack, printf, heap, … */

static CUresult find(const char *call, CUcontext ctx, CUcontext *out)
{
	CUresult ret;
	bool lives;

	if (ctx == NULL)
		return cu_enter_ctx(call, out);
	ret = cu_enter(call);
	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	lives = cu_lives(ctx);
	cu_unlock();
	*out = ctx;
	return lives ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

SIM_API CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *out)
{
	CUresult ret = find(__func__, ctx, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = ctx->version;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetId(CUcontext ctx, unsigned long long *out)
{
	CUresult ret = find(__func__, ctx, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = ctx->id;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetFlags(unsigned int *out)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(__func__, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = ctx->flags;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetFlags(unsigned int flags)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(__func__, &ctx);

	if (ret == CUDA_SUCCESS)
		ctx->flags = flags;
	return ret;
}

SIM_API CUresult cuCtxGetDevice_v2(CUdevice *out, CUcontext ctx)
{
	CUresult ret = find(__func__, ctx, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = cu_dev_index(ctx->dev);
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetLimit(size_t *out, int which)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(__func__, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || which < 0 || which >= LIMITS)
		return CUDA_ERROR_INVALID_VALUE;
	*out = limits[which];
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetLimit(int which, size_t value)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(__func__, &ctx);

	(void)value;
	if (ret != CUDA_SUCCESS)
		return ret;
	return which < 0 || which >= LIMITS ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetCacheConfig(int *out)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(__func__, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = 0;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetCacheConfig(int config)
{
	CUcontext ctx;

	(void)config;
	return cu_enter_ctx(__func__, &ctx);
}
