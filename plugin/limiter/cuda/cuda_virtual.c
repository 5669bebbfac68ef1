/* cuda_virtual.c - memory with addresses of its own: the backing counts, an address range does not.
 *
 * A backing is free when its last reference is released and its last mapping is gone, also those into
 * arrays, and when it is bound to no multicast object any more. Once something else may hold it that
 * nobody can follow (a file or handle that it was exported as, an endpoint), it counts until the process
 * ends. Backing that an import brought is its exporter's, and is not in the ledger. Backing on the host
 * takes no card memory. It belongs to no context.
 *
 * One mutex around the ledger, and around the driver's call where that may free a handle, which may come
 * again at once. Not around what may wait for another thread or process: to bind to a multicast object, and
 * to map one, waits until all its devices are added. There a reference is taken before the call. */
#include "system.h"
#include "virtual.h"

#define KEPT (1u << 30)			/* a reference that nobody gives back */

static void lock(void)
{
	struct process *own = process_own();

	if (own != NULL)
		mutex_enter(&own->virtual, THREAD);
}

static CUresult unlock(CUresult ret)
{
	struct process *own = process_own();

	if (own != NULL)
		mutex_leave(&own->virtual);
	return ret;
}

/* Each backing has one of its own (`of` in the ledger), for its handle may come again while it is still mapped. */
static uint64_t number(void)
{
	struct process *own = process_own();

	if (own != NULL && ++own->backings == 0)
		++own->backings;
	return own != NULL ? own->backings : 0;
}

CUresult EXPORT cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
			    const struct CUmem_allocation_prop *prop, unsigned long long flags)
{
	struct charge charge = { .card = NULL };
	CUmemGenericAllocationHandle handle;
	struct CUmem_allocation_prop copy;
	CUresult ret;

	if (NESTED || out == NULL || prop == NULL)
		return DRIVER(cuMemCreate)(out, bytes, prop, flags);
	copy = *prop;
	handle = *out;
	if (copy.location.type == CU_MEM_LOCATION_DEVICE &&
	    !charge_card(&charge, charge_device_card(copy.location.id), bytes))
		return charge.why;
	lock();
	ret = CALL(cuMemCreate, &handle, bytes, &copy, flags);
	if (copy.location.type == CU_MEM_LOCATION_DEVICE && !charge_late(&charge, ret, copy.location.id)) {
		CALL(cuMemRelease, handle);
		return unlock(charge.why);
	}
	charge.context = number();
	ret = unlock(charge_settle(&charge, ret, LEDGER_BACKING, handle));
	*out = handle;
	return ret;
}

/* number 0: that of a handle which is valid now. What only something has that nobody follows leaves the ledger,
 * and stays counted: its handle may come again. */
static void refer(uint64_t handle, uint64_t number, int change)
{
	struct ledger_entry entry;
	unsigned int left;

	if (!ledger_get(LEDGER_BACKING, handle, &entry) || (number != 0 && entry.of != number))
		return;
	left = (unsigned int)ledger_refer(LEDGER_BACKING, handle, change);
	if (left % KEPT == 0 && ledger_take(LEDGER_BACKING, handle, &entry) && left == 0)
		charge_give_back(&entry);
}

CUresult EXPORT cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult ret;

	if (NESTED || !ledger_has(LEDGER_BACKING, handle))
		return DRIVER(cuMemRelease)(handle);
	lock();
	ret = CALL(cuMemRelease, handle);
	if (ret == CUDA_SUCCESS)
		refer(handle, 0, -1);
	return unlock(ret);
}

CUresult EXPORT cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *at)
{
	CUmemGenericAllocationHandle handle;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuMemRetainAllocationHandle)(out, at);
	handle = *out;
	lock();
	ret = CALL(cuMemRetainAllocationHandle, &handle, at);
	if (ret == CUDA_SUCCESS)
		refer(handle, 0, 1);
	unlock(ret);
	*out = handle;
	return ret;
}

CUresult EXPORT cuMemMap(CUdeviceptr at, size_t bytes, size_t offset,
			 CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct hold hold;

	if (NESTED)
		return DRIVER(cuMemMap)(at, bytes, offset, handle, flags);
	hold_handle(&hold, handle);
	return hold_mapped(&hold, CALL(cuMemMap, at, bytes, offset, handle, flags), at, bytes);
}

CUresult EXPORT cuMemUnmap(CUdeviceptr at, size_t bytes)
{
	struct ledger_entry mapping;
	CUresult ret;
	size_t done = 0;

	if (NESTED)
		return DRIVER(cuMemUnmap)(at, bytes);
	lock();
	ret = CALL(cuMemUnmap, at, bytes);
	if (ret != CUDA_SUCCESS)
		bytes = 0;
	while (done < bytes && (ledger_take(LEDGER_MAPPING, at + done, &mapping) ||
				ledger_take_mapping(at + done, bytes - done, &mapping))) {
		refer(mapping.of, mapping.references, -1);
		if (mapping.key == at + done)
			done += mapping.bytes;
	}
	return unlock(ret);
}

