/* cuda_green.c - green contexts: a part of the device's multiprocessors, as a context of its own.
 *
 * They keep the primary context, and take a context's memory. Their part limits nothing here. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "cuda_objects.h"

#define RESOURCE_SM 1
#define SMALLEST 2
#define DEFAULT_STREAM 1U		/* the only flag, and it has to be given */

struct resource {			/* CUdevResource */
	int type;
	unsigned char padding[92];
	unsigned int count, smallest, alignment, flags;
	unsigned char more[24];
	void *next;
};
_Static_assert(sizeof(struct resource) == 144, "as in cuda.h");

struct description {
	struct cu_object object;
	struct resource resource;
};

struct green {
	struct cu_object object;
	CUcontext ctx;
	struct resource resource;
	CUdevice device;
};

static struct resource whole(void)
{
	return (struct resource){ .type = RESOURCE_SM, .count = MULTIPROCESSORS, .smallest = SMALLEST,
				  .alignment = SMALLEST };
}

SIM_API CUresult cuDeviceGetDevResource(CUdevice index, struct resource *out, int type)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || type != RESOURCE_SM)
		return CUDA_ERROR_INVALID_VALUE;
	*out = whole();
	return CUDA_SUCCESS;
}

/* Groups of the least size that holds what was asked for, as many as there is room for. */
SIM_API CUresult cuDevSmResourceSplitByCount(struct resource *out, unsigned int *groups,
					     const struct resource *from, struct resource *rest,
					     unsigned int flags, unsigned int least)
{
	unsigned int each = (least + SMALLEST - 1) / SMALLEST * SMALLEST, fit;
	CUresult ret = cu_enter(__func__);

	(void)flags;
	if (ret != CUDA_SUCCESS)
		return ret;
	if (groups == NULL || from == NULL || from->type != RESOURCE_SM || each > from->count)
		return CUDA_ERROR_INVALID_VALUE;
	each = each > 0 ? each : SMALLEST;
	fit = from->count / each;
	if (out != NULL && *groups < fit)
		fit = *groups;
	*groups = fit;
	for (unsigned int i = 0; out != NULL && i < fit; i++) {
		out[i] = *from;
		out[i].count = each;
	}
	if (rest != NULL) {
		*rest = *from;
		rest->count = from->count - fit * each;
	}
	return CUDA_SUCCESS;
}

SIM_API CUresult cuDevResourceGenerateDesc(struct description **out, const struct resource *resources,
					   unsigned int count)
{
	CUresult ret = cu_enter(__func__);
	struct description *description;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || resources == NULL || count == 0 || resources->type != RESOURCE_SM)
		return CUDA_ERROR_INVALID_VALUE;
	description = calloc(1, sizeof(*description));
	if (description == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	description->object.kind = CU_DESC;
	description->resource = *resources;
	ret = cu_keep(&description->object);
	if (ret == CUDA_SUCCESS)
		*out = description;
	return ret;
}

/* The lock is held. */
static CUresult make(struct cu_dev *dev, const struct description *handle, unsigned int flags,
		     struct green **out)
{
	struct cu_object *description = cu_find(CU_DESC, cu_key(handle));
	struct green *green = description == NULL ? NULL : calloc(1, sizeof(*green));
	CUresult ret;

	if (green == NULL)
		return description == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	ret = cu_context_make(dev, false, flags, &green->ctx);
	if (ret != CUDA_SUCCESS) {
		free(green);
		return ret;
	}
	green->object.kind = CU_GREEN;
	green->resource = ((struct description *)description)->resource;
	green->device = cu_dev_index(dev);
	cu_add(&green->object);		/* of no bytes: the context has them */
	*out = green;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuGreenCtxCreate(struct green **out, struct description *description, CUdevice index,
				  unsigned int flags)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);
	CUcontext primary;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || flags != DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	ret = cu_primary_retain(index, &primary);
	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	ret = make(dev, description, 0, out);
	cu_unlock();
	if (ret != CUDA_SUCCESS)
		cu_primary_release(index);
	return ret;
}

SIM_API CUresult cuGreenCtxDestroy(struct green *handle)
{
	CUresult ret = cu_enter(__func__);
	CUdevice device = -1;
	struct green *green;
	CUcontext ctx;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	green = (struct green *)cu_find(CU_GREEN, cu_key(handle));
	if (green != NULL) {
		device = green->device;
		ctx = green->ctx;
		cu_drop(&green->object);
		cu_context_drop(ctx);
	}
	cu_unlock();
	return green == NULL ? CUDA_ERROR_INVALID_VALUE : cu_primary_release(device);
}

static CUresult find(const char *call, const struct green *handle, struct green **out)
{
	CUresult ret = cu_enter(call);

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	*out = (struct green *)cu_find(CU_GREEN, cu_key(handle));
	cu_unlock();
	return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuCtxFromGreenCtx(CUcontext *out, struct green *handle)
{
	struct green *green;
	CUresult ret = find(__func__, handle, &green);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = green->ctx;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuGreenCtxGetDevResource(struct green *handle, struct resource *out, int type)
{
	struct green *green;
	CUresult ret = find(__func__, handle, &green);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || type != RESOURCE_SM)
		return CUDA_ERROR_INVALID_VALUE;
	*out = green->resource;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuGreenCtxStreamCreate(CUstream *out, struct green *handle, unsigned int flags,
					int priority)
{
	struct green *green;
	CUresult ret = find(__func__, handle, &green);

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	ret = cu_push(green->ctx);
	cu_unlock();
	if (ret != CUDA_SUCCESS)
		return ret;
	ret = cu_stream_make(__func__, flags, priority, out);
	cu_pop();
	return ret;
}
