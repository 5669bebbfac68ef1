/* cuda_memory.c - plain, pitched and managed memory.
 *
 * Managed memory counts whole, as if all of it were on the card: it can be. */
#include "charge.h"

#define PITCH_STEP 512			/* what rows are rounded up to at most, before the driver says */

CUresult EXPORT cuMemAlloc(CUdeviceptr_v1 *out, unsigned int bytes)
{
	struct charge charge;
	CUdeviceptr_v1 at;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuMemAlloc)(out, bytes);
	if (!charge_current(&charge, bytes))
		return charge.why;
	at = *out;
	ret = CALL(cuMemAlloc, &at, bytes);
	ret = charge_settle(&charge, ret, LEDGER_POINTER, at);
	*out = at;
	return ret;
}

CUresult EXPORT cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	struct charge charge;
	CUdeviceptr at;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuMemAlloc_v2)(out, bytes);
	if (!charge_current(&charge, bytes))
		return charge.why;
	at = *out;
	ret = CALL(cuMemAlloc_v2, &at, bytes);
	ret = charge_settle(&charge, ret, LEDGER_POINTER, at);
	*out = at;
	return ret;
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

CUresult EXPORT cuMemAllocPitch(CUdeviceptr_v1 *out, unsigned int *pitch, unsigned int width,
				unsigned int height, unsigned int element)
{
	struct charge charge;
	CUdeviceptr_v1 at;
	unsigned int row;
	uint64_t bytes;
	CUresult ret;

	if (NESTED || out == NULL || pitch == NULL || !pitched(width, height, &bytes))
		return DRIVER(cuMemAllocPitch)(out, pitch, width, height, element);
	if (!charge_current(&charge, bytes))
		return charge.why;
	at = *out;
	row = *pitch;
	ret = CALL(cuMemAllocPitch, &at, &row, width, height, element);
	if (ret == CUDA_SUCCESS && !correct(&charge, (uint64_t)row * height)) {
		CALL(cuMemFree, at);
		ret = CUDA_ERROR_OUT_OF_MEMORY;
	}
	ret = charge_settle(&charge, ret, LEDGER_POINTER, at);
	*pitch = row;
	*out = at;
	return ret;
}

CUresult EXPORT cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
				   unsigned int element)
{
	struct charge charge;
	CUdeviceptr at;
	size_t row;
	uint64_t bytes;
	CUresult ret;

	if (NESTED || out == NULL || pitch == NULL || !pitched(width, height, &bytes))
		return DRIVER(cuMemAllocPitch_v2)(out, pitch, width, height, element);
	if (!charge_current(&charge, bytes))
		return charge.why;
	at = *out;
	row = *pitch;
	ret = CALL(cuMemAllocPitch_v2, &at, &row, width, height, element);
	if (ret == CUDA_SUCCESS && !correct(&charge, (uint64_t)row * height)) {
		CALL(cuMemFree_v2, at);
		ret = CUDA_ERROR_OUT_OF_MEMORY;
	}
	ret = charge_settle(&charge, ret, LEDGER_POINTER, at);
	*pitch = row;
	*out = at;
	return ret;
}

CUresult EXPORT cuMemFree(CUdeviceptr_v1 at)
{
	struct ledger_entry entry;

	if (NESTED)
		return DRIVER(cuMemFree)(at);
	entry = charge_release_pointer(at);
	return charge_released(&entry, CALL(cuMemFree, at));
}

CUresult EXPORT cuMemFree_v2(CUdeviceptr at)
{
	struct ledger_entry entry;

	if (NESTED)
		return DRIVER(cuMemFree_v2)(at);
	entry = charge_release_pointer(at);
	return charge_released(&entry, CALL(cuMemFree_v2, at));
}
