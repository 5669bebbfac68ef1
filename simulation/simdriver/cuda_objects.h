/* cuda_objects.h - what a context holds: memory, streams, modules, found by handle or address. */
#ifndef EDGEGPU_SIM_CUDA_OBJECTS_H
#define EDGEGPU_SIM_CUDA_OBJECTS_H

#include "cuda_core.h"

enum cu_kind {
	CU_MEMORY = 1,			/* the key is the device address */
	CU_HOST,			/* the key is the host address */
	CU_POOL,
	CU_BACKING,			/* cuMemCreate */
	CU_RANGE,			/* cuMemAddressReserve */
	CU_MAPPING,			/* cuMemMap */
	CU_ARRAY,
	CU_MODULE,
	CU_CODE,			/* of a module, where it is loaded lazily */
	CU_LIBRARY,
	CU_FUNCTION,
	CU_KERNEL,			/* of a library, whose code may not be loaded */
	CU_STREAM,
	CU_EVENT,
	CU_GRAPH,
	CU_GRAPH_EXEC,
	CU_GREEN,
	CU_DESC,
};

struct cu_object {			/* first in each structure that a handle points to */
	enum cu_kind kind;
	uint64_t key;			/* 0: the address of the object itself */
	CUcontext ctx;			/* NULL: not a context's, lives until it is destroyed */
	struct cu_dev *dev;
	uint64_t size;			/* of the address range behind the key */
	uint64_t bytes;			/* of the card's memory, given back with the object */
	void (*drop)(struct cu_object *object);	/* frees what is below it; NULL: free() is enough */
	struct cu_object *chain, *next, **at;
};

/* cuda_objects.c; callers of these hold the lock. */
CUresult cu_add(struct cu_object *object);	/* takes its bytes; on failure nothing was done */
struct cu_object *cu_find(enum cu_kind kind, uint64_t key);
struct cu_object *cu_find_at(enum cu_kind kind, uint64_t address);	/* in whose range it lies */
void cu_drop(struct cu_object *object);
void cu_drop_all(CUcontext ctx);
uint64_t cu_addresses(uint64_t bytes, uint64_t align);	/* a new range of device addresses */

/* The three lines that most calls begin with: the current context, and a zeroed object of it. */
CUresult cu_make(const char *call, enum cu_kind kind, size_t size, struct cu_object **out);

/* cu_add under the lock, or free() the object. */
CUresult cu_keep(struct cu_object *object);

/* Drops the object of this kind and key; the result where there is none. */
CUresult cu_end(const char *call, enum cu_kind kind, uint64_t key, CUresult missing);

/* cuda_pools.c: pools of a device; callers of these hold the lock. */
struct cu_pool {
	struct cu_object object;
	struct cu_dev *dev;
	struct cu_pool *next;
	struct cu_pool_memory *members;
	uint64_t used, used_high, reserved_high, threshold;	/* reserved: the object's bytes */
	int reuse[3];
	bool destroyed;			/* what is not freed yet keeps it */
};
CUresult cu_pool_make(struct cu_dev *dev, struct cu_pool **out);
struct cu_pool *cu_pool_default(struct cu_dev *dev);	/* NULL: no memory on the host */
struct cu_pool *cu_pool_graphs(struct cu_dev *dev);	/* what graphs allocate: kept until trimmed */
CUresult cu_pool_take(struct cu_pool *pool, uint64_t key, uint64_t bytes);
void cu_pool_trim(struct cu_pool *pool, uint64_t keep);
void cu_pool_end(struct cu_pool *pool);
void cu_pools_synchronised(struct cu_dev *dev);	/* gives back what is above each threshold */
void cu_pools_reset(struct cu_dev *dev);		/* a context ended: gives back what is unused */

/* cuda_mem.c */
CUresult cu_allocate(const char *call, CUdeviceptr *out, uint64_t bytes);

/* cuda_streams.c: of the current context. */
CUresult cu_stream_make(const char *call, unsigned int flags, int priority, struct cu_stream **out);

/* cuda_ctx.c; callers of the first two hold the lock. */
CUresult cu_context_make(struct cu_dev *dev, bool primary, unsigned int flags, CUcontext *out);
void cu_context_drop(CUcontext ctx);	/* lets go of the lock while the context's work comes to its end */
CUresult cu_primary_retain(CUdevice index, CUcontext *out);
CUresult cu_primary_release(CUdevice index);

static inline uint64_t cu_key(const void *handle)
{
	return (uint64_t)(uintptr_t)handle;
}

#endif
