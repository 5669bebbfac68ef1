/* cuda_primary.c - primary contexts, which a process has one of for each device, and green contexts, which keep them.
 *
 * The driver is asked whether a primary context is there, before and after: it alone knows who else retained it. So that
 * these belong together, one thread at a time retains, releases or resets that of a device. A further one has to wait
 * in the driver too: until the context is made, or until it has ended. What ends a green context waits for its work
 * alone, and locks nothing. */
#include "context.h"
#include "gpu_time.h"
#include "mps.h"

struct primary {
	struct process *own;		/* NULL: nothing is locked */
	CUdevice device;
	CUcontext context;		/* NULL: none was seen */
	unsigned int number;
};

static void lock(struct primary *primary, CUdevice device)
{
	*primary = (struct primary){ .own = device >= 0 && device < DEVICES_MAX ? process_own() : NULL,
				     .device = device };
	if (primary->own == NULL)
		return;
	mutex_enter(&primary->own->primaries[device], THREAD);
	primary->context = (CUcontext)(uintptr_t)primary->own->primary[device];
	primary->number = context_number(primary->context);
}

static void unlock(const struct primary *primary)
{
	if (primary->own != NULL)
		mutex_leave(&primary->own->primaries[primary->device]);
}

static void note(const struct primary *primary, CUcontext context)
{
	if (primary->own != NULL)
		__atomic_store_n(&primary->own->primary[primary->device], (uint64_t)(uintptr_t)context, __ATOMIC_RELEASE);
}

/* 1: it is there, 0: it is not, -1: the driver does not say. */
static int active(CUdevice device)
{
	unsigned int flags;
	int there = 0;

	return CALL(cuDevicePrimaryCtxGetState, device, &flags, &there) == CUDA_SUCCESS ? there != 0 : -1;
}

/* One that is there is counted when it is first seen: it may have come past us, through an export table. `charge` has
 * what was reserved for it; its card is NULL where nothing was. */
static void count_seen(struct charge *charge, CUdevice device, CUcontext context)
{
	bool counted = ledger_has(LEDGER_CONTEXT, (uint64_t)(uintptr_t)context);

	if (counted && charge->card != NULL)
		usage_release(card_index(charge->card), charge->bytes);
	if (counted)
		return;
	if (charge->card == NULL) {
		*charge = (struct charge){ .card = charge_device_card(device) };
		if (charge->card == NULL)
			return;
		charge->bytes = limits_context(charge->card);
		usage_add(card_index(charge->card), charge->bytes);
	}
	context_made(charge, CUDA_SUCCESS, context);
}

/* Where the driver has another one now, its first user counts that. */
bool primary_is_name(CUcontext context, CUdevice device)
{
	struct process *own = process_own();
	uint64_t now;

	if (own == NULL || device < 0 || device >= DEVICES_MAX ||
	    __atomic_load_n(&own->ended[device], __ATOMIC_ACQUIRE) != (uintptr_t)context)
		return false;
	now = __atomic_load_n(&own->primary[device], __ATOMIC_ACQUIRE);
	return (now != 0 && now != (uintptr_t)context) || active(device) == 0;
}

static CUresult retain(const struct primary *primary, CUcontext *out, CUdevice device)
{
	struct charge charge = { .card = NULL };
	int there = active(device);
	CUresult ret;

	if (there == 1 || (there < 0 && primary->number != 0)) {
		ret = CALL(cuDevicePrimaryCtxRetain, out, device);
		if (ret == CUDA_SUCCESS)
			count_seen(&charge, device, *out);
		return ret;
	}
	if (!context_charge(&charge, device))
		return charge.why;
	ret = CALL(cuDevicePrimaryCtxRetain, out, device);
	if (!context_late(&charge, ret, device)) {
		CALL(cuDevicePrimaryCtxRelease_v2, device);
		return charge.why;
	}
	return context_made(&charge, ret, *out);
}

