/* cuda_virtual.c - memory with addresses of its own: the backing counts, an address range does not.
 *
 * A backing is free when its last reference is released and its last mapping is gone, also those into
 * arrays, and when it is bound to no multicast object any more. Once something else may hold it that
 * nobody can follow (a file or handle that it was exported as, an endpoint), it counts until the process
 * ends. Backing that an import brought is its exporter's, and is not in the ledger. Backing on the host
 * takes no card memory. It belongs to no context.
 *
 * One mutex around the ledger, and never around a call of the driver: to bind to a multicast object, and
 * to map one, waits until all its devices are added, and to unmap or release may wait for what is in
 * flight. Before a call that may refer to backing a reference is taken, and one is given back after the
 * call that ends it. Meanwhile its handle and its address may come again: each backing and each mapping
 * has a number. */
#include "system.h"
#include "virtual.h"

#define KEPT (1u << 30)			/* a reference that nobody gives back */

static void lock(void)
{
	struct process *own = process_own();

	if (own != NULL)
		mutex_lock(&own->virtual);
}

static CUresult unlock(CUresult ret)
{
	struct process *own = process_own();

	if (own != NULL)
		mutex_unlock(&own->virtual);
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

/* Where one is whose handle has come again; no handle. */
static uint64_t aside(uint64_t number)
{
	return 1ull << 63 | number;
}

/* The handle is another one's now. What still has the one of before finds it by its number. */
static void set_aside(uint64_t handle)
{
	struct ledger_entry before;

	if (!ledger_take(LEDGER_BACKING, handle, &before))
		return;
	before.key = aside(before.of);
	ledger_put(before);
}

/* False: it is not in the ledger. number 0: that of a handle which is valid now. With the lock. */
static bool find(uint64_t handle, uint64_t number, struct ledger_entry *out)
{
	return (ledger_get(LEDGER_BACKING, handle, out) && (number == 0 || out->of == number)) ||
	       (number != 0 && ledger_get(LEDGER_BACKING, aside(number), out));
}

/* What only something has that nobody follows leaves the ledger, and stays counted: its handle may come again. */
static void refer(uint64_t handle, uint64_t number, int change)
{
	struct ledger_entry entry;
	unsigned int left;

	if (!find(handle, number, &entry))
		return;
	left = (unsigned int)ledger_refer(LEDGER_BACKING, entry.key, change);
	if (left % KEPT == 0 && ledger_take(LEDGER_BACKING, entry.key, &entry) && left == 0)
		charge_give_back(&entry);
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
	copy = READ_ONCE(prop);
	handle = *out;
	if (copy.location.type == CU_MEM_LOCATION_DEVICE &&
	    !charge_card(&charge, charge_device_card(copy.location.id), bytes))
		return charge.why;
	ret = CALL(cuMemCreate, &handle, bytes, &copy, flags);
	if (copy.location.type == CU_MEM_LOCATION_DEVICE && !charge_late(&charge, ret, copy.location.id)) {
		CALL(cuMemRelease, handle);
		return charge.why;
	}
	lock();
	if (ret == CUDA_SUCCESS)
		set_aside(handle);
	charge.context = number();
	ret = unlock(charge_settle(&charge, ret, LEDGER_BACKING, handle));
	*out = handle;
	return ret;
}

CUresult EXPORT cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct ledger_entry backing;
	CUresult ret;

	if (NESTED || !ledger_get(LEDGER_BACKING, handle, &backing))
		return DRIVER(cuMemRelease)(handle);
	ret = CALL(cuMemRelease, handle);
	lock();
	if (ret == CUDA_SUCCESS)
		refer(handle, backing.of, -1);
	return unlock(ret);
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

	if (!find(handle, number, &backing))
		return;
	refer(handle, backing.of, 1);
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
		if (find(hold->all[i].bytes, hold->all[i].references, &backing) && backing.references < KEPT)
			ledger_refer(LEDGER_BACKING, backing.key, (int)KEPT);
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

/* Whatever was mapped there is so no more: the driver has mapped this. With the lock. */
static void put_mapping(struct ledger_entry mapping)
{
	struct process *own = process_own();
	struct ledger_entry before;

	if (ledger_take(LEDGER_MAPPING, mapping.key, &before))
		refer(before.of, before.references, -1);
	if (own != NULL)
		mapping.card = (int16_t)++own->mappings;
	ledger_put(mapping);
}

CUresult hold_mapped(struct hold *hold, CUresult ret, CUdeviceptr at, uint64_t bytes)
{
	if (hold->count == 0)
		return ret;
	lock();
	if (ret == CUDA_SUCCESS)
		put_mapping((struct ledger_entry){ .key = at, .bytes = bytes, .of = hold->all[0].bytes,
						   .references = hold->all[0].references,
						   .kind = LEDGER_MAPPING });
	else
		let_go(hold);
	return unhold(hold, ret);
}

/* The reference that the hold has becomes that of the handle. One by another handle than before, which nobody knows
 * to happen, is given back by none, and counts. */
CUresult EXPORT cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *at)
{
	CUmemGenericAllocationHandle handle;
	struct hold hold;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuMemRetainAllocationHandle)(out, at);
	handle = *out;
	hold_range(&hold, (uintptr_t)at, 1);
	ret = CALL(cuMemRetainAllocationHandle, &handle, at);
	lock();
	if (ret == CUDA_SUCCESS && hold.count == 0)
		refer(handle, 0, 1);
	if (ret != CUDA_SUCCESS)
		let_go(&hold);
	ret = unhold(&hold, ret);
	*out = handle;
	return ret;
}

/* What is mapped from there on, without a reference. False: no memory. */
static bool note_mappings(struct hold *hold, CUdeviceptr at, uint64_t bytes)
{
	struct ledger_entry mapping;
	uint64_t done = 0;
	unsigned int found;
	bool fits = true;

	hold_none(hold);
	lock();
	while (done < bytes && fits && ledger_get(LEDGER_MAPPING, at + done, &mapping) && mapping.bytes != 0) {
		fits = hold->count < hold->room || make_room(hold, 2 * hold->room);
		if (fits)
			hold->all[hold->count++] = mapping;
		done += mapping.bytes;
	}
	found = done < bytes && fits ? ledger_mapped(at + done, bytes - done, NULL, 0) : 0;
	fits = fits && make_room(hold, hold->count + found);
	if (found != 0 && fits) {	/* with gaps */
		ledger_mapped(at + done, bytes - done, hold->all + hold->count, found);
		hold->count += found;
	}
	return unlock(fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY) == CUDA_SUCCESS;
}

/* With the lock. */
static void take_mapping(const struct ledger_entry *noted)
{
	struct ledger_entry now;

	if (ledger_get(LEDGER_MAPPING, noted->key, &now) && now.card == noted->card &&
	    ledger_take(LEDGER_MAPPING, noted->key, &now))
		refer(now.of, now.references, -1);
}

CUresult EXPORT cuMemUnmap(CUdeviceptr at, size_t bytes)
{
	struct hold hold;
	CUresult ret;

	if (NESTED)
		return DRIVER(cuMemUnmap)(at, bytes);
	if (!note_mappings(&hold, at, bytes))
		ret = CUDA_ERROR_OUT_OF_MEMORY;
	else
		ret = CALL(cuMemUnmap, at, bytes);
	lock();
	for (unsigned int i = 0; i < hold.count && ret == CUDA_SUCCESS; i++)
		if (hold.all[i].key - at < bytes)
			take_mapping(&hold.all[i]);
	return unhold(&hold, ret);
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
	hold_none(hold);
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
		copy[i] = READ_ONCE(&list[i]);
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
