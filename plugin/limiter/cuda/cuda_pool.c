/* cuda_pool.c - memory in a stream's order, from the card's own pool or one of the program's.
 *
 * What is allocated counts, from the call that allocates to the call that frees. What a pool keeps
 * between them does not count yet (README.md, "What escapes today"). */
#include "charge.h"

CUresult EXPORT cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuMemAllocAsync)(out, bytes, stream);
	if (!charge_current(&charge, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ret = CALL(cuMemAllocAsync, out, bytes, stream);
	return charge_settle(&charge, ret, LEDGER_POINTER, *out);
}

CUresult EXPORT cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuMemAllocAsync_ptsz)(out, bytes, stream);
	if (!charge_current(&charge, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ret = CALL(cuMemAllocAsync_ptsz, out, bytes, stream);
	return charge_settle(&charge, ret, LEDGER_POINTER, *out);
}

CUresult EXPORT cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
					CUstream stream)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuMemAllocFromPoolAsync)(out, bytes, pool, stream);
	if (!charge_current(&charge, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ret = CALL(cuMemAllocFromPoolAsync, out, bytes, pool, stream);
	return charge_settle(&charge, ret, LEDGER_POINTER, *out);
}

CUresult EXPORT cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
					     CUstream stream)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuMemAllocFromPoolAsync_ptsz)(out, bytes, pool, stream);
	if (!charge_current(&charge, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ret = CALL(cuMemAllocFromPoolAsync_ptsz, out, bytes, pool, stream);
	return charge_settle(&charge, ret, LEDGER_POINTER, *out);
}

CUresult EXPORT cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
	struct ledger_entry entry;

	if (NESTED)
		return DRIVER(cuMemFreeAsync)(at, stream);
	entry = charge_release(LEDGER_POINTER, at);
	return charge_released(&entry, CALL(cuMemFreeAsync, at, stream));
}

CUresult EXPORT cuMemFreeAsync_ptsz(CUdeviceptr at, CUstream stream)
{
	struct ledger_entry entry;

	if (NESTED)
		return DRIVER(cuMemFreeAsync_ptsz)(at, stream);
	entry = charge_release(LEDGER_POINTER, at);
	return charge_released(&entry, CALL(cuMemFreeAsync_ptsz, at, stream));
}
