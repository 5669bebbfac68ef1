/* process.h - what belongs to this process alone and to no child of it. */
#ifndef EDGEGPU_LIMITER_PROCESS_H
#define EDGEGPU_LIMITER_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mutex.h"

#define CARDS_MAX 16			/* cards of one container */
#define DEVICES_MAX 64			/* ordinals that CUDA may give */

struct card {
	uint8_t uuid[16];
	int index;			/* in the usage file; -1: it has no room, nothing can be reserved */
	uint64_t memory_bytes;		/* the limit, followed live; atomic */
	uint64_t context_bytes;		/* what one context takes; atomic */
};

struct limit {
	uint8_t uuid[16];
	uint64_t memory_bytes, context_bytes;
};

struct limits {
	struct mutex mutex;
	uint64_t looked_ms;		/* when the file was last looked at; atomic */
	uint64_t inode, changed_ns, size;
	unsigned int count;
	struct limit entries[CARDS_MAX];
	unsigned int ncards;		/* atomic: cards[] below it are complete */
	struct card cards[CARDS_MAX];
};

struct ledger_entry;

struct ledger {
	struct mutex mutex;
	struct ledger_entry *entries;
	unsigned int room, count;
};

struct slot_use {
	struct mutex claiming;
	uint64_t tag;			/* of our slot; 0: none yet; atomic */
	unsigned int slot;
	uint64_t reaped_ms;
	uint64_t held[CARDS_MAX];	/* atomic: what our slot must say */
	uint64_t contexts[CARDS_MAX];
};

struct process {
	pid_t pid;			/* 0: the kernel clears this page in a child */
	unsigned int epoch;		/* atomic: moves when what threads know of contexts is out of date */
	struct limits limits;
	struct ledger ledger;
	struct slot_use use;
	struct mutex contexts;	/* held while a context is made or ended */
	struct mutex virtual;	/* held while backing or mappings change */
	uint64_t primary[DEVICES_MAX];	/* each device's primary context */
};

/* The one of this process; NULL: no memory. A forked child begins with an empty one. */
struct process *process_own(void);

#endif
