/* cuda_ctx.c - contexts: the primary one of a device, own ones, and which is current. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "cuda_engine.h"

#define CONTEXT_API 3020		/* since CUDA 3.2 contexts have this version */

CUresult cu_context_make(struct cu_dev *dev, bool primary, unsigned int flags, CUcontext *out)
{
	static unsigned long long ids;
	CUcontext ctx;

	if (sim_lost(dev->card->entry))
		return CUDA_ERROR_UNKNOWN;
	ctx = calloc(1, sizeof(*ctx));
	if (ctx == NULL || !cu_take(dev, cu_driver()->context_mib * SIM_MIB)) {
		free(ctx);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ctx = (struct cu_ctx){ .dev = dev, .primary = primary, .flags = flags, .id = ++ids,
				.version = CONTEXT_API };
	cu_add_context(ctx);
	sim_lock();
	sim_context(dev->entry, 1);
	sim_unlock();
	*out = ctx;
	return CUDA_SUCCESS;
}

/* What it has in flight comes to its end first: NVIDIA documents that what kernels printed is written then. */
void cu_context_drop(CUcontext ctx)
{
	cu_remove_context(ctx);
	cu_unlock();
	cu_wait_context(ctx);
	cu_lock();
	cu_drop_all(ctx);
	cu_pools_reset(ctx->dev);
	cu_give(ctx->dev, cu_driver()->context_mib * SIM_MIB + ctx->setting_bytes);
	sim_lock();
	sim_context(ctx->dev->entry, -1);
	sim_unlock();
	free(ctx);
}

static CUresult retain(const char *call, CUcontext *out, CUdevice index)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(call, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	if (dev->primary == NULL)
		ret = cu_context_make(dev, true, dev->primary_flags, &dev->primary);
	if (ret == CUDA_SUCCESS) {
		dev->primary_users++;
		*out = dev->primary;
	}
	cu_unlock();
	return ret;
}

SIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice index)
{
	return retain(__func__, out, index);
}

static CUresult release(const char *call, CUdevice index, bool reset)
{
	CUcontext primary;
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(call, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	if (dev->primary_users == 0 && !reset)
		ret = CUDA_ERROR_INVALID_CONTEXT;
	else if (dev->primary != NULL && (reset || --dev->primary_users == 0)) {
		primary = dev->primary;
		dev->primary = NULL;
		dev->primary_users = 0;
		cu_context_drop(primary);
	}
	cu_unlock();
	return ret;
}

CUresult cu_primary_retain(CUdevice index, CUcontext *out)
{
	return retain(__func__, out, index);
}

CUresult cu_primary_release(CUdevice index)
{
	return release(__func__, index, false);
}

SIM_API CUresult cuDevicePrimaryCtxRelease(CUdevice index)
{
	return release(__func__, index, false);
}

SIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice index)
{
	return release(__func__, index, false);
}

SIM_API CUresult cuDevicePrimaryCtxReset(CUdevice index)
{
	return release(__func__, index, true);
}

SIM_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice index)
{
	return release(__func__, index, true);
}

SIM_API CUresult cuDevicePrimaryCtxGetState(CUdevice index, unsigned int *flags, int *active)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (flags == NULL || active == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = dev->primary_flags;
	cu_lock();
	*active = dev->primary != NULL;
	cu_unlock();
	return CUDA_SUCCESS;
}

SIM_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice index, unsigned int flags)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);

	if (ret == CUDA_SUCCESS)
		dev->primary_flags = flags;
	return ret;
}

/* The first version is refused while the context is active. */
SIM_API CUresult cuDevicePrimaryCtxSetFlags(CUdevice index, unsigned int flags)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (dev->primary != NULL)
		return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
	dev->primary_flags = flags;
	return CUDA_SUCCESS;
}

static CUresult create(const char *call, CUcontext *out, unsigned int flags, CUdevice index)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(call, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	ret = cu_context_make(dev, false, flags, out);
	if (ret == CUDA_SUCCESS)
		ret = cu_push(*out);
	cu_unlock();
	return ret;
}

SIM_API CUresult cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice index)
{
	return create(__func__, out, flags, index);
}

SIM_API CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice index)
{
	return create(__func__, out, flags, index);
}

SIM_API CUresult cuCtxCreate_v3(CUcontext *out, const void *affinity, int count, unsigned int flags,
				CUdevice index)
{
	if ((affinity == NULL) != (count == 0))
		return CUDA_ERROR_INVALID_VALUE;
	return create(__func__, out, flags, index);
}

SIM_API CUresult cuCtxCreate_v4(CUcontext *out, const void *params, unsigned int flags, CUdevice index)
{
	(void)params;
	return create(__func__, out, flags, index);
}

static CUresult destroy(const char *call, CUcontext ctx)
{
	CUresult ret = cu_enter(call);

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	if (!cu_lives(ctx) || ctx->primary) {
		ret = CUDA_ERROR_INVALID_CONTEXT;
	} else {
		if (cu_current() == ctx)
			cu_pop();
		cu_context_drop(ctx);
	}
	cu_unlock();
	return ret;
}

SIM_API CUresult cuCtxDestroy(CUcontext ctx)
{
	return destroy(__func__, ctx);
}

SIM_API CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	return destroy(__func__, ctx);
}

SIM_API CUresult cuCtxSetCurrent(CUcontext ctx)
{
	CUresult ret = cu_enter(__func__);

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	if (ctx != NULL && !cu_lives(ctx)) {
		ret = CUDA_ERROR_INVALID_CONTEXT;
	} else {
		cu_pop();
		if (ctx != NULL)
			ret = cu_push(ctx);
	}
	cu_unlock();
	return ret;
}

SIM_API CUresult cuCtxGetCurrent(CUcontext *out)
{
	CUresult ret = cu_enter(__func__);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	*out = cu_current();
	cu_unlock();
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	CUresult ret = cu_enter(__func__);

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	ret = cu_push(ctx);
	cu_unlock();
	return ret;
}

SIM_API CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(__func__, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_pop();
	if (out != NULL)
		*out = ctx;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetDevice(CUdevice *out)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(__func__, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = cu_dev_index(ctx->dev);
	return CUDA_SUCCESS;
}
