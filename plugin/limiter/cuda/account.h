/* account.h - memory of which the driver alone knows how much there is: what pools and graphs hold.
 *
 * An account is an entry in the ledger, a pool's (LEDGER_POOL) or all graphs' of a device
 * (LEDGER_GRAPHS), with the bytes that the driver said it holds of the card, used or not. */
#ifndef EDGEGPU_LIMITER_ACCOUNT_H
#define EDGEGPU_LIMITER_ACCOUNT_H

#include "charge.h"

/* references: whatever the caller wants to know of it later. Card -1: it does not count. */
void account_open(enum ledger_kind kind, uint64_t key, int card, unsigned int references);

/* Count what it holds now in the place of what was reserved for it. False: that passes the limit. */
bool account_settle(const struct charge *charge, enum ledger_kind kind, uint64_t key);

/* A pool's account, and when it was last counted its bytes; mostly without a lock. False: it has none. */
bool account_find_pool(CUmemoryPool pool, struct ledger_entry *out);

/* Take it out of the ledger; its bytes stay counted, and are the caller's. */
bool account_close(enum ledger_kind kind, uint64_t key, struct ledger_entry *out);

void accounts_renew(void);		/* ask the driver what each holds */
void accounts_moved(void);		/* something was freed: the next synchronisation may give it back */
void accounts_synchronised(void);

/* Let the driver give up what pools and graphs keep unused. False: there are none. */
bool account_make_room(const struct card *card);

/* What the driver says the pool holds, and uses of it. False: it does not say. */
bool account_pool(CUmemoryPool pool, uint64_t *held, uint64_t *used);

#endif
