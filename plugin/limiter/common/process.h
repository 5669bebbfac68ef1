/* process.h - what belongs to this process alone and to no child of it. */
#ifndef EDGEGPU_LIMITER_PROCESS_H
#define EDGEGPU_LIMITER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bucket.h"
#include "mutex.h"

#define CARDS_MAX 16			/* cards of one container */
#define DEVICES_MAX 64			/* ordinals that CUDA may give */

struct card {
	uint8_t uuid[16];
	int index;			/* in the usage file; -1: it has none yet, nothing can be reserved; atomic */
	uint64_t memory_bytes;		/* the limit, followed live; atomic */
	uint64_t context_bytes;		/* what one context takes; atomic */
	uint64_t uncounted_bytes;	/* what the driver counts beyond the usage file; atomic */
	unsigned int core;		/* percent of its time, 0: all of it; atomic */
	unsigned int mps;		/* 1: its share may be one of multiprocessors, by NVIDIA MPS; atomic */
	unsigned int sm_percent;	/* of them, that this process has; 0: held by time alone; atomic */
	unsigned int sharers;		/* processes of the container with a context on it; atomic */
	unsigned int charge;		/* permille of what is measured, until a time; both atomic */
	uint64_t charge_until_ms;
	struct bucket spent;		/* GPU time of this process alone */
	uint64_t least;			/* ns of its shortest launches of late; 0: not known; atomic */
	uint64_t deferred;		/* ns of the debt that later launches pay, each a part (gpu_pace.c); atomic */
	uint64_t unseen;		/* so many ns are measured launch by launch: an end was not seen; atomic */
};

static inline int card_index(const struct card *card)
{
	return __atomic_load_n(&card->index, __ATOMIC_RELAXED);
}

struct limit {
	uint8_t uuid[16];
	uint64_t memory_bytes, context_bytes, uncounted_bytes;
	unsigned int core, mps, charge;	/* as in struct card */
	uint64_t charge_until_ms;
};

struct limits {
	struct mutex mutex;
	uint64_t looked_ms;		/* when the file was last looked at; atomic */
	uint64_t inode, changed_ns, size;
	uint64_t current_ms;		/* when what was read was last known to be what the file says */
	bool unread;			/* that is too long ago; atomic */
	unsigned int count;
	struct limit entries[CARDS_MAX];
	unsigned int ncards;		/* atomic: cards[] below it are complete */
	struct card cards[CARDS_MAX];
};

struct ledger_entry;

#define GPU_TABLE_BYTES (5u << 18)	/* of which a program touches what it uses */

#define LEDGER_MARKS 4096		/* a power of two */

struct ledger {
	struct mutex mutex;
	struct ledger_entry *entries;
	unsigned int room, count;
	uint32_t marks[LEDGER_MARKS];	/* entries with that hash; atomic: 0 is known without the mutex */
};

struct slot_use {
	struct mutex claiming;
	uint64_t tag;			/* of our slot; 0: none yet; atomic */
	unsigned int slot;
	uint64_t reaped_ms;
	uint64_t turn;			/* of this process with the file's lock; atomic */
	uint64_t stopped;		/* what the lock said when its holder was waited for in vain; atomic */
	uint64_t held[CARDS_MAX];	/* atomic: what our slot must say */
	uint64_t contexts[CARDS_MAX];
};

#define POOLS_SEEN 8

/* A pool's account as it was last counted, to be read without a lock (cuda_account.c); each atomic. */
struct pool_seen {
	uint64_t key;			/* 0: free */
	uint64_t bytes;
	int card;
	unsigned int references;
};

#define REUSED_MAX 16
#define HARMLESS_MAX 1024		/* a power of two */

/* Memory of graphs that a further launch on this stream, or of this executable, can use again. */
struct reused {
	uint64_t key, bytes;
	int card;
};

struct process {
	pid_t pid;			/* 0: the kernel clears this page in a child */
	unsigned int epoch;		/* atomic: moves when what threads know of contexts is out of date */
	struct limits limits;
	struct ledger ledger;
	struct slot_use use;
	struct mutex contexts;		/* guards which contexts are in the ledger, and the next */
	unsigned int context_number;	/* of the last one that was made */
	struct mutex virtual;	/* held while backing or mappings change in the ledger */
	unsigned int backings;	/* the number of the last one that was made */
	uint16_t mappings;	/* likewise */
	bool tiles;		/* backing is mapped into an array, or was; atomic */
	struct deep_mutex accounts;	/* held while the driver says what pools and graphs hold */
	struct pool_seen pools[POOLS_SEEN];
	unsigned int accounts_known;	/* how many; atomic */
	bool pooled;		/* something is in the ledger as LEDGER_POOLED, or was; atomic */
	bool accounts_moved;	/* something was freed since they were last looked at; atomic */
	struct mutex stacks;	/* held while what the threads of a context have changes in the ledger */
	struct deep_mutex stack_setting;	/* held while the program sets a context's stack */
	unsigned int libraries;	/* the number of the last one that was loaded; atomic */
	struct deep_mutex modules;	/* held while code is loaded or unloaded, and what it takes measured */
	struct mutex graphs;	/* guards the two below */
	unsigned int reused_next;
	struct reused reused[REUSED_MAX];
	unsigned int executables;	/* those that take memory; atomic */
	struct deep_mutex primaries[DEVICES_MAX];	/* each held while the primary context is made or ended */
	uint64_t primary[DEVICES_MAX];	/* each device's primary context; atomic */
	uint64_t ended[DEVICES_MAX];	/* the last one that it had before; atomic */
	unsigned int mps_percent;	/* what MPS was asked for at cuInit; 0: nothing, or it may not hold; atomic */
	unsigned int mps_asked;		/* atomic */
	unsigned int locals __attribute__((aligned(64)));	/* how often something was put into the ledger as
								 * LEDGER_LOCAL; atomic */
	unsigned int streams_ended;	/* atomic */
	unsigned int captures;	/* that were begun, and did not end; atomic */
	int unrelaxed __attribute__((aligned(64)));	/* threads whose calls would end a capture: one waits for them; atomic */
	int unrelaxed_lost;	/* so many of them were awaited in vain; atomic */
	uint64_t harmless[HARMLESS_MAX] __attribute__((aligned(64)));	/* kernels that need little (cuda_local.c); each atomic */
	uint64_t gpu[GPU_TABLE_BYTES / sizeof(uint64_t)];	/* a struct gpu_table: GPU time that is being measured */
};

struct process *process_find(void);	/* for process_own alone */
extern struct process *process_known;	/* NULL: not made yet, or the pid has to be compared; atomic */

/* The one of this process; NULL: no memory. A forked child begins with an empty one. */
static inline struct process *process_own(void)
{
	struct process *known = __atomic_load_n(&process_known, __ATOMIC_ACQUIRE);

	return known != NULL ? known : process_find();
}

#endif
