/* cuda_pools.c - memory pools: a pool holds what it once took until a synchronisation or a trim.
 *
 * As NVIDIA documents it: what comes from a pool is of no context and outlives all of them, also a reset
 * (cuCtxDestroy, cudaDeviceReset); a destroyed pool lasts until all of it is freed (cuMemPoolDestroy). */
#define _GNU_SOURCE
#include <stdlib.h>

#include "cuda_objects.h"

#define STEP (2 * SIM_MIB)

struct cu_pool_memory {
	struct cu_object object;
	struct cu_pool *pool;
	uint64_t held;
	struct cu_pool_memory *next, **at;
};

static void drop_pool(struct cu_object *object)
{
	struct cu_pool *pool = (struct cu_pool *)object, **at = &pool->dev->pools;

	while (*at != pool)
		at = &(*at)->next;
	*at = pool->next;
	if (pool->dev->pool == pool)
		pool->dev->pool = pool->dev->default_pool;
	pool->destroyed = pool->members != NULL;
	if (!pool->destroyed)
		free(pool);
}

void cu_pool_end(struct cu_pool *pool)
{
	cu_pool_trim(pool, 0);
	pool->object.bytes = 0;		/* what is used goes back with each free */
	cu_drop(&pool->object);
}

CUresult cu_pool_make(struct cu_dev *dev, struct cu_pool **out)
{
	struct cu_pool *pool = calloc(1, sizeof(*pool));

	if (pool == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->object.kind = CU_POOL;
	pool->object.dev = pool->dev = dev;
	pool->object.drop = drop_pool;
	for (int i = 0; i < 3; i++)
		pool->reuse[i] = 1;
	cu_add(&pool->object);		/* of no bytes: cannot fail */
	pool->next = dev->pools;
	dev->pools = pool;
	*out = pool;
	return CUDA_SUCCESS;
}

struct cu_pool *cu_pool_default(struct cu_dev *dev)
{
	if (dev->default_pool == NULL && cu_pool_make(dev, &dev->default_pool) == CUDA_SUCCESS &&
	    dev->pool == NULL)
		dev->pool = dev->default_pool;
	return dev->default_pool;
}

struct cu_pool *cu_pool_graphs(struct cu_dev *dev)
{
	if (dev->graph_pool == NULL && cu_pool_make(dev, &dev->graph_pool) == CUDA_SUCCESS)
		dev->graph_pool->threshold = UINT64_MAX;
	return dev->graph_pool;
}

static void release(struct cu_object *object)
{
	struct cu_pool_memory *memory = (struct cu_pool_memory *)object;

	struct cu_pool *pool = memory->pool;

	pool->used -= memory->held;
	*memory->at = memory->next;
	if (memory->next != NULL)
		memory->next->at = memory->at;
	if (pool->destroyed)
		cu_give(pool->dev, memory->held);
	if (pool->destroyed && pool->members == NULL)
		free(pool);
	free(memory);
}

/* Reserves more of the card where the pool has too little; whole steps where they fit. */
static bool grow(struct cu_pool *pool, uint64_t bytes)
{
	uint64_t need = pool->used + bytes, reserved = pool->object.bytes, more;

	if (need <= reserved)
		return true;
	more = (need - reserved + STEP - 1) / STEP * STEP;
	if (!cu_take(pool->dev, more)) {
		more = need - reserved;
		if (!cu_take(pool->dev, more))
			return false;
	}
	pool->object.bytes += more;
	if (pool->object.bytes > pool->reserved_high)
		pool->reserved_high = pool->object.bytes;
	return true;
}

CUresult cu_pool_take(struct cu_pool *pool, uint64_t key, uint64_t bytes)
{
	struct cu_pool_memory *memory = calloc(1, sizeof(*memory));

	if (memory == NULL || !grow(pool, bytes)) {
		free(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memory->object = (struct cu_object){ .kind = CU_MEMORY, .key = key, .dev = pool->dev, .size = bytes,
					     .drop = release };
	memory->pool = pool;
	memory->held = bytes;
	memory->next = pool->members;
	memory->at = &pool->members;
	if (memory->next != NULL)
		memory->next->at = &memory->next;
	pool->members = memory;
	pool->used += bytes;
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	return cu_add(&memory->object);
}

void cu_pool_trim(struct cu_pool *pool, uint64_t keep)
{
	uint64_t to = keep > pool->used ? keep : pool->used;

	if (pool->object.bytes <= to)
		return;
	cu_give(pool->dev, pool->object.bytes - to);
	pool->object.bytes = to;
}

void cu_pools_synchronised(struct cu_dev *dev)
{
	for (struct cu_pool *pool = dev->pools; pool != NULL; pool = pool->next)
		cu_pool_trim(pool, pool->threshold);
}

void cu_pools_reset(struct cu_dev *dev)
{
	for (struct cu_pool *pool = dev->pools; pool != NULL; pool = pool->next)
		cu_pool_trim(pool, 0);
}