CUresult EXPORT cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	struct primary primary;
	CUcontext context;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuDevicePrimaryCtxRetain)(out, device);
	context = *out;
	lock(&primary, device);
	ret = retain(&primary, &context, device);
	if (ret == CUDA_SUCCESS)
		note(&primary, context);
	unlock(&primary);
	*out = context;
	return ret;
}

/* The handle of one that somebody else keeps, without keeping it ourselves; NULL: the driver does not say. */
static CUcontext handle_of(CUdevice device)
{
	CUcontext context = NULL;

	if (CALL(cuDevicePrimaryCtxRetain, &context, device) != CUDA_SUCCESS)
		return NULL;
	CALL(cuDevicePrimaryCtxRelease_v2, device);
	return context;
}

/* One that has come past us may be counted by who was current in it, and noted by nobody. */
static void find_seen(struct primary *primary)
{
	CUcontext context;

	if (primary->own == NULL || primary->context != NULL || active(primary->device) != 1)
		return;
	context = handle_of(primary->device);
	if (context == NULL || !ledger_has(LEDGER_CONTEXT, (uint64_t)(uintptr_t)context))
		return;
	note(primary, context);
	primary->context = context;
	primary->number = context_number(context);
}

/* A reset frees what the context held even where others keep the context itself. */
static void end(const struct primary *primary, bool reset)
{
	bool stays;

	if (primary->context == NULL)
		return;
	stays = active(primary->device) != 0;
	if (stays && !reset)
		return;
	if (!stays) {
		__atomic_store_n(&primary->own->ended[primary->device], (uintptr_t)primary->context, __ATOMIC_RELEASE);
		note(primary, NULL);
	}
	context_ended(primary->context, primary->number, stays);
}

#define END(name, reset)                                                                          \
	do {                                                                                      \
		struct primary primary;                                                           \
		CUresult ret;                                                                     \
		if (NESTED)                                                                       \
			return DRIVER(name)(device);                                              \
		lock(&primary, device);                                                           \
		find_seen(&primary);                                                              \
		gpu_time_ending(primary.context);                                                 \
		ret = CALL(name, device);                                                         \
		if (ret == CUDA_SUCCESS)                                                          \
			end(&primary, reset);                                                     \
		unlock(&primary);                                                                 \
		return ret;                                                                       \
	} while (0)

CUresult EXPORT cuDevicePrimaryCtxRelease(CUdevice device)
{
	END(cuDevicePrimaryCtxRelease, false);
}

CUresult EXPORT cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	END(cuDevicePrimaryCtxRelease_v2, false);
}

CUresult EXPORT cuDevicePrimaryCtxReset(CUdevice device)
{
	END(cuDevicePrimaryCtxReset, true);
}

CUresult EXPORT cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	END(cuDevicePrimaryCtxReset_v2, true);
}

/* A primary context that a green one keeps. */
static void see(const struct primary *primary, struct charge *charge, CUdevice device)
{
	CUcontext context = handle_of(device);

	if (context == NULL) {
		charge_settle(charge, CUDA_ERROR_INVALID_CONTEXT, LEDGER_CONTEXT, 0);
		return;
	}
	count_seen(charge, device, context);
	note(primary, context);
}

static CUresult create_green(const struct primary *primary, CUgreenCtx *out, void *description, CUdevice device,
			     unsigned int flags)
{
	struct charge charge, kept = { .card = NULL };
	CUcontext context = NULL;
	CUresult ret;

	if (!context_charge(&charge, device))
		return charge.why;
	if (active(device) == 0 && !context_charge(&kept, device))
		return context_made(&charge, kept.why, NULL);
	ret = CALL(cuGreenCtxCreate, out, description, device, flags);
	if (!context_late(&charge, ret, device)) {
		CALL(cuGreenCtxDestroy, *out);
		charge_settle(&kept, charge.why, LEDGER_CONTEXT, 0);
		return charge.why;
	}
	if (ret == CUDA_SUCCESS) {
		see(primary, &kept, device);
		CALL(cuCtxFromGreenCtx, &context, *out);
	} else {
		charge_settle(&kept, ret, LEDGER_CONTEXT, 0);
	}
	return context_made(&charge, ret, context);
}

