/* cuda_setting.c - stacks, printf buffer and heap of a context's kernels, as far as a program sets them
 * above what they were: that much is part of what a context takes.
 *
 * Each thread that the card can run at once has a stack. */
#include "charge.h"
#include "setting.h"

static uint64_t threads_at_once(void)
{
	int processors = 0, threads = 0;
	CUdevice device;

	if (CALL(cuCtxGetDevice, &device) != CUDA_SUCCESS ||
	    CALL(cuDeviceGetAttribute, &processors, CU_ATTRIBUTE_MULTIPROCESSORS, device) ||
	    CALL(cuDeviceGetAttribute, &threads, CU_ATTRIBUTE_THREADS_PER_MULTIPROCESSOR, device) ||
	    processors < 1 || threads < 1)
		return 1;
	return (uint64_t)processors * (uint64_t)threads;
}

/* What one unit of a setting takes; 0: nothing worth counting. */
static uint64_t unit_bytes(int which)
{
	switch (which) {
	case CU_LIMIT_STACK:
		return threads_at_once();
	case CU_LIMIT_PRINTF: case CU_LIMIT_HEAP:
		return 1;
	}
	return 0;
}

static uint64_t product(uint64_t one, uint64_t other)
{
	uint64_t bytes;

	return __builtin_mul_overflow(one, other, &bytes) ? UINT64_MAX : bytes;
}

uint64_t setting_of_threads(uint64_t bytes)
{
	return product(bytes, threads_at_once());
}

/* Change what a setting counts for by what the driver made of it. An entry's references are what the
 * setting was at first. */
static void settle(const struct charge *charge, uint64_t key, uint64_t bytes, unsigned int first)
{
	struct ledger_entry entry = { .bytes = 0 };

	ledger_take(LEDGER_SETTING, key, &entry);
	usage_release(card_index(charge->card), entry.bytes);
	if (bytes > charge->bytes)
		usage_add(card_index(charge->card), bytes - charge->bytes);
	else
		usage_release(card_index(charge->card), charge->bytes - bytes);
	ledger_put((struct ledger_entry){ .key = key, .bytes = bytes, .of = charge->context,
					  .references = first, .kind = LEDGER_SETTING,
					  .card = (int16_t)card_index(charge->card) });
}

static uint64_t above(uint64_t value, uint64_t least, uint64_t unit)
{
	return value > least ? product(value - least, unit) : 0;
}

CUresult EXPORT cuCtxSetLimit(int which, size_t value)
{
	uint64_t unit = NESTED ? 0 : unit_bytes(which), key, wanted;
	struct ledger_entry entry = { .bytes = 0 };
	CUcontext context = NULL;
	struct charge charge;
	struct card *card;
	size_t now;
	CUresult ret;

	card = unit != 0 ? charge_current_card(&context) : NULL;
	if (card == NULL || CALL(cuCtxGetLimit, &now, which) != CUDA_SUCCESS)
		return DRIVER(cuCtxSetLimit)(which, value);
	key = (uintptr_t)context + (uint64_t)which;
	if (!ledger_get(LEDGER_SETTING, key, &entry))
		entry.references = now < UINT32_MAX ? (unsigned int)now : UINT32_MAX;
	wanted = above(value, entry.references, unit);
	if (!charge_card(&charge, card, wanted > entry.bytes ? wanted - entry.bytes : 0))
		return charge.why;
	charge.context = (uintptr_t)context;
	ret = CALL(cuCtxSetLimit, which, value);
	if (ret == CUDA_SUCCESS && CALL(cuCtxGetLimit, &now, which) == CUDA_SUCCESS)
		settle(&charge, key, above(now, entry.references, unit), entry.references);
	else
		usage_release(card_index(card), charge.bytes);
	return ret;
}
