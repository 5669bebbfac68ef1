/* cuda_stack.c - what the threads of a context's kernels have of the card: stacks, as large as they were set, or what the
 * kernel needs of local memory that needs most, where that is more. Each thread that the card can run at once has as much.
 *
 * What the first stack takes is part of the context. Of each context two entries in the ledger are kept: what is counted,
 * with the first stack, and what the largest kernel needs. */
#include "account.h"
#include "stack.h"

#define COUNTED CU_LIMIT_STACK		/* from a context's address on */
#define LARGEST 7			/* behind those of cuda_setting.c */

static struct process *lock(void)
{
	struct process *own = process_own();

	if (own != NULL)
		mutex_lock(&own->stacks);
	return own;
}

static void unlock(struct process *own)
{
	if (own != NULL)
		mutex_unlock(&own->stacks);
}

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

struct stacks {
	struct card *card;
	CUcontext context;
	uint64_t threads;
	size_t first;			/* what a context has from its start, if nothing is known of this one */
};

static uint64_t bytes_above(const struct stacks *stacks, uint64_t each, uint64_t first)
{
	uint64_t bytes;

	if (each <= first)
		return 0;
	return __builtin_mul_overflow(each - first, stacks->threads, &bytes) ? UINT64_MAX : bytes;
}

static struct ledger_entry entry_of(const struct stacks *stacks, unsigned int which, uint64_t references)
{
	struct ledger_entry entry = { .key = (uintptr_t)stacks->context + which, .of = (uintptr_t)stacks->context,
				      .kind = LEDGER_SETTING, .card = (int16_t)card_index(stacks->card) };

	entry.references = references < UINT32_MAX ? (unsigned int)references : UINT32_MAX;
	ledger_get(LEDGER_SETTING, entry.key, &entry);
	return entry;
}

/* Count so much for each thread, or what the largest kernel needs. False: that would pass the limit. `there`: the driver
 * has it already. */
static bool count(const struct stacks *stacks, uint64_t each, bool kernel, bool there)
{
	struct process *own = lock();
	struct ledger_entry counted = entry_of(stacks, COUNTED, stacks->first), largest = entry_of(stacks, LARGEST, 0);
	uint64_t level = each > largest.references ? each : largest.references, bytes;
	struct charge charge;
	bool fits = true;

	bytes = bytes_above(stacks, level, counted.references);
	if (!there && bytes < counted.bytes)
		bytes = counted.bytes;	/* less only once the driver has done it */
	if (bytes <= counted.bytes)
		usage_release(counted.card, counted.bytes - bytes);
	else if (there)
		usage_add(counted.card, bytes - counted.bytes);
	else
		fits = charge_fits(&charge, stacks->card, bytes - counted.bytes);
	if (fits && (bytes != counted.bytes || !ledger_has(LEDGER_SETTING, counted.key))) {
		counted.bytes = bytes;
		ledger_put(counted);	/* also of no bytes: with what the first stack was */
	}
	if (fits && kernel && level > largest.references) {
		largest.references = (unsigned int)level;
		ledger_put(largest);
	}
	unlock(own);
	return fits;
}

/* No lock is held while the driver gives up what it keeps unused. */
static bool count_with_room(const struct stacks *stacks, uint64_t each, bool kernel)
{
	return count(stacks, each, kernel, false) ||
	       (account_make_room(stacks->card) && count(stacks, each, kernel, false));
}

static bool find(struct stacks *stacks, struct card *card, CUcontext context)
{
	*stacks = (struct stacks){ .card = card, .context = context, .threads = threads_at_once() };
	return CALL(cuCtxGetLimit, &stacks->first, CU_LIMIT_STACK) == CUDA_SUCCESS;
}

bool stack_of_kernel(struct card *card, CUcontext context, uint64_t bytes)
{
	struct stacks stacks;

	return !find(&stacks, card, context) || count_with_room(&stacks, bytes, true);
}

static CUresult set(size_t value)
{
	CUcontext context = NULL;
	struct card *card = charge_current_card(&context);
	struct stacks stacks;
	size_t now;
	CUresult ret;

	if (card == NULL || !find(&stacks, card, context))
		return CALL(cuCtxSetLimit, CU_LIMIT_STACK, value);
	if (value > stacks.first && !count_with_room(&stacks, value, false))
		return charge_refused(card);
	ret = CALL(cuCtxSetLimit, CU_LIMIT_STACK, value);
	if (CALL(cuCtxGetLimit, &now, CU_LIMIT_STACK) == CUDA_SUCCESS)
		count(&stacks, now, false, true);
	return ret;
}

/* One thread at a time: of two that set it, nobody else knows which the driver heard last. */
CUresult stack_set(size_t value)
{
	struct process *own = process_own();
	CUresult ret;

	if (own == NULL)
		return CALL(cuCtxSetLimit, CU_LIMIT_STACK, value);
	mutex_enter(&own->stack_setting, THREAD);
	ret = set(value);
	mutex_leave(&own->stack_setting);
	return ret;
}
