/* cuda_mem.c - device memory: addresses and bookkeeping, with nothing behind those of the card alone. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "cuda_graph.h"

#define PITCH_STEP 512
#define SMALL_STEP 512
#define LARGE_STEP (2 * SIM_MIB)

bool cu_range_valid(CUdeviceptr at, size_t bytes)
{
	static const enum cu_kind holders[] = { CU_MEMORY, CU_MAPPING };

	for (size_t i = 0; i < sizeof(holders) / sizeof(*holders); i++) {
		struct cu_object *object = cu_find_at(holders[i], at);

		if (object != NULL)
			return bytes <= object->size - (at - object->key);
	}
	return false;
}

CUresult cu_allocate(const char *call, CUdeviceptr *out, uint64_t bytes)
{
	struct cu_object *object;
	CUresult ret = cu_unsafe();

	if (ret == CUDA_SUCCESS)
		ret = cu_make(call, CU_MEMORY, sizeof(*object), &object);
	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || bytes == 0) {
		free(object);
		return CUDA_ERROR_INVALID_VALUE;
	}
	cu_lock();
	object->key = cu_addresses(bytes, bytes < LARGE_STEP ? SMALL_STEP : LARGE_STEP);
	cu_unlock();
	object->bytes = object->size = bytes;
	ret = cu_keep(object);
	if (ret == CUDA_SUCCESS)
		*out = object->key;
	return ret;
}

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	return cu_allocate(__func__, out, bytes);
}

SIM_API CUresult cuMemFree_v2(CUdeviceptr at)
{
	CUresult ret = cu_enter(__func__);

	if (ret == CUDA_SUCCESS)
		ret = cu_unsafe();
	if (ret != CUDA_SUCCESS || at == 0)
		return ret;
	return cu_end(__func__, CU_MEMORY, at, CUDA_ERROR_INVALID_VALUE);
}

static void unmap(struct cu_object *object)
{
	munmap((void *)(uintptr_t)object->key, object->size);
	free(object);
}

/* The host may read and write it, and it counts on the card. */
SIM_API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
	struct cu_object *object;
	CUresult ret = cu_unsafe();
	void *at = MAP_FAILED;

	if (ret == CUDA_SUCCESS)
		ret = cu_make(__func__, CU_MEMORY, sizeof(*object), &object);
	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || bytes == 0 || (flags != 1 && flags != 2))	/* attach global, attach host */
		ret = CUDA_ERROR_INVALID_VALUE;
	else
		at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ret == CUDA_SUCCESS && at == MAP_FAILED)
		ret = CUDA_ERROR_OUT_OF_MEMORY;
	if (ret != CUDA_SUCCESS) {
		free(object);
		return ret;
	}
	object->key = cu_key(at);
	object->bytes = object->size = bytes;
	object->drop = unmap;
	ret = cu_keep(object);
	if (ret == CUDA_SUCCESS)
		*out = cu_key(at);
	else
		munmap(at, bytes);
	return ret;
}

SIM_API CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
				    unsigned int element)
{
	size_t row = (width + PITCH_STEP - 1) / PITCH_STEP * PITCH_STEP, bytes;
	CUresult ret;

	if (pitch == NULL || (element != 4 && element != 8 && element != 16) ||
	    __builtin_mul_overflow(row, height, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	ret = cu_allocate(__func__, out, bytes);
	if (ret == CUDA_SUCCESS)
		*pitch = row;
	return ret;
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
	struct cu_object *object;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	object = cu_find_at(CU_MEMORY, at);
	if (object != NULL && base != NULL)
		*base = object->key;
	if (object != NULL && bytes != NULL)
		*bytes = object->size;
	cu_unlock();
	return object != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
