/* charge.c - which card a call is about, and what the hooks that take memory have in common. */
#include "context.h"
#include "mps.h"

#define NO_DEVICE (-1)

__thread int charge_depth __attribute__((tls_model("initial-exec")));

struct seen {
	CUcontext context;
	unsigned int epoch;
	CUdevice device;
	struct card *card;
};

/* The driver's error for which nothing is known of a card, as this thread last asked for one; else 0. */
static __thread CUresult unsaid __attribute__((tls_model("initial-exec")));

static __thread struct seen last __attribute__((tls_model("initial-exec")));

void charge_forget_contexts(void)
{
	struct process *own = process_own();

	if (own != NULL)
		__atomic_add_fetch(&own->epoch, 1, __ATOMIC_RELEASE);
}

/* The driver gives nothing where it answers so: it says why. */
static bool none_there(CUresult ret)
{
	return ret == CUDA_ERROR_NOT_INITIALIZED || ret == CUDA_ERROR_DEINITIALIZED ||
	       ret == CUDA_ERROR_NO_DEVICE || ret == CUDA_ERROR_INVALID_DEVICE ||
	       ret == CUDA_ERROR_INVALID_CONTEXT || ret == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static __attribute__((noinline, cold)) struct card *unknown(CUresult ret)
{
	unsaid = ret != CUDA_ERROR_NOT_SUPPORTED && ret != CUDA_ERROR_NOT_FOUND ? ret : CUDA_SUCCESS;
	return none_there(ret) ? NULL : limits_unknown();
}

struct card *charge_device_card(CUdevice device)
{
	struct CUuuid uuid;
	CUresult ret, old;

	/* The second form tells instances of one card apart; drivers before 11.4 have the first. */
	ret = CALL(cuDeviceGetUuid_v2, &uuid, device);
	old = ret != CUDA_SUCCESS ? CALL(cuDeviceGetUuid, &uuid, device) : ret;
	if (old != CUDA_SUCCESS)
		return unknown(none_there(ret) || old == CUDA_ERROR_NOT_SUPPORTED ? ret : old);
	unsaid = CUDA_SUCCESS;
	return limits_card(uuid.bytes);
}

static CUresult refusal(const struct card *card)
{
	return card == limits_unknown() && unsaid != CUDA_SUCCESS ? unsaid : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult charge_refused(const struct card *card)
{
	CUresult why = refusal(card);

	if (why == CUDA_ERROR_OUT_OF_MEMORY)
		usage_refused(card_index(card));
	return why;
}

/* Nothing is known of the current context. */
static __attribute__((noinline, cold)) struct card *unknown_place(CUresult ret, CUcontext current, CUcontext *context)
{
	if (ret != CUDA_SUCCESS)
		return unknown(ret);
	unsaid = CUDA_SUCCESS;
	if (current == NULL)
		return NULL;
	*context = current;
	return limits_unknown();
}

/* A card of which nothing is known now may be known the next time. */
static __attribute__((noinline, cold)) struct card *find_place(CUcontext current, unsigned int epoch, CUdevice *device)
{
	CUresult ret = CALL(cuCtxGetDevice, device);
	struct card *card;

	if (ret != CUDA_SUCCESS)
		return unknown(ret);
	card = charge_device_card(*device);
	if (card == limits_unknown())
		return card;
	last = (struct seen){ current, epoch, *device, card };
	if (card != NULL) {
		context_seen(current, *device, card);
		mps_learn(card, *device);
	}
	return card;
}

struct card *charge_current_place(CUcontext *context, CUdevice *of)
{
	struct process *own = process_own();
	CUcontext current = NULL;
	CUresult ret = CALL(cuCtxGetCurrent, &current);
	unsigned int now;

	if (ret != CUDA_SUCCESS || current == NULL || own == NULL)
		return unknown_place(ret, current, context);
	*context = current;
	now = __atomic_load_n(&own->epoch, __ATOMIC_ACQUIRE);
	if (last.context != current || last.epoch != now)
		return find_place(current, now, of);
	*of = last.device;
	return last.card;
}

struct card *charge_current_card(CUcontext *context)
{
	CUdevice device = NO_DEVICE;

	return charge_current_place(context, &device);
}

struct card *charge_indexed_card(int index)
{
	struct process *own = process_own();
	unsigned int count = own == NULL || index < 0 ? 0 :
		__atomic_load_n(&own->limits.ncards, __ATOMIC_ACQUIRE);

	for (unsigned int i = 0; i < count; i++)
		if (card_index(&own->limits.cards[i]) == index)
			return &own->limits.cards[i];
	return NULL;
}

bool charge_fits(struct charge *charge, struct card *card, uint64_t bytes)
{
	*charge = (struct charge){ .card = card, .bytes = bytes };
	return card == NULL || usage_reserve(card_index(card), bytes, limits_room(card));
}

/* Before a refusal the driver gives up what pools and graphs keep unused, as it does on a full card. */
bool charge_card(struct charge *charge, struct card *card, uint64_t bytes)
{
	bool fits = charge_fits(charge, card, bytes) ||
		    (account_make_room(card) && charge_fits(charge, card, bytes));

	if (!fits)
		charge->why = charge_refused(card);
	return fits;
}

bool charge_late(struct charge *charge, CUresult ret, CUdevice device)
{
	return ret != CUDA_SUCCESS || charge->card != NULL ||
	       charge_card(charge, charge_device_card(device), charge->bytes);
}

bool charge_current(struct charge *charge, uint64_t bytes)
{
	CUcontext context = NULL;
	struct card *card = charge_current_card(&context);
	bool fits = charge_card(charge, card, bytes);

	charge->context = (uint64_t)(uintptr_t)context;
	return fits;
}

/* Nothing was there to reserve of, and the driver has given something all the same: another thread has made it ready
 * meanwhile. It counts now, or goes back. */
static __attribute__((noinline, cold)) CUresult settle_late(uint64_t bytes, enum ledger_kind kind, uint64_t key)
{
	struct charge charge;

	if (charge_current(&charge, bytes))
		return charge.card != NULL ? charge_settle(&charge, CUDA_SUCCESS, kind, key) : CUDA_SUCCESS;
	if (kind == LEDGER_POINTER)
		CALL(cuMemFree_v2, key);
	else if (kind == LEDGER_ARRAY)
		CALL(cuArrayDestroy, (CUarray)(uintptr_t)key);
	else
		CALL(cuMipmappedArrayDestroy, (CUmipmappedArray)(uintptr_t)key);
	return charge.why;
}

/* The driver gives an address anew once what had it is gone: with its context, which is about to be forgotten. */
static void replace(enum ledger_kind kind, uint64_t key)
{
	struct ledger_entry before;

	if ((kind == LEDGER_POINTER || kind == LEDGER_ARRAY || kind == LEDGER_MIPMAP) && ledger_take(kind, key, &before))
		charge_give_back(&before);
}

CUresult charge_settle(const struct charge *charge, CUresult ret, enum ledger_kind kind,
		       uint64_t key)
{
	bool late = kind == LEDGER_POINTER || kind == LEDGER_ARRAY || kind == LEDGER_MIPMAP;

	if (charge->card == NULL)
		return late && ret == CUDA_SUCCESS ? settle_late(charge->bytes, kind, key) : ret;
	if (ret != CUDA_SUCCESS) {
		usage_release(card_index(charge->card), charge->bytes);
	} else {
		replace(kind, key);
		ledger_put((struct ledger_entry){ .key = key, .bytes = charge->bytes,
						  .of = charge->context, .references = 1,
						  .kind = (uint16_t)kind,
						  .card = (int16_t)card_index(charge->card) });
	}
	return ret;
}

void charge_give_back(const struct ledger_entry *entry)
{
	if (entry->kind != LEDGER_POOLED)
		usage_release(entry->card, entry->bytes);
	if (entry->kind == LEDGER_CONTEXT)
		usage_contexts(entry->card, -1);
}

struct ledger_entry charge_release(enum ledger_kind kind, uint64_t key)
{
	struct ledger_entry entry;

	if (!ledger_take(kind, key, &entry))
		entry = (struct ledger_entry){ .kind = LEDGER_NONE };
	return entry;
}

struct ledger_entry charge_release_pointer(uint64_t at)
{
	struct ledger_entry entry = charge_release(LEDGER_POINTER, at);
	struct process *own = process_own();

	if (entry.kind != LEDGER_NONE || own == NULL ||
	    !__atomic_load_n(&own->pooled, __ATOMIC_ACQUIRE))
		return entry;
	return charge_release(LEDGER_POOLED, at);
}

CUresult charge_released(const struct ledger_entry *entry, CUresult ret)
{
	if (entry->kind == LEDGER_NONE || entry->kind == LEDGER_POOLED)
		accounts_moved();
	if (entry->kind == LEDGER_NONE)
		return ret;
	if (ret == CUDA_SUCCESS)
		charge_give_back(entry);
	else
		ledger_put(*entry);
	return ret;
}
