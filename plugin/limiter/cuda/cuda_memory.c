/* cuda_memory.c - plain, pitched and managed memory.
 *
 * Managed memory counts whole, as if all of it were on the card: it can be. The macros are for both widths: pointers
 * and sizes have 32 bits in the oldest forms. */
#include "charge.h"

#define PITCH_STEP 512			/* what rows are rounded up to at most, before the driver says */

#define ALLOCATE(name, out, bytes)								\
	do {											\
		struct charge charge;								\
		__typeof__(*(out)) at;								\
		CUresult ret;									\
												\
		if (NESTED || (out) == NULL)							\
			return DRIVER(name)(out, bytes);					\
		if (!charge_current(&charge, bytes))						\
			return charge.why;							\
		at = *(out);									\
		ret = CALL(name, &at, bytes);							\
		ret = charge_settle(&charge, ret, LEDGER_POINTER, at);				\
		*(out) = at;									\
		return ret;									\
	} while (0)

CUresult EXPORT cuMemAlloc(CUdeviceptr_v1 *out, unsigned int bytes)
{
	ALLOCATE(cuMemAlloc, out, bytes);
}

CUresult EXPORT cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	ALLOCATE(cuMemAlloc_v2, out, bytes);
}

CUresult EXPORT cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
	struct charge charge;
	CUdeviceptr at;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuMemAllocManaged)(out, bytes, flags);
	if (!charge_current(&charge, bytes))
		return charge.why;
	at = *out;
	ret = CALL(cuMemAllocManaged, &at, bytes, flags);
	ret = charge_settle(&charge, ret, LEDGER_POINTER, at);
	*out = at;
	return ret;
}

/* False: no card is that large. */
static bool pitched(uint64_t width, uint64_t height, uint64_t *bytes)
{
	uint64_t row = (width + PITCH_STEP - 1) / PITCH_STEP * PITCH_STEP;

	return row >= width && !__builtin_mul_overflow(row, height, bytes);
}

/* The driver chose the pitch: count that. False: the difference passes the limit. */
static bool correct(struct charge *charge, uint64_t bytes)
{
	if (charge->card == NULL)
		return true;
	if (bytes > charge->bytes) {
		if (!usage_reserve(card_index(charge->card), bytes - charge->bytes,
				   limits_room(charge->card)))
			return false;
	} else {
		usage_release(card_index(charge->card), charge->bytes - bytes);
	}
	charge->bytes = bytes;
	return true;
}

#define ALLOCATE_PITCHED(name, free, out, pitch, width, height, element)			\
	do {											\
		struct charge charge;								\
		__typeof__(*(out)) at;								\
		__typeof__(*(pitch)) row;							\
		uint64_t bytes;									\
		CUresult ret;									\
												\
		if (NESTED || (out) == NULL || (pitch) == NULL || !pitched(width, height, &bytes))	\
			return DRIVER(name)(out, pitch, width, height, element);		\
		if (!charge_current(&charge, bytes))						\
			return charge.why;							\
		at = *(out);									\
		row = *(pitch);									\
		ret = CALL(name, &at, &row, width, height, element);				\
		if (ret == CUDA_SUCCESS && !correct(&charge, (uint64_t)row * (height))) {	\
			CALL(free, at);								\
			ret = CUDA_ERROR_OUT_OF_MEMORY;						\
		}										\
		ret = charge_settle(&charge, ret, LEDGER_POINTER, at);				\
		*(pitch) = row;									\
		*(out) = at;									\
		return ret;									\
	} while (0)

CUresult EXPORT cuMemAllocPitch(CUdeviceptr_v1 *out, unsigned int *pitch, unsigned int width,
				unsigned int height, unsigned int element)
{
	ALLOCATE_PITCHED(cuMemAllocPitch, cuMemFree, out, pitch, width, height, element);
}

CUresult EXPORT cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
				   unsigned int element)
{
	ALLOCATE_PITCHED(cuMemAllocPitch_v2, cuMemFree_v2, out, pitch, width, height, element);
}

#define FREE(name, at)										\
	do {											\
		struct ledger_entry entry;							\
												\
		if (NESTED)									\
			return DRIVER(name)(at);						\
		entry = charge_release_pointer(at);						\
		return charge_released(&entry, CALL(name, at));					\
	} while (0)

CUresult EXPORT cuMemFree(CUdeviceptr_v1 at)
{
	FREE(cuMemFree, at);
}

CUresult EXPORT cuMemFree_v2(CUdeviceptr at)
{
	FREE(cuMemFree_v2, at);
}
