/* cuda_setting.c - stacks, printf buffer and heap of a context's kernels, as far as a program sets them
 * above what they were: that much is part of what a context takes. Stacks are in cuda_stack.c. */
#include "stack.h"

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

static uint64_t above(uint64_t value, uint64_t least)
{
	return value > least ? value - least : 0;
}

CUresult EXPORT cuCtxSetLimit(int which, size_t value)
{
	uint64_t key, wanted;
	struct ledger_entry entry = { .bytes = 0 };
	CUcontext context = NULL;
	struct charge charge;
	struct card *card;
	size_t now;
	CUresult ret;

	if (NESTED || which < CU_LIMIT_STACK || which > CU_LIMIT_HEAP)
		return DRIVER(cuCtxSetLimit)(which, value);
	if (which == CU_LIMIT_STACK)
		return stack_set(value);
	card = charge_current_card(&context);
	if (card == NULL || CALL(cuCtxGetLimit, &now, which) != CUDA_SUCCESS)
		return DRIVER(cuCtxSetLimit)(which, value);
	key = (uintptr_t)context + (uint64_t)which;
	if (!ledger_get(LEDGER_SETTING, key, &entry))
		entry.references = now < UINT32_MAX ? (unsigned int)now : UINT32_MAX;
	wanted = above(value, entry.references);
	if (!charge_card(&charge, card, wanted > entry.bytes ? wanted - entry.bytes : 0))
		return charge.why;
	charge.context = (uintptr_t)context;
	ret = CALL(cuCtxSetLimit, which, value);
	if (ret == CUDA_SUCCESS && CALL(cuCtxGetLimit, &now, which) == CUDA_SUCCESS)
		settle(&charge, key, above(now, entry.references), entry.references);
	else
		usage_release(card_index(card), charge.bytes);
	return ret;
}
