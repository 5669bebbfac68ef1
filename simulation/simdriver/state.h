/* state.h - the layout of the shared state file; only the files that keep it include this. */
#ifndef EDGEGPU_SIM_STATE_H
#define EDGEGPU_SIM_STATE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "sim.h"

#define STATE_MAGIC 0x45444753U		/* "EDGS" */
#define STATE_VERSION 6U
#define STATE_ENTRIES 128
#define STATE_SLOTS 512
#define STATE_RING 64
#define STATE_FAULTS 16
#define STATE_TENTHS 16			/* of a second, for which the busy time is kept */
#define STATE_WINDOWS 8			/* for which each process's busy time is kept */
#define STATE_SLOT_BYTE (1LL << 32)	/* slot n lives while byte STATE_SLOT_BYTE + n is locked */

struct state_entry {			/* a card or a MIG instance */
	char uuid[SIM_UUID_LEN];
	uint32_t lost;
	uint32_t has_temperature;
	int32_t temperature;
	uint32_t utilisation;
	_Atomic uint64_t free_at_ns;	/* when the card has done all that was reserved on it */
	_Atomic uint64_t busy[STATE_TENTHS];	/* the tenth's number << 32 | busy ns in it */
};

struct state_slot {			/* a process with a context */
	uint32_t used;
	uint32_t pid;			/* in the owner's own pid namespace */
	uint32_t draws;			/* it has memory for graphics */
	_Atomic uint32_t process;	/* enum sim_process */
	uint64_t cookie;		/* random per exec: tells a reused pid from the owner */
	uint64_t bytes[STATE_ENTRIES];
	uint32_t contexts[STATE_ENTRIES];
	_Atomic uint64_t busy_ns[STATE_ENTRIES];
	_Atomic uint64_t windows[STATE_ENTRIES][STATE_WINDOWS];	/* the window's number << 32 | busy ns */
};

struct state_fault {
	uint32_t kind;			/* written last, cleared first */
	int32_t code;
	char call[64];
};

struct state {
	uint32_t magic, version, size;
	uint32_t unloaded;
	_Atomic uint32_t fault_count;
	_Atomic uint32_t fault_gen;	/* futex: moves when faults change */
	_Atomic uint32_t ring_gen;	/* futex: moves when an event is put */
	uint32_t nentries;
	_Atomic uint32_t high;		/* slots below it may be used: no others are looked at, or take memory */
	struct state_entry entries[STATE_ENTRIES];
	struct state_fault faults[STATE_FAULTS];
	struct sim_event ring[STATE_RING];
	struct state_slot slots[STATE_SLOTS];
};

struct state *state_map(void);		/* NULL before sim_state_open */
int state_fd(void);
void state_futex_wait(_Atomic uint32_t *word, uint32_t seen, int timeout_ms);
void state_futex_wake(_Atomic uint32_t *word);

#endif
