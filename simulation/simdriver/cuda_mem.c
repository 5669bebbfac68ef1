/* cuda_mem.c - device memory: addresses and bookkeeping, with nothing behind them. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "cuda_core.h"

#define FIRST_ADDRESS 0x7f4000000000ULL
#define ADDRESS_STEP (2 * SIM_MIB)
#define PITCH_STEP 512

struct allocation {
	CUdeviceptr at;
	uint64_t bytes;
	CUcontext ctx;
	struct allocation *next;
};

static struct allocation *allocations;
static CUdeviceptr next_address = FIRST_ADDRESS;

bool cu_take(struct cu_dev *dev, uint64_t bytes)
{
	bool took;

	sim_lock();
	took = sim_take(dev->entry, bytes, dev->limit);
	sim_unlock();
	return took;
}

void cu_give(struct cu_dev *dev, uint64_t bytes)
{
	sim_lock();
	sim_give(dev->entry, bytes);
	sim_unlock();
}

static void drop(struct allocation **at)
{
	struct allocation *a = *at;

	*at = a->next;
	cu_give(a->ctx->dev, a->bytes);
	free(a);
}

void cu_forget_context(CUcontext ctx)
{
	struct allocation **at = &allocations;

	while (*at != NULL) {
		if ((*at)->ctx == ctx)
			drop(at);
		else
			at = &(*at)->next;
	}
}

bool cu_range_valid(CUdeviceptr at, size_t bytes)
{
	for (struct allocation *a = allocations; a != NULL; a = a->next)
		if (at >= a->at && at - a->at <= a->bytes && bytes <= a->bytes - (at - a->at))
			return true;
	return false;
}

static CUresult allocate(const char *call, CUdeviceptr *out, uint64_t bytes)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(call, &ctx);
	struct allocation *a;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	a = malloc(sizeof(*a));
	if (a == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cu_lock();
	ctx = cu_current();		/* again: another thread may have ended it meanwhile */
	if (ctx == NULL) {
		ret = CUDA_ERROR_INVALID_CONTEXT;
	} else if (cu_take(ctx->dev, bytes)) {
		*a = (struct allocation){ next_address, bytes, ctx, allocations };
		next_address += (bytes + ADDRESS_STEP - 1) / ADDRESS_STEP * ADDRESS_STEP;
		allocations = a;
		*out = a->at;
	} else {
		ret = CUDA_ERROR_OUT_OF_MEMORY;
	}
	cu_unlock();
	if (ret != CUDA_SUCCESS)
		free(a);
	return ret;
}

static CUresult release(const char *call, CUdeviceptr at)
{
	CUresult ret = cu_enter(call);

	if (ret != CUDA_SUCCESS || at == 0)
		return ret;
	ret = CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	for (struct allocation **a = &allocations; *a != NULL; a = &(*a)->next) {
		if ((*a)->at != at)
			continue;
		drop(a);
		ret = CUDA_SUCCESS;
		break;
	}
	cu_unlock();
	return ret;
}

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	return allocate(__func__, out, bytes);
}

SIM_API CUresult cuMemFree_v2(CUdeviceptr at)
{
	return release(__func__, at);
}

SIM_API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
	if (flags != 1 && flags != 2)	/* attach global, attach host */
		return CUDA_ERROR_INVALID_VALUE;
	return allocate(__func__, out, bytes);
}

SIM_API CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
				    unsigned int element)
{
	size_t row = (width + PITCH_STEP - 1) / PITCH_STEP * PITCH_STEP, bytes;
	CUresult ret;

	if (pitch == NULL || (element != 4 && element != 8 && element != 16) ||
	    __builtin_mul_overflow(row, height, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	ret = allocate(__func__, out, bytes);
	if (ret == CUDA_SUCCESS)
		*pitch = row;
	return ret;
}

SIM_API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	(void)stream;
	return allocate(__func__, out, bytes);
}

SIM_API CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
	(void)stream;
	return release(__func__, at);
}

SIM_API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(__func__, &ctx);
	uint64_t used;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (free_bytes == NULL || total == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	used = sim_used(ctx->dev->entry);
	sim_unlock();
	*total = ctx->dev->limit;
	*free_bytes = ctx->dev->limit - used;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr at)
{
	CUresult ret = cu_enter(__func__);

	if (ret != CUDA_SUCCESS)
		return ret;
	ret = CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	for (struct allocation *a = allocations; a != NULL; a = a->next) {
		if (at < a->at || at - a->at >= a->bytes)
			continue;
		if (base != NULL)
			*base = a->at;
		if (bytes != NULL)
			*bytes = a->bytes;
		ret = CUDA_SUCCESS;
	}
	cu_unlock();
	return ret;
}
