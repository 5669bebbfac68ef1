/* cuda_ctx_info.c - what a context says of itself, and its settings.
 *
 * Stack, printf buffer and heap take card memory where they are set larger (cuCtxSetLimit); a stack for
 * each thread that the card can run at once, or as much as the largest kernel needs of local memory. The other settings
 * change nothing here. */
#include "cuda_objects.h"

#define LIMITS 16
#define SIZED 3			/* the first of them */
#define THREADS_AT_ONCE (MULTIPROCESSORS * THREADS_EACH)

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
	*out = which < SIZED && ctx->settings[which] != 0 ? ctx->settings[which] : limits[which];
	return CUDA_SUCCESS;
}

static uint64_t bytes_of(const size_t values[SIZED], size_t local)
{
	uint64_t bytes = 0;

	for (int i = 0; i < SIZED; i++) {
		size_t value = i == 0 && local > values[i] ? local : values[i];

		if (value > limits[i])
			bytes += (value - limits[i]) * (i == 0 ? THREADS_AT_ONCE : 1);
	}
	return bytes;
}

/* Of what a context has set, one with another value, or another need of local memory. */
static CUresult resize(CUcontext ctx, int which, size_t value, size_t local)
{
	size_t values[SIZED] = { ctx->settings[0], ctx->settings[1], ctx->settings[2] };
	uint64_t bytes;

	values[which] = value;
	bytes = bytes_of(values, local);
	if (bytes > ctx->setting_bytes && !cu_take(ctx->dev, bytes - ctx->setting_bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (bytes < ctx->setting_bytes)
		cu_give(ctx->dev, ctx->setting_bytes - bytes);
	ctx->setting_bytes = bytes;
	ctx->settings[which] = value;
	ctx->local = local;
	return CUDA_SUCCESS;
}

bool cu_local(CUcontext ctx, size_t bytes)
{
	bool fits = true;

	cu_lock();
	if (bytes > ctx->local)
		fits = resize(ctx, 0, ctx->settings[0], bytes) == CUDA_SUCCESS;
	cu_unlock();
	return fits;
}

SIM_API CUresult cuCtxSetLimit(int which, size_t value)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(__func__, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (which < 0 || which >= LIMITS)
		return CUDA_ERROR_INVALID_VALUE;
	if (which >= SIZED)
		return CUDA_SUCCESS;
	cu_lock();
	ret = resize(ctx, which, value, ctx->local);
	cu_unlock();
	return ret;
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
