/* charge.h - every hook that takes memory: reserve, call the driver, then keep or give back.
 *
 * What the program points at another of its threads can change between our look and the driver's. So what is counted
 * by is copied first, and the driver is called with the copy; what the driver answers it writes into a place of ours,
 * which begins as the program's is, and the program's is written last. */
#ifndef EDGEGPU_LIMITER_CHARGE_H
#define EDGEGPU_LIMITER_CHARGE_H

#include <stdbool.h>

#include "hooks.h"
#include "ledger.h"
#include "limits.h"
#include "usage.h"

/* What is there now; the compiler takes it from the copy afterwards, and does not look again. */
#define READ_ONCE(at) (*(const volatile __typeof__(*(at)) *)(at))

/* More than 0 while the driver runs below a hook: what it calls of itself is part of that. It stays so in a
 * thread that has left the driver by longjmp, and a handler of a signal may call the driver below it: so
 * where it is, the caller must be the driver. To be asked in a hook itself. */
extern __thread int charge_depth __attribute__((tls_model("initial-exec")));

#define THREAD (&charge_depth)		/* whose a deep mutex is */

#define CALLER __builtin_return_address(0)
#define CALLED_BELOW(caller) (__builtin_expect(charge_depth > 0, 0) && driver_calls(caller))
#define NESTED CALLED_BELOW(CALLER)

/* Call the driver's function of that name. */
#define CALL(name, ...) charge_left((charge_depth++, DRIVER(name)(__VA_ARGS__)))

static inline CUresult charge_left(CUresult ret)
{
	charge_depth--;
	return ret;
}

/* The context of a stream of the program's own, where it is not `current`; NULL: it is, or nobody knows. */
static inline CUcontext charge_other_context(CUstream stream, CUcontext current)
{
	CUcontext of = NULL;

	if ((uintptr_t)stream <= LAST_SPECIAL_STREAM || CALL(cuStreamGetCtx, stream, &of) != CUDA_SUCCESS)
		return NULL;
	return of != current ? of : NULL;
}

struct charge {
	struct card *card;		/* NULL: nothing to reserve; the driver refuses, and says why */
	uint64_t bytes;
	uint64_t context;
	unsigned int number;		/* of a context: the last one's when this was reserved (cuda_context.c) */
	CUresult why;			/* it was refused: the program's answer */
};

/* NULL: the driver has no such device, and gives nothing of it. A card of which it does not say who it is, or
 * that cannot be counted, is there, with no room (limits_unknown). */
struct card *charge_device_card(CUdevice device);
struct card *charge_current_card(CUcontext *context);	/* of the calling thread; NULL: no context */
struct card *charge_current_place(CUcontext *context, CUdevice *device);	/* the same, and its device */
struct card *charge_indexed_card(int index);	/* in the usage file; NULL: none */
void charge_forget_contexts(void);	/* a context ended: its address may come again */

/* What a program is told to which nothing of the card is given: that there is no memory, which counts as a refusal.
 * Where the driver did not say which card it is, the driver's own error. */
CUresult charge_refused(const struct card *card);

/* False: that would pass the limit; charge->why is the answer. */
bool charge_current(struct charge *charge, uint64_t bytes);
bool charge_card(struct charge *charge, struct card *card, uint64_t bytes);

/* The same of a card, but nothing is given up to make room. */
bool charge_fits(struct charge *charge, struct card *card, uint64_t bytes);

/* The driver answered ret. Where it has given something of a device that was not there when it was to be reserved,
 * another thread has made the driver ready meanwhile: it is reserved now. False: that would pass the limit, and the thing
 * has to go back. */
bool charge_late(struct charge *charge, CUresult ret, CUdevice device);

/* The driver answered ret: remember the thing, or give back. Returns ret, or why it went back (charge_late, for what is
 * of the current context). */
CUresult charge_settle(const struct charge *charge, CUresult ret, enum ledger_kind kind,
		       uint64_t key);

void charge_give_back(const struct ledger_entry *entry);

/* The driver is about to free the thing: it leaves the ledger before its address can come again. */
struct ledger_entry charge_release(enum ledger_kind kind, uint64_t key);
struct ledger_entry charge_release_pointer(uint64_t at);	/* a pool's as well */
CUresult charge_released(const struct ledger_entry *entry, CUresult ret);

#endif
