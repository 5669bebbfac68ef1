/* cuda_context.c - contexts: each takes card memory of its own, and with it goes all that it holds.
 *
 * How much a context takes stands in the limits file. The driver is asked whether a primary context
 * is there, before and after: it alone knows who else retained it. One mutex around these calls, so
 * that a context's address does not come again before its memory left the ledger. */
#include "account.h"
#include "gpu_time.h"
#include "mps.h"

static struct process *lock(void)
{
	struct process *own = process_own();

	if (own != NULL)
		mutex_enter(&own->contexts, THREAD);
	return own;
}

static void unlock(struct process *own)
{
	if (own != NULL)
		mutex_leave(&own->contexts);
}

static CUresult settle(struct charge *charge, CUresult ret, CUcontext context)
{
	charge->context = (uint64_t)(uintptr_t)context;
	if (ret == CUDA_SUCCESS && charge->card != NULL)
		usage_contexts(card_index(charge->card), 1);
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
	gpu_time_forget(context);
	charge_forget_contexts();
	accounts_renew();
}

CUresult EXPORT cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice device)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuCtxCreate)(out, flags, device);
	if (!charge_context(&charge, device))
		return charge.why;
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
		return charge.why;
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
		return charge.why;
	if (count != 0)
		mps_distrust();
	ret = CALL(cuCtxCreate_v3, out, affinity, count, flags, device);
	return settle(&charge, ret, *out);
}

CUresult EXPORT cuCtxCreate_v4(CUcontext *out, struct CUctx_create_params *params, unsigned int flags,
			       CUdevice device)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuCtxCreate_v4)(out, params, flags, device);
	if (!charge_context(&charge, device))
		return charge.why;
	if (params != NULL && params->affinities != 0)
		mps_distrust();
	ret = CALL(cuCtxCreate_v4, out, params, flags, device);
	return settle(&charge, ret, *out);
}

/* Contexts for graphics are as others. */
CUresult EXPORT cuGLCtxCreate(CUcontext *out, unsigned int flags, CUdevice device)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuGLCtxCreate)(out, flags, device);
	if (!charge_context(&charge, device))
		return charge.why;
	ret = CALL(cuGLCtxCreate, out, flags, device);
	return settle(&charge, ret, *out);
}

CUresult EXPORT cuGLCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuGLCtxCreate_v2)(out, flags, device);
	if (!charge_context(&charge, device))
		return charge.why;
	ret = CALL(cuGLCtxCreate_v2, out, flags, device);
	return settle(&charge, ret, *out);
}

CUresult EXPORT cuVDPAUCtxCreate(CUcontext *out, unsigned int flags, CUdevice device,
				 uint32_t display, void *find)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuVDPAUCtxCreate)(out, flags, device, display, find);
	if (!charge_context(&charge, device))
		return charge.why;
	ret = CALL(cuVDPAUCtxCreate, out, flags, device, display, find);
	return settle(&charge, ret, *out);
}

CUresult EXPORT cuVDPAUCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device,
				    uint32_t display, void *find)
{
	struct charge charge;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuVDPAUCtxCreate_v2)(out, flags, device, display, find);
	if (!charge_context(&charge, device))
		return charge.why;
	ret = CALL(cuVDPAUCtxCreate_v2, out, flags, device, display, find);
	return settle(&charge, ret, *out);
}

CUresult EXPORT cuCtxAttach(CUcontext *out, unsigned int flags)
{
	CUresult ret = CALL(cuCtxAttach, out, flags);

	if (ret == CUDA_SUCCESS && !NESTED && out != NULL)
		ledger_refer(LEDGER_CONTEXT, (uint64_t)(uintptr_t)*out, 1);
	return ret;
}

/* The last one that lets go of a context ends it. */
CUresult EXPORT cuCtxDetach(CUcontext context)
{
	struct process *own;
	CUresult ret;

	if (NESTED)
		return DRIVER(cuCtxDetach)(context);
	own = lock();
	gpu_time_ending(context);
	ret = CALL(cuCtxDetach, context);
	if (ret == CUDA_SUCCESS &&
	    ledger_refer(LEDGER_CONTEXT, (uint64_t)(uintptr_t)context, -1) == 0)
		forget(context);
	unlock(own);
	return ret;
}

