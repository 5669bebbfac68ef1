/* cuda_objects.c - what the contexts of this process hold, and the card's memory for it. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "cuda_objects.h"

#define FIRST_ADDRESS 0x200000000000ULL
#define BUCKETS 65536U

static struct cu_object *buckets[BUCKETS];	/* by key, chained */
static struct cu_object *all;
static uint64_t next_address = FIRST_ADDRESS;

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

static struct cu_object **bucket(enum cu_kind kind, uint64_t key)
{
	uint64_t mixed = (key / 16 + (uint64_t)kind * 7919) * 0x9E3779B97F4A7C15ULL;

	return &buckets[(mixed >> 40) % BUCKETS];
}

CUresult cu_add(struct cu_object *object)
{
	struct cu_object **head;

	if (object->bytes > 0 && !cu_take(object->dev, object->bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (object->key == 0)
		object->key = cu_key(object);
	head = bucket(object->kind, object->key);
	object->chain = *head;
	*head = object;
	object->next = all;
	object->at = &all;
	if (all != NULL)
		all->at = &object->next;
	all = object;
	return CUDA_SUCCESS;
}

struct cu_object *cu_find(enum cu_kind kind, uint64_t key)
{
	struct cu_object *object = *bucket(kind, key);

	while (object != NULL && (object->kind != kind || object->key != key))
		object = object->chain;
	return object;
}

struct cu_object *cu_find_at(enum cu_kind kind, uint64_t address)
{
	struct cu_object *object = all;

	while (object != NULL && (object->kind != kind || address < object->key ||
				  address - object->key >= object->size))
		object = object->next;
	return object;
}

static void unlink_object(struct cu_object *object)
{
	struct cu_object **at = bucket(object->kind, object->key);

	while (*at != object)
		at = &(*at)->chain;
	*at = object->chain;
	*object->at = object->next;
	if (object->next != NULL)
		object->next->at = object->at;
}

void cu_drop(struct cu_object *object)
{
	unlink_object(object);
	if (object->bytes > 0)
		cu_give(object->dev, object->bytes);
	if (object->drop != NULL)
		object->drop(object);
	else
		free(object);
}

/* Each drop may drop others: the search begins anew until the context has none. */
void cu_drop_all(CUcontext ctx)
{
	struct cu_object *object = all;

	while (object != NULL) {
		if (object->ctx != ctx) {
			object = object->next;
			continue;
		}
		cu_drop(object);
		object = all;
	}
}

uint64_t cu_addresses(uint64_t bytes, uint64_t align)
{
	uint64_t at = (next_address + align - 1) / align * align;

	next_address = at + bytes;
	return at;
}

CUresult cu_make(const char *call, enum cu_kind kind, size_t size, struct cu_object **out)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(call, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	*out = calloc(1, size);
	if (*out == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*out)->kind = kind;
	(*out)->ctx = ctx;
	(*out)->dev = ctx->dev;
	return CUDA_SUCCESS;
}

CUresult cu_keep(struct cu_object *object)
{
	CUresult ret = CUDA_ERROR_INVALID_CONTEXT;

	cu_lock();
	if (object->ctx == NULL || cu_lives(object->ctx))	/* another thread may have ended it */
		ret = cu_add(object);
	cu_unlock();
	if (ret != CUDA_SUCCESS)
		free(object);
	return ret;
}

CUresult cu_end(const char *call, enum cu_kind kind, uint64_t key, CUresult missing)
{
	CUresult ret = cu_enter(call);
	struct cu_object *object;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	object = cu_find(kind, key);
	if (object != NULL)
		cu_drop(object);
	cu_unlock();
	return object != NULL ? CUDA_SUCCESS : missing;
}
