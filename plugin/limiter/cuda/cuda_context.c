/* cuda_context.c - contexts: each takes card memory of its own, and with it goes all that it holds.
 *
 * How much a context takes stands in the limits file. While the driver makes or ends one no lock is held, for it waits
 * for what is in flight there. So another context may have the address of one that has ended before this is known
 * here: each has a number. */
#include "context.h"
#include "gpu_time.h"
#include "mps.h"

#define USERS 0x7fffu			/* of `references` in the ledger; above them is the number */
#define SEEN 0x8000u			/* counted by context_seen */
#define NUMBER_AT 16
#define NUMBERS 0xffffu

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

unsigned int context_number(CUcontext context)
{
	struct ledger_entry entry;

	return ledger_get(LEDGER_CONTEXT, (uint64_t)(uintptr_t)context, &entry) ? entry.references >> NUMBER_AT : 0;
}

/* With the lock. */
static void forget(CUcontext context)
{
	ledger_take_context((uint64_t)(uintptr_t)context, charge_give_back);
	gpu_time_forget(context);
	charge_forget_contexts();
}

static unsigned int next_number(struct process *own)
{
	own->context_number = (own->context_number + 1) & NUMBERS;
	return own->context_number != 0 ? own->context_number : ++own->context_number;
}

/* With the lock. Since it was reserved somebody has counted the context before whoever made it came here (another thread,
 * or who the driver tells of it), and may have taken memory in it: that is kept, and what was reserved goes back. */
static bool was_seen(const struct charge *charge)
{
	struct ledger_entry entry;
	unsigned int since;

	if (charge->card == NULL || !ledger_get(LEDGER_CONTEXT, charge->context, &entry) ||
	    (entry.references & SEEN) == 0 || entry.card != card_index(charge->card))
		return false;
	since = ((entry.references >> NUMBER_AT) - charge->number) & NUMBERS;
	if (since == 0 || since > NUMBERS / 2)
		return false;		/* one that had its address before */
	ledger_refer(LEDGER_CONTEXT, charge->context, -(int)SEEN);
	usage_release(entry.card, charge->bytes);
	return true;
}

CUresult context_made(struct charge *charge, CUresult ret, CUcontext context)
{
	struct process *own = ret == CUDA_SUCCESS ? lock() : NULL;

	charge->context = (uint64_t)(uintptr_t)context;
	if (own != NULL && was_seen(charge)) {
		unlock(own);
		return ret;
	}
	if (ret == CUDA_SUCCESS && context != NULL && ledger_has(LEDGER_CONTEXT, charge->context))
		forget(context);	/* one that had its address */
	if (ret == CUDA_SUCCESS && charge->card != NULL)
		usage_contexts(card_index(charge->card), 1);
	charge_settle(charge, ret, LEDGER_CONTEXT, charge->context);
	if (own != NULL)
		ledger_refer(LEDGER_CONTEXT, charge->context, (int)(next_number(own) << NUMBER_AT));
	unlock(own);
	return ret;
}

void context_seen(CUcontext context, CUdevice device, struct card *card)
{
	struct ledger_entry entry = { .key = (uint64_t)(uintptr_t)context, .of = (uint64_t)(uintptr_t)context,
				      .bytes = limits_context(card), .kind = LEDGER_CONTEXT,
				      .card = (int16_t)card_index(card) };
	struct process *own = process_own();
	bool counted = false;

	if (own == NULL || ledger_has(LEDGER_CONTEXT, entry.key) || primary_is_name(context, device))
		return;
	lock();
	if (!ledger_has(LEDGER_CONTEXT, entry.key)) {
		entry.references = next_number(own) << NUMBER_AT | SEEN | 1;
		counted = ledger_put(entry);
	}
	if (counted) {
		usage_add(entry.card, entry.bytes);
		usage_contexts(entry.card, 1);
	}
	unlock(own);
}

void context_ended(CUcontext context, unsigned int number, bool stays)
{
	uint64_t key = (uint64_t)(uintptr_t)context;
	struct ledger_entry kept = { .kind = LEDGER_NONE };
	struct process *own;

	if (context == NULL)
		return;
	own = lock();
	if (context_number(context) == number) {
		if (stays)
			kept = charge_release(LEDGER_CONTEXT, key);
		forget(context);
		if (kept.kind != LEDGER_NONE)
			ledger_put(kept);
	}
	unlock(own);
	accounts_renew();
}

bool context_charge(struct charge *charge, CUdevice device)
{
	struct card *card = charge_device_card(device);
	struct process *own = lock();
	unsigned int number = own != NULL ? own->context_number : 0;
	bool fits;

	unlock(own);
	fits = charge_card(charge, card, card != NULL ? limits_context(card) : 0);
	charge->number = number;
	return fits;
}

bool context_late(struct charge *charge, CUresult ret, CUdevice device)
{
	return ret != CUDA_SUCCESS || charge->card != NULL || context_charge(charge, device);
}

