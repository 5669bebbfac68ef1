/* virtual.h - references to backing (cuMemCreate), which is free when its last one is gone. */
#ifndef EDGEGPU_LIMITER_VIRTUAL_H
#define EDGEGPU_LIMITER_VIRTUAL_H

#include "charge.h"

#define HOLD_FEW 8

/* What is referred to while the driver is called: no lock is held meanwhile, for it may wait for what another thread
 * does. Of an entry `bytes` is the backing's handle, and `references` which backing of that handle. */
struct hold {
	struct ledger_entry few[HOLD_FEW], *all;
	unsigned int count, room;
};

void hold_none(struct hold *hold);
void hold_handle(struct hold *hold, uint64_t handle);	/* nothing where it is no backing of ours */
bool hold_range(struct hold *hold, CUdeviceptr at, uint64_t bytes);	/* what is mapped there; false: no memory */

/* Take the entries of that kind with keys from `key` on out of the ledger. */
void hold_taken(struct hold *hold, enum ledger_kind kind, uint64_t key);

/* The driver answered ret; each returns it, and after it the hold is none. */
CUresult hold_kept(struct hold *hold, CUresult ret);	/* something that nobody can follow has it for ever */
CUresult hold_bound(struct hold *hold, CUresult ret, uint64_t key, uint64_t object);	/* until that is taken */
CUresult hold_mapped(struct hold *hold, CUresult ret, CUdeviceptr at, uint64_t bytes);
CUresult hold_ended(struct hold *hold, CUresult ret);	/* what was taken; where it failed it is put back */

/* What is mapped into an array, which is about to end: then hold_ended. */
void hold_array(struct hold *hold, void *array);

#endif
