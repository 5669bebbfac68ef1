/* context.h - contexts in the ledger. */
#ifndef EDGEGPU_LIMITER_CONTEXT_H
#define EDGEGPU_LIMITER_CONTEXT_H

#include "account.h"

/* Which of all that had the address one after the other; 0: none that is counted. */
unsigned int context_number(CUcontext context);

/* Reserve what one takes on the device. False: that would pass the limit; charge->why is the answer. */
bool context_charge(struct charge *charge, CUdevice device);

/* As charge_late. */
bool context_late(struct charge *charge, CUresult ret, CUdevice device);

/* The driver answered ret: count it, or give back. Returns ret. */
CUresult context_made(struct charge *charge, CUresult ret, CUcontext context);

/* A call is made in this one: where nobody has counted it, it has come past us, through an export table. It counts now, as
 * much as any; what is there cannot be refused. */
void context_seen(CUcontext context, CUdevice device, struct card *card);

/* Of cuda_primary.c: the context is the device's primary one of before, which was released or reset, and may stay current as
 * a name of nothing. */
bool primary_is_name(CUcontext context, CUdevice device);

/* The driver has ended the one of that number, or freed all that it held where it stays. */
void context_ended(CUcontext context, unsigned int number, bool stays);

#endif