#define CREATE(name, ...)                                                                         \
	do {                                                                                      \
		struct charge charge;                                                             \
		CUcontext context;                                                                \
		CUresult ret;                                                                     \
		if (!context_charge(&charge, device))                                             \
			return charge.why;                                                        \
		context = *out;                                                                   \
		ret = CALL(name, &context, __VA_ARGS__);                                          \
		if (!context_late(&charge, ret, device)) {                                        \
			CALL(cuCtxDestroy_v2, context);                                           \
			return charge.why;                                                        \
		}                                                                                 \
		ret = context_made(&charge, ret, context);                                        \
		*out = context;                                                                   \
		return ret;                                                                       \
	} while (0)

CUresult EXPORT cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice device)
{
	if (NESTED || out == NULL)
		return DRIVER(cuCtxCreate)(out, flags, device);
	CREATE(cuCtxCreate, flags, device);
}

CUresult EXPORT cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
	if (NESTED || out == NULL)
		return DRIVER(cuCtxCreate_v2)(out, flags, device);
	CREATE(cuCtxCreate_v2, flags, device);
}

CUresult EXPORT cuCtxCreate_v3(CUcontext *out, void *affinity, int count, unsigned int flags,
			       CUdevice device)
{
	if (NESTED || out == NULL)
		return DRIVER(cuCtxCreate_v3)(out, affinity, count, flags, device);
	if (count != 0)
		mps_distrust();
	CREATE(cuCtxCreate_v3, affinity, count, flags, device);
}

CUresult EXPORT cuCtxCreate_v4(CUcontext *out, struct CUctx_create_params *params, unsigned int flags,
			       CUdevice device)
{
	struct CUctx_create_params copy = { NULL, 0, NULL };

	if (NESTED || out == NULL)
		return DRIVER(cuCtxCreate_v4)(out, params, flags, device);
	if (params != NULL)
		copy = READ_ONCE(params);
	if (copy.affinities != 0)
		mps_distrust();
	CREATE(cuCtxCreate_v4, params != NULL ? &copy : NULL, flags, device);
}

/* Contexts for graphics are as others. */
CUresult EXPORT cuGLCtxCreate(CUcontext *out, unsigned int flags, CUdevice device)
{
	if (NESTED || out == NULL)
		return DRIVER(cuGLCtxCreate)(out, flags, device);
	CREATE(cuGLCtxCreate, flags, device);
}

CUresult EXPORT cuGLCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
	if (NESTED || out == NULL)
		return DRIVER(cuGLCtxCreate_v2)(out, flags, device);
	CREATE(cuGLCtxCreate_v2, flags, device);
}

CUresult EXPORT cuVDPAUCtxCreate(CUcontext *out, unsigned int flags, CUdevice device,
				 uint32_t display, void *find)
{
	if (NESTED || out == NULL)
		return DRIVER(cuVDPAUCtxCreate)(out, flags, device, display, find);
	CREATE(cuVDPAUCtxCreate, flags, device, display, find);
}

CUresult EXPORT cuVDPAUCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device,
				    uint32_t display, void *find)
{
	if (NESTED || out == NULL)
		return DRIVER(cuVDPAUCtxCreate_v2)(out, flags, device, display, find);
	CREATE(cuVDPAUCtxCreate_v2, flags, device, display, find);
}

/* The reference is counted first, so that it is never missing while the driver has it. */
CUresult EXPORT cuCtxAttach(CUcontext *out, unsigned int flags)
{
	CUcontext current = NULL;
	CUresult ret;

	if (NESTED)
		return DRIVER(cuCtxAttach)(out, flags);
	CALL(cuCtxGetCurrent, &current);
	ledger_refer(LEDGER_CONTEXT, (uint64_t)(uintptr_t)current, 1);
	ret = CALL(cuCtxAttach, out, flags);
	if (ret != CUDA_SUCCESS)
		ledger_refer(LEDGER_CONTEXT, (uint64_t)(uintptr_t)current, -1);
	return ret;
}

/* True: that was the last user, and with it the context has ended. */
static bool left(CUcontext context, unsigned int number)
{
	struct process *own = lock();
	bool last = context_number(context) == number &&
		    ((unsigned int)ledger_refer(LEDGER_CONTEXT, (uint64_t)(uintptr_t)context, -1) & USERS) == 0;

	unlock(own);
	return last;
}

CUresult EXPORT cuCtxDetach(CUcontext context)
{
	unsigned int number;
	CUresult ret;

	if (NESTED)
		return DRIVER(cuCtxDetach)(context);
	number = context_number(context);
	gpu_time_ending(context);
	ret = CALL(cuCtxDetach, context);
	if (ret == CUDA_SUCCESS && left(context, number))
		context_ended(context, number, false);
	return ret;
}

#define DESTROY(name)                                                                             \
	do {                                                                                      \
		unsigned int number;                                                              \
		CUresult ret;                                                                     \
		if (NESTED)                                                                       \
			return DRIVER(name)(context);                                             \
		number = context_number(context);                                                 \
		gpu_time_ending(context);                                                         \
		ret = CALL(name, context);                                                        \
		if (ret == CUDA_SUCCESS)                                                          \
			context_ended(context, number, false);                                    \
		return ret;                                                                       \
	} while (0)

CUresult EXPORT cuCtxDestroy(CUcontext context)
{
	DESTROY(cuCtxDestroy);
}

CUresult EXPORT cuCtxDestroy_v2(CUcontext context)
{
	DESTROY(cuCtxDestroy_v2);
}
