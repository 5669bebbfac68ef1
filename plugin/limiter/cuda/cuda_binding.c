/* cuda_binding.c - what may keep backing beyond its release: files and handles that it is exported as, multicast
 * objects, endpoints.
 *
 * A binding to a multicast object is followed until it is taken back. Exports and endpoints are not: what they have
 * counts until the process ends. No lock is held while the driver is called (cuda_virtual.c). */
#include "virtual.h"

/* Plain memory leaves the ledger, and what it counted stays. */
static CUresult keep_plain(CUdeviceptr at, CUresult ret)
{
	struct ledger_entry entry;
	CUdeviceptr base = 0;
	size_t whole;

	if (ret == CUDA_SUCCESS && CALL(cuMemGetAddressRange_v2, &base, &whole, at) == CUDA_SUCCESS)
		ledger_take(LEDGER_POINTER, base, &entry);
	return ret;
}

#define KEEP(handle, name, ...)                                                                   \
	do {                                                                                      \
		struct hold hold;                                                                 \
		if (NESTED)                                                                       \
			return DRIVER(name)(__VA_ARGS__);                                         \
		hold_handle(&hold, handle);                                                       \
		return hold_kept(&hold, CALL(name, __VA_ARGS__));                                 \
	} while (0)

#define KEEP_RANGE(at, bytes, name, ...)                                                          \
	do {                                                                                      \
		struct hold hold;                                                                 \
		if (NESTED)                                                                       \
			return DRIVER(name)(__VA_ARGS__);                                         \
		if (!hold_range(&hold, at, bytes))                                                \
			return CUDA_ERROR_OUT_OF_MEMORY;                                          \
		return keep_plain(at, hold_kept(&hold, CALL(name, __VA_ARGS__)));                 \
	} while (0)

CUresult EXPORT cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
					     unsigned long long flags)
{
	KEEP(handle, cuMemExportToShareableHandle, out, handle, type, flags);
}

CUresult EXPORT cuMemGetHandleForAddressRange(void *out, CUdeviceptr at, size_t bytes, int type,
					      unsigned long long flags)
{
	KEEP_RANGE(at, bytes, cuMemGetHandleForAddressRange, out, at, bytes, type, flags);
}

CUresult EXPORT cuLogicalEndpointBindMem(CUlogicalEndpointId endpoint, CUdevice device, uint64_t where,
					 CUmemGenericAllocationHandle handle, uint64_t offset,
					 uint64_t bytes, unsigned long long flags)
{
	KEEP(handle, cuLogicalEndpointBindMem, endpoint, device, where, handle, offset, bytes, flags);
}

CUresult EXPORT cuLogicalEndpointBindAddr(CUlogicalEndpointId endpoint, CUdevice device, uint64_t where,
					  void *at, uint64_t bytes, unsigned long long flags)
{
	KEEP_RANGE((uintptr_t)at, bytes, cuLogicalEndpointBindAddr, endpoint, device, where, at, bytes, flags);
}

/* The card's number in the usage file. */
static int card_of(CUdevice device)
{
	struct card *card = charge_device_card(device);

	return card != NULL ? card_index(card) : -1;
}

/* The card that backing is on, for the forms that do not say it. */
static int held_card(const struct hold *hold)
{
	return hold->count > 0 ? hold->all[0].card : -1;
}

static uint64_t mix(uint64_t one, uint64_t other)
{
	one = (one ^ other) * 0x9e3779b97f4a7c15u;
	return one ^ one >> 32;
}

/* Of a binding, which is taken back by these very numbers. Its pieces have the keys from there on. */
static uint64_t key_of(uint64_t object, int card, uint64_t where, uint64_t bytes)
{
	return mix(mix(mix(object, where), bytes), (unsigned int)card);
}

#define BIND(card, name, ...)                                                                     \
	do {                                                                                      \
		struct hold hold;                                                                 \
		uint64_t key;                                                                     \
		if (NESTED)                                                                       \
			return DRIVER(name)(__VA_ARGS__);                                         \
		hold_handle(&hold, handle);                                                       \
		key = key_of(object, card, where, bytes);                                         \
		return hold_bound(&hold, CALL(name, __VA_ARGS__), key, object);                   \
	} while (0)

#define BIND_RANGE(card, name, ...)                                                               \
	do {                                                                                      \
		struct hold hold;                                                                 \
		uint64_t key;                                                                     \
		if (NESTED)                                                                       \
			return DRIVER(name)(__VA_ARGS__);                                         \
		if (!hold_range(&hold, at, bytes))                                                \
			return CUDA_ERROR_OUT_OF_MEMORY;                                          \
		key = key_of(object, card, where, bytes);                                         \
		return keep_plain(at, hold_bound(&hold, CALL(name, __VA_ARGS__), key, object));   \
	} while (0)

CUresult EXPORT cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t where,
				   CUmemGenericAllocationHandle handle, size_t offset, size_t bytes,
				   unsigned long long flags)
{
	BIND(held_card(&hold), cuMulticastBindMem, object, where, handle, offset, bytes, flags);
}

CUresult EXPORT cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t where,
				      CUmemGenericAllocationHandle handle, size_t offset, size_t bytes,
				      unsigned long long flags)
{
	BIND(card_of(device), cuMulticastBindMem_v2, object, device, where, handle, offset, bytes, flags);
}

CUresult EXPORT cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t where, CUdeviceptr at,
				    size_t bytes, unsigned long long flags)
{
	BIND_RANGE(held_card(&hold), cuMulticastBindAddr, object, where, at, bytes, flags);
}

CUresult EXPORT cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t where,
				       CUdeviceptr at, size_t bytes, unsigned long long flags)
{
	BIND_RANGE(card_of(device), cuMulticastBindAddr_v2, object, device, where, at, bytes, flags);
}

CUresult EXPORT cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t where, size_t bytes)
{
	struct hold hold;

	if (NESTED)
		return DRIVER(cuMulticastUnbind)(object, device, where, bytes);
	hold_taken(&hold, LEDGER_BOUND, key_of(object, card_of(device), where, bytes));
	return hold_ended(&hold, CALL(cuMulticastUnbind, object, device, where, bytes));
}
