/* charge.h - every hook that takes memory: reserve, call the driver, then keep or give back. */
#ifndef EDGEGPU_LIMITER_CHARGE_H
#define EDGEGPU_LIMITER_CHARGE_H

#include <stdbool.h>

#include "hooks.h"
#include "ledger.h"
#include "limits.h"
#include "usage.h"

/* More than 0 while the driver runs below a hook: what it calls of itself is part of that. */
extern __thread int charge_depth __attribute__((tls_model("initial-exec")));

#define NESTED (charge_depth > 0)

/* Call the driver's function of that name. */
#define CALL(name, ...) charge_left((charge_depth++, DRIVER(name)(__VA_ARGS__)))

static inline CUresult charge_left(CUresult ret)
{
	charge_depth--;
	return ret;
}

struct charge {
	struct card *card;		/* NULL: nothing to reserve; the driver will say why */
	uint64_t bytes;
	uint64_t context;
};

struct card *charge_device_card(CUdevice device);
struct card *charge_current_card(CUcontext *context);	/* of the calling thread; NULL: no context */
struct card *charge_current_place(CUcontext *context, CUdevice *device);	/* the same, and its device */
struct card *charge_indexed_card(int index);	/* in the usage file; NULL: none */
void charge_forget_contexts(void);	/* a context ended: its address may come again */

/* False: that would pass the limit. */
bool charge_current(struct charge *charge, uint64_t bytes);
bool charge_card(struct charge *charge, struct card *card, uint64_t bytes);

/* The same of a card, but nothing is given up to make room. */
bool charge_fits(struct charge *charge, struct card *card, uint64_t bytes);

/* The driver answered ret: remember the thing, or give back. Returns ret. */
CUresult charge_settle(const struct charge *charge, CUresult ret, enum ledger_kind kind,
		       uint64_t key);

void charge_give_back(const struct ledger_entry *entry);

/* The driver is about to free the thing: it leaves the ledger before its address can come again. */
struct ledger_entry charge_release(enum ledger_kind kind, uint64_t key);
struct ledger_entry charge_release_pointer(uint64_t at);	/* a pool's as well */
CUresult charge_released(const struct ledger_entry *entry, CUresult ret);

#endif
