/* charge.c - which card a call is about, and what the hooks that take memory have in common. */
#include "account.h"
#include "mps.h"

__thread int charge_depth __attribute__((tls_model("initial-exec")));

struct seen {
	CUcontext context;
	unsigned int epoch;
	CUdevice device;
	struct card *card;
};

static __thread struct seen last __attribute__((tls_model("initial-exec")));

void charge_forget_contexts(void)
{
	struct process *own = process_own();

	if (own != NULL)
		__atomic_add_fetch(&own->epoch, 1, __ATOMIC_RELEASE);
}

struct card *charge_device_card(CUdevice device)
{
	struct CUuuid uuid;

	/* The second form tells instances of one card apart; drivers before 11.4 have the first. */
	if (CALL(cuDeviceGetUuid_v2, &uuid, device) != CUDA_SUCCESS &&
	    CALL(cuDeviceGetUuid, &uuid, device) != CUDA_SUCCESS)
		return NULL;
	return limits_card(uuid.bytes);
}

struct card *charge_current_place(CUcontext *context, CUdevice *of)
{
	struct process *own = process_own();
	CUcontext current = NULL;
	CUdevice device;
	unsigned int now;

	if (own == NULL || CALL(cuCtxGetCurrent, &current) != CUDA_SUCCESS || current == NULL)
		return NULL;
	*context = current;
	now = __atomic_load_n(&own->epoch, __ATOMIC_ACQUIRE);
	if (last.context != current || last.epoch != now) {
		if (CALL(cuCtxGetDevice, &device) != CUDA_SUCCESS)
			return NULL;
		last = (struct seen){ current, now, device, charge_device_card(device) };
		if (last.card != NULL)
			mps_learn(last.card, device);
	}
	*of = last.device;
	return last.card;
}

struct card *charge_current_card(CUcontext *context)
{
	CUdevice device;

	return charge_current_place(context, &device);
}

struct card *charge_indexed_card(int index)
{
	struct process *own = process_own();
	unsigned int count = own == NULL || index < 0 ? 0 :
		__atomic_load_n(&own->limits.ncards, __ATOMIC_ACQUIRE);

	for (unsigned int i = 0; i < count; i++)
		if (own->limits.cards[i].index == index)
			return &own->limits.cards[i];
	return NULL;
}

bool charge_fits(struct charge *charge, struct card *card, uint64_t bytes)
{
	*charge = (struct charge){ card, bytes, 0 };
	return card == NULL || usage_reserve(card->index, bytes, limits_room(card));
}

/* Before a refusal the driver gives up what pools and graphs keep unused, as it does on a full card. */
bool charge_card(struct charge *charge, struct card *card, uint64_t bytes)
{
	bool fits = charge_fits(charge, card, bytes) ||
		    (account_make_room(card) && charge_fits(charge, card, bytes));

	if (!fits)
		usage_refused(card->index);
	return fits;
}

bool charge_current(struct charge *charge, uint64_t bytes)
{
	CUcontext context = NULL;
	struct card *card = charge_current_card(&context);
	bool fits = charge_card(charge, card, bytes);

	charge->context = (uint64_t)(uintptr_t)context;
	return fits;
}

CUresult charge_settle(const struct charge *charge, CUresult ret, enum ledger_kind kind,
		       uint64_t key)
{
	if (charge->card == NULL)
		return ret;
	if (ret != CUDA_SUCCESS)
		usage_release(charge->card->index, charge->bytes);
	else
		ledger_put((struct ledger_entry){ .key = key, .bytes = charge->bytes,
						  .of = charge->context, .references = 1,
						  .kind = (uint16_t)kind,
						  .card = (int16_t)charge->card->index });
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