/* A green context keeps the primary one. What it takes itself nobody published: as much as a context. */
CUresult EXPORT cuGreenCtxCreate(CUgreenCtx *out, void *description, CUdevice device,
				 unsigned int flags)
{
	struct primary primary;
	CUgreenCtx green;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuGreenCtxCreate)(out, description, device, flags);
	mps_distrust();		/* it has multiprocessors of its own choice */
	green = *out;
	lock(&primary, device);
	ret = create_green(&primary, &green, description, device, flags);
	unlock(&primary);
	*out = green;
	return ret;
}

static const enum ledger_kind outliving[] = { LEDGER_POINTER, LEDGER_ARRAY, LEDGER_MIPMAP, LEDGER_MODULE,
					      LEDGER_LIVE };

static void move(uint64_t from, uint64_t to)
{
	for (unsigned int i = 0; i < sizeof(outliving) / sizeof(*outliving); i++)
		ledger_move_of(outliving[i], from, to);
}

/* In the memory's own context the driver says so; any other error says nothing of the memory. */
static bool freed(CUdeviceptr at)
{
	CUdeviceptr base;
	size_t bytes;
	CUresult ret = CALL(cuMemGetAddressRange_v2, &base, &bytes, at);

	return ret == CUDA_ERROR_INVALID_VALUE || ret == CUDA_ERROR_NOT_FOUND;
}

/* What was allocated in a green context may outlive it, for its addresses are the primary's: the driver
 * is asked for each, in the primary. Arrays and code cannot be asked for, and count until they are freed. */
static void keep_outliving(uint64_t of, const struct primary *primary)
{
	bool asked = CALL(cuCtxPushCurrent_v2, primary->context) == CUDA_SUCCESS;
	struct ledger_entry entry;
	CUcontext popped;

	while (ledger_take_of(LEDGER_POINTER, of, &entry)) {
		entry.of = (uintptr_t)primary->context;
		if (asked && freed(entry.key))
			charge_give_back(&entry);
		else
			ledger_put(entry);
	}
	if (asked)
		CALL(cuCtxPopCurrent_v2, &popped);
	move(of, (uintptr_t)primary->context);
}

static CUdevice device_of(CUcontext context)
{
	CUdevice device = -1;

	if (CALL(cuCtxPushCurrent_v2, context) == CUDA_SUCCESS) {
		CALL(cuCtxGetDevice, &device);
		CALL(cuCtxPopCurrent_v2, &context);
	}
	return device;
}

/* What may outlive it is no context's meanwhile: another one may have its address before the driver answers. */
CUresult EXPORT cuGreenCtxDestroy(CUgreenCtx green)
{
	CUcontext context = NULL;
	struct primary primary;
	uint64_t apart;
	unsigned int number;
	CUdevice device;
	CUresult ret;

	if (NESTED)
		return DRIVER(cuGreenCtxDestroy)(green);
	device = CALL(cuCtxFromGreenCtx, &context, green) == CUDA_SUCCESS ? device_of(context) : -1;
	if (device < 0 || device >= DEVICES_MAX)
		return CALL(cuGreenCtxDestroy, green);
	number = context_number(context);
	apart = 1ull << 63 | number;	/* no address */
	gpu_time_ending(context);
	move((uintptr_t)context, apart);
	ret = CALL(cuGreenCtxDestroy, green);
	if (ret != CUDA_SUCCESS) {
		move(apart, (uintptr_t)context);
		return ret;
	}
	context_ended(context, number, false);
	lock(&primary, device);
	keep_outliving(apart, &primary);
	end(&primary, false);
	unlock(&primary);
	return ret;
}