CUresult EXPORT cuCtxDestroy(CUcontext context)
{
	struct process *own;
	CUresult ret;

	if (NESTED)
		return DRIVER(cuCtxDestroy)(context);
	own = lock();
	gpu_time_ending(context);
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
	gpu_time_ending(context);
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
	struct charge charge = { .card = card, .bytes = card != NULL ? limits_context(card) : 0 };

	if (card == NULL || ledger_has(LEDGER_CONTEXT, (uint64_t)(uintptr_t)context))
		return;
	usage_add(card_index(card), charge.bytes);
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
		return charge.why;
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

static void ending(struct process *own, CUdevice device)
{
	if (own != NULL && device >= 0 && device < DEVICES_MAX)
		gpu_time_ending((CUcontext)(uintptr_t)own->primary[device]);
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
	ending(own, device);
	return ended(own, device, CALL(cuDevicePrimaryCtxRelease, device), false);
}

CUresult EXPORT cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	struct process *own;

	if (NESTED)
		return DRIVER(cuDevicePrimaryCtxRelease_v2)(device);
	own = lock();
	ending(own, device);
	return ended(own, device, CALL(cuDevicePrimaryCtxRelease_v2, device), false);
}

CUresult EXPORT cuDevicePrimaryCtxReset(CUdevice device)
{
	struct process *own;

	if (NESTED)
		return DRIVER(cuDevicePrimaryCtxReset)(device);
	own = lock();
	ending(own, device);
	return ended(own, device, CALL(cuDevicePrimaryCtxReset, device), true);
}

CUresult EXPORT cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	struct process *own;

	if (NESTED)
		return DRIVER(cuDevicePrimaryCtxReset_v2)(device);
	own = lock();
	ending(own, device);
	return ended(own, device, CALL(cuDevicePrimaryCtxReset_v2, device), true);
}

/* A primary context that somebody else keeps: its handle, without keeping it ourselves. */
static void see_primary(struct process *own, CUdevice device)
{
	CUcontext primary = NULL;

	if (own == NULL || CALL(cuDevicePrimaryCtxRetain, &primary, device) != CUDA_SUCCESS)
		return;
	count_late(device, primary);
	if (device >= 0 && device < DEVICES_MAX)
		own->primary[device] = (uint64_t)(uintptr_t)primary;
	CALL(cuDevicePrimaryCtxRelease_v2, device);
}

/* A green context keeps the primary one. What it takes itself nobody published: as much as a context. */
CUresult EXPORT cuGreenCtxCreate(CUgreenCtx *out, void *description, CUdevice device,
				 unsigned int flags)
{
	struct charge charge, primary = { .card = NULL };
	CUcontext context = NULL;
	struct process *own;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuGreenCtxCreate)(out, description, device, flags);
	own = lock();
	mps_distrust();		/* it has multiprocessors of its own choice */
	if (charge_context(&charge, device)) {
		if (active(device) || charge_context(&primary, device)) {
			ret = CALL(cuGreenCtxCreate, out, description, device, flags);
			if (primary.card != NULL)	/* counted below, when it is seen */
				usage_release(card_index(primary.card), primary.bytes);
		} else {
			ret = primary.why;
		}
		if (ret == CUDA_SUCCESS) {
			see_primary(own, device);
			CALL(cuCtxFromGreenCtx, &context, *out);
		}
		ret = settle(&charge, ret, context);
	} else {
		ret = charge.why;
	}
	unlock(own);
	return ret;
}

/* What was allocated in a green context may outlive it, for its addresses are the primary's: the driver
 * is asked for each. Arrays and code cannot be asked for, and count until they are freed. */
static void forget_green(CUcontext green, uint64_t primary)
{
	static const enum ledger_kind kept[] = { LEDGER_POINTER, LEDGER_ARRAY, LEDGER_MIPMAP,
						 LEDGER_MODULE, LEDGER_LIBRARY };
	struct ledger_entry entry;
	CUdeviceptr base;
	size_t bytes;

	for (unsigned int i = 0; i < sizeof(kept) / sizeof(*kept); i++)
		while (ledger_take_of(kept[i], (uintptr_t)green, &entry)) {
			entry.of = primary;
			if (entry.kind == LEDGER_POINTER &&
			    CALL(cuMemGetAddressRange_v2, &base, &bytes, entry.key) != CUDA_SUCCESS)
				charge_give_back(&entry);
			else
				ledger_put(entry);
		}
	forget(green);
}

CUresult EXPORT cuGreenCtxDestroy(CUgreenCtx green)
{
	CUcontext context = NULL;
	CUdevice device = -1;
	struct process *own;
	CUresult ret;

	if (NESTED)
		return DRIVER(cuGreenCtxDestroy)(green);
	own = lock();
	if (own != NULL && CALL(cuCtxFromGreenCtx, &context, green) == CUDA_SUCCESS &&
	    CALL(cuCtxPushCurrent_v2, context) == CUDA_SUCCESS) {
		CALL(cuCtxGetDevice, &device);
		CALL(cuCtxPopCurrent_v2, &context);
	}
	gpu_time_ending(context);
	ret = CALL(cuGreenCtxDestroy, green);
	if (ret == CUDA_SUCCESS && device >= 0 && device < DEVICES_MAX) {
		forget_green(context, own->primary[device]);
		end_primary(own, device, false);
	}
	unlock(own);
	return ret;
}
