/* cuda_context.c - contexts: each takes card memory of its own, and with it goes all that it holds.
 *
 * How much a context takes stands in the limits file. The driver is asked whether a primary context
 * is there, before and after: it alone knows who else retained it. One mutex around these calls, so
 * that a context's address does not come again before its memory left the ledger. */
#include "charge.h"

static struct process *lock(void)
{
	struct process *own = process_own();

	if (own != NULL)
		mutex_lock(&own->contexts);
	return own;
}

static void unlock(struct process *own)
{
	if (own != NULL)
		mutex_unlock(&own->contexts);
}

static CUresult settle(struct charge *charge, CUresult ret, CUcontext context)
{
	charge->context = (uint64_t)(uintptr_t)context;
	if (ret == CUDA_SUCCESS && charge->card != NULL)
		usage_contexts(charge->card->index, 1);
	return charge_settle(charge, ret, LEDGER_CONTEXT, charge->context);
}

static bool charge_context(struct charge *charge, CUdevice device)
{
	struct card *card = charge_device_card(device);

	return charge_card(charge, card, card != NULL ? limits_context(card) : 0);
}

static void forget(CUcontext context)
{
	ledger_take_context((uint64_t)(uintptr_t)context, charge_give_back);
	charge_forget_contexts();
}

CUresult EXPORT cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice device)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuCtxCreate)(out, flags, device);
	if (!charge_context(&charge, device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ret = CALL(cuCtxCreate, out, flags, device);
	return settle(&charge, ret, *out);
}

CUresult EXPORT cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuCtxCreate_v2)(out, flags, device);
	if (!charge_context(&charge, device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ret = CALL(cuCtxCreate_v2, out, flags, device);
	return settle(&charge, ret, *out);
}

CUresult EXPORT cuCtxCreate_v3(CUcontext *out, void *affinity, int count, unsigned int flags,
			       CUdevice device)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuCtxCreate_v3)(out, affinity, count, flags, device);
	if (!charge_context(&charge, device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ret = CALL(cuCtxCreate_v3, out, affinity, count, flags, device);
	return settle(&charge, ret, *out);
}

CUresult EXPORT cuCtxCreate_v4(CUcontext *out, void *params, unsigned int flags, CUdevice device)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuCtxCreate_v4)(out, params, flags, device);
	if (!charge_context(&charge, device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ret = CALL(cuCtxCreate_v4, out, params, flags, device);
	return settle(&charge, ret, *out);
}

CUresult EXPORT cuCtxDestroy(CUcontext context)
{
	struct process *own;
	CUresult ret;

	if (NESTED)
		return DRIVER(cuCtxDestroy)(context);
	own = lock();
	ret = CALL(cuCtxDestroy, context);
	if (ret == CUDA_SUCCESS)
		forget(context);
	unlock(own);
	return ret;
}

CUresult EXPORT cuCtxDestroy_v2(CUcontext context)
{
	struct process *own;
	CUresult ret;

	if (NESTED)
		return DRIVER(cuCtxDestroy_v2)(context);
	own = lock();
	ret = CALL(cuCtxDestroy_v2, context);
	if (ret == CUDA_SUCCESS)
		forget(context);
	unlock(own);
	return ret;
}

static bool active(CUdevice device)
{
	unsigned int flags;
	int there = 0;

	return CALL(cuDevicePrimaryCtxGetState, device, &flags, &there) == CUDA_SUCCESS && there != 0;
}

/* A primary context that came past us (through an export table) is counted when it is first seen. */
static void count_late(CUdevice device, CUcontext context)
{
	struct card *card = charge_device_card(device);
	struct charge charge = { card, card != NULL ? limits_context(card) : 0, 0 };

	if (card == NULL || ledger_has(LEDGER_CONTEXT, (uint64_t)(uintptr_t)context))
		return;
	usage_add(card->index, charge.bytes);
	settle(&charge, CUDA_SUCCESS, context);
}

static CUresult retain(CUcontext *out, CUdevice device)
{
	struct charge charge;
	CUresult ret;

	if (active(device)) {
		ret = CALL(cuDevicePrimaryCtxRetain, out, device);
		if (ret == CUDA_SUCCESS)
			count_late(device, *out);
		return ret;
	}
	if (!charge_context(&charge, device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ret = CALL(cuDevicePrimaryCtxRetain, out, device);
	return settle(&charge, ret, *out);
}

CUresult EXPORT cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	struct process *own;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuDevicePrimaryCtxRetain)(out, device);
	own = lock();
	ret = retain(out, device);
	if (ret == CUDA_SUCCESS && own != NULL && device >= 0 && device < DEVICES_MAX)
		own->primary[device] = (uint64_t)(uintptr_t)*out;
	unlock(own);
	return ret;
}

/* A reset frees what the context held even where others keep the context itself. */
static void end_primary(struct process *own, CUdevice device, bool reset)
{
	uint64_t primary = own->primary[device];
	struct ledger_entry kept = { .kind = LEDGER_NONE };
	bool there = active(device);

	if (primary == 0 || (there && !reset))
		return;
	if (there)
		kept = charge_release(LEDGER_CONTEXT, primary);
	else
		own->primary[device] = 0;
	forget((CUcontext)(uintptr_t)primary);
	if (kept.kind != LEDGER_NONE)
		ledger_put(kept);
}

static CUresult ended(struct process *own, CUdevice device, CUresult ret, bool reset)
{
	if (ret == CUDA_SUCCESS && own != NULL && device >= 0 && device < DEVICES_MAX)
		end_primary(own, device, reset);
	unlock(own);
	return ret;
}

CUresult EXPORT cuDevicePrimaryCtxRelease(CUdevice device)
{
	struct process *own;

	if (NESTED)
		return DRIVER(cuDevicePrimaryCtxRelease)(device);
	own = lock();
	return ended(own, device, CALL(cuDevicePrimaryCtxRelease, device), false);
}

CUresult EXPORT cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	struct process *own;

	if (NESTED)
		return DRIVER(cuDevicePrimaryCtxRelease_v2)(device);
	own = lock();
	return ended(own, device, CALL(cuDevicePrimaryCtxRelease_v2, device), false);
}

CUresult EXPORT cuDevicePrimaryCtxReset(CUdevice device)
{
	struct process *own;

	if (NESTED)
		return DRIVER(cuDevicePrimaryCtxReset)(device);
	own = lock();
	return ended(own, device, CALL(cuDevicePrimaryCtxReset, device), true);
}

CUresult EXPORT cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	struct process *own;

	if (NESTED)
		return DRIVER(cuDevicePrimaryCtxReset_v2)(device);
	own = lock();
	return ended(own, device, CALL(cuDevicePrimaryCtxReset_v2, device), true);
}