void hold_none(struct hold *hold)
{
	hold->all = hold->few;
	hold->room = HOLD_FEW;
	hold->count = 0;
}

static CUresult unhold(struct hold *hold, CUresult ret)
{
	if (hold->all != hold->few)
		system_unmap(hold->all, hold->room * sizeof(*hold->all));
	hold_none(hold);
	return unlock(ret);
}

/* False: no memory. */
static bool make_room(struct hold *hold, unsigned int room)
{
	struct ledger_entry *all;

	if (room <= hold->room)
		return true;
	all = system_map(room * sizeof(*all), -1);
	if (all == NULL)
		return false;
	for (unsigned int i = 0; i < hold->count; i++)
		all[i] = hold->all[i];
	if (hold->all != hold->few)
		system_unmap(hold->all, hold->room * sizeof(*all));
	hold->all = all;
	hold->room = room;
	return true;
}

/* Refer to it. The lock is held. */
static void add(struct hold *hold, uint64_t handle, uint64_t number)
{
	struct ledger_entry backing;

	if (!ledger_get(LEDGER_BACKING, handle, &backing) || (number != 0 && backing.of != number))
		return;
	refer(handle, 0, 1);
	hold->all[hold->count++] = (struct ledger_entry){ .bytes = handle, .card = backing.card,
							  .references = (unsigned int)backing.of };
}

void hold_handle(struct hold *hold, uint64_t handle)
{
	hold_none(hold);
	if (!ledger_has(LEDGER_BACKING, handle))
		return;
	lock();
	add(hold, handle, 0);
	unlock(CUDA_SUCCESS);
}

bool hold_range(struct hold *hold, CUdeviceptr at, uint64_t bytes)
{
	unsigned int found;

	hold_none(hold);
	lock();
	found = ledger_mapped(at, bytes, hold->all, hold->room);
	if (found > hold->room) {
		if (!make_room(hold, found))
			return unlock(CUDA_ERROR_OUT_OF_MEMORY) == CUDA_SUCCESS;
		ledger_mapped(at, bytes, hold->all, hold->room);
	}
	for (unsigned int i = 0; i < found; i++) {	/* in its own place, or before */
		struct ledger_entry mapping = hold->all[i];

		add(hold, mapping.of, mapping.references);
	}
	return unlock(CUDA_SUCCESS) == CUDA_SUCCESS;
}

/* What there is no room for stays in the ledger, and counts. */
static bool take(struct hold *hold, const struct ledger_entry *entry)
{
	if (hold->count == hold->room && !make_room(hold, 2 * hold->room)) {
		ledger_put(*entry);
		return false;
	}
	hold->all[hold->count++] = *entry;
	return true;
}

void hold_taken_of(struct hold *hold, enum ledger_kind kind, uint64_t of)
{
	struct ledger_entry entry;

	hold_none(hold);
	lock();
	while (ledger_take_of(kind, of, &entry) && take(hold, &entry))
		;
	unlock(CUDA_SUCCESS);
}

void hold_taken(struct hold *hold, enum ledger_kind kind, uint64_t key)
{
	struct ledger_entry entry;

	hold_none(hold);
	lock();
	while (ledger_take(kind, key, &entry) && take(hold, &entry))
		key++;
	unlock(CUDA_SUCCESS);
}

static void let_go(const struct hold *hold)
{
	for (unsigned int i = 0; i < hold->count; i++)
		refer(hold->all[i].bytes, hold->all[i].references, -1);
}

CUresult hold_kept(struct hold *hold, CUresult ret)
{
	struct ledger_entry backing;

	if (hold->count == 0)
		return ret;
	lock();
	for (unsigned int i = 0; i < hold->count && ret == CUDA_SUCCESS; i++)
		if (ledger_get(LEDGER_BACKING, hold->all[i].bytes, &backing) && backing.references < KEPT &&
		    backing.of == hold->all[i].references)
			ledger_refer(LEDGER_BACKING, hold->all[i].bytes, (int)KEPT);
	let_go(hold);
	return unhold(hold, ret);
}

/* A key that is taken: of a binding whose object was released, and may still be there. Which of both is taken back
 * nobody can tell then, so neither is. */
CUresult hold_bound(struct hold *hold, CUresult ret, uint64_t key, uint64_t object)
{
	struct ledger_entry before;

	if (hold->count == 0)
		return ret;
	lock();
	if (ret != CUDA_SUCCESS)
		let_go(hold);
	for (unsigned int i = 0; i < hold->count && ret == CUDA_SUCCESS; i++) {
		struct ledger_entry bound = hold->all[i];

		bound.key = key + i;
		bound.of = object;
		bound.kind = LEDGER_BOUND;
		if (!ledger_take(LEDGER_BOUND, bound.key, &before))
			ledger_put(bound);
	}
	return unhold(hold, ret);
}

