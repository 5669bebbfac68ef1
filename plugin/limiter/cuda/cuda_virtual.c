/* cuda_virtual.c - memory with addresses of its own: the backing counts, an address range does not.
 *
 * A backing is free when its last reference is released and its last mapping is gone. Backing that an
 * import brought is its exporter's, and is not in the ledger. Backing on the host takes no card
 * memory. It belongs to no context.
 *
 * One mutex around the driver's call and the ledger: a handle may come again the moment that it is
 * free. These calls take microseconds, and none waits for another. */
#include "charge.h"

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

CUresult EXPORT cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
			    const struct CUmem_allocation_prop *prop, unsigned long long flags)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL || prop == NULL || prop->location.type != CU_MEM_LOCATION_DEVICE)
		return DRIVER(cuMemCreate)(out, bytes, prop, flags);
	if (!charge_card(&charge, charge_device_card(prop->location.id), bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	lock();
	ret = CALL(cuMemCreate, out, bytes, prop, flags);
	return unlock(charge_settle(&charge, ret, LEDGER_BACKING, *out));
}

static void refer(uint64_t handle, int change)
{
	struct ledger_entry entry;

	if (ledger_refer(LEDGER_BACKING, handle, change) == 0 &&
	    ledger_take(LEDGER_BACKING, handle, &entry))
		charge_give_back(&entry);
}

CUresult EXPORT cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult ret;

	if (NESTED)
		return DRIVER(cuMemRelease)(handle);
	lock();
	ret = CALL(cuMemRelease, handle);
	if (ret == CUDA_SUCCESS)
		refer(handle, -1);
	return unlock(ret);
}

CUresult EXPORT cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *at)
{
	CUresult ret;

	if (NESTED)
		return DRIVER(cuMemRetainAllocationHandle)(out, at);
	lock();
	ret = CALL(cuMemRetainAllocationHandle, out, at);
	if (ret == CUDA_SUCCESS)
		refer(*out, 1);
	return unlock(ret);
}

CUresult EXPORT cuMemMap(CUdeviceptr at, size_t bytes, size_t offset,
			 CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CUresult ret;

	if (NESTED)
		return DRIVER(cuMemMap)(at, bytes, offset, handle, flags);
	lock();
	ret = CALL(cuMemMap, at, bytes, offset, handle, flags);
	if (ret == CUDA_SUCCESS && ledger_has(LEDGER_BACKING, handle)) {
		refer(handle, 1);
		ledger_put((struct ledger_entry){ .key = at, .bytes = bytes, .of = handle,
						  .kind = LEDGER_MAPPING });
	}
	return unlock(ret);
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
		refer(mapping.of, -1);
		if (mapping.key == at + done)
			done += mapping.bytes;
	}
	return unlock(ret);
}