CUresult hold_mapped(struct hold *hold, CUresult ret, CUdeviceptr at, uint64_t bytes)
{
	if (hold->count == 0)
		return ret;
	lock();
	if (ret == CUDA_SUCCESS)
		ledger_put((struct ledger_entry){ .key = at, .bytes = bytes, .of = hold->all[0].bytes,
						  .references = hold->all[0].references,
						  .kind = LEDGER_MAPPING });
	else
		let_go(hold);
	return unhold(hold, ret);
}

CUresult hold_ended(struct hold *hold, CUresult ret)
{
	if (hold->count == 0)
		return ret;
	lock();
	if (ret == CUDA_SUCCESS)
		let_go(hold);
	for (unsigned int i = 0; i < hold->count && ret != CUDA_SUCCESS; i++)
		ledger_put(hold->all[i]);
	return unhold(hold, ret);
}

/* One reference for each array that has any of it, until the array ends: which parts were unmapped again is
 * not followed. Several may have one key: then it counts until the process ends. */
static void tile(struct process *own, uint64_t array, const struct ledger_entry *held)
{
	struct ledger_entry entry, tiles = { .key = array ^ held->bytes * 0x9e3779b97f4a7c15u, .of = array,
					     .bytes = held->bytes, .references = held->references,
					     .card = held->card, .kind = LEDGER_TILES };
	bool there = ledger_get(LEDGER_TILES, tiles.key, &entry);

	if (there && entry.of == array && entry.bytes == tiles.bytes && entry.references == tiles.references)
		return;
	refer(held->bytes, held->references, 1);
	if (there)
		return;
	__atomic_store_n(&own->tiles, true, __ATOMIC_RELEASE);
	ledger_put(tiles);
}

static bool hold_tiles(struct hold *hold, const struct CUarray_map *list, unsigned int count)
{
	bool ours = false;

	hold_none(hold);
	for (unsigned int i = 0; i < count && !ours; i++)
		ours = list[i].operation == CU_MEM_OPERATION_MAP && ledger_has(LEDGER_BACKING, list[i].handle);
	if (!ours)
		return true;
	if (!make_room(hold, count))
		return false;
	lock();
	for (unsigned int i = 0; i < count; i++)
		if (list[i].operation == CU_MEM_OPERATION_MAP)
			add(hold, list[i].handle, 0);
	unlock(CUDA_SUCCESS);
	return true;
}

/* Of several some may be mapped also where the driver refuses. */
static CUresult tiled(struct hold *hold, CUresult ret, const struct CUarray_map *list, unsigned int count)
{
	struct process *own = process_own();
	unsigned int held = 0;

	if (hold->count == 0)
		return ret;
	lock();
	for (unsigned int i = 0; i < count && held < hold->count; i++) {
		if (list[i].operation != CU_MEM_OPERATION_MAP || list[i].handle != hold->all[held].bytes)
			continue;
		if (own != NULL && (ret == CUDA_SUCCESS || count > 1))
			tile(own, (uintptr_t)list[i].array, &hold->all[held]);
		held++;
	}
	let_go(hold);
	return unhold(hold, ret);
}

static struct CUarray_map *copy_of(const struct CUarray_map *list, unsigned int count)
{
	struct CUarray_map *copy = system_map(count * sizeof(*copy), -1);

	for (unsigned int i = 0; copy != NULL && i < count; i++)
		copy[i] = list[i];
	return copy;
}

#define TILES(name)                                                                               \
	do {                                                                                      \
		struct CUarray_map *copy;                                                         \
		struct hold hold;                                                                 \
		CUresult ret = CUDA_ERROR_OUT_OF_MEMORY;                                          \
		if (NESTED || list == NULL || count == 0)                                         \
			return DRIVER(name)(list, count, stream);                                 \
		copy = copy_of(list, count);                                                      \
		if (copy == NULL)                                                                 \
			return ret;                                                               \
		if (hold_tiles(&hold, copy, count))                                               \
			ret = tiled(&hold, CALL(name, copy, count, stream), copy, count);         \
		system_unmap(copy, count * sizeof(*copy));                                        \
		return ret;                                                                       \
	} while (0)

CUresult EXPORT cuMemMapArrayAsync(struct CUarray_map *list, unsigned int count, CUstream stream)
{
	TILES(cuMemMapArrayAsync);
}

CUresult EXPORT cuMemMapArrayAsync_ptsz(struct CUarray_map *list, unsigned int count, CUstream stream)
{
	TILES(cuMemMapArrayAsync_ptsz);
}

/* Before its handle can come again. */
void hold_array(struct hold *hold, void *array)
{
	struct process *own = process_own();

	hold_none(hold);
	if (own != NULL && __atomic_load_n(&own->tiles, __ATOMIC_ACQUIRE))
		hold_taken_of(hold, LEDGER_TILES, (uintptr_t)array);
}
