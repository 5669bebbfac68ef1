/* sim.h - what the libraries and simctl share: cards, driver root, state. */
#ifndef EDGEGPU_SIM_H
#define EDGEGPU_SIM_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_API __attribute__((visibility("default")))

#define SIM_FOLDER "/var/lib/nvidia-sim"
#define SIM_CARDS_MAX 32
#define SIM_MIG_MAX 7
#define SIM_UUID_LEN 80
#define SIM_NAME_LEN 96
#define SIM_MIB (1024ULL * 1024ULL)

struct sim_card;

struct sim_mig {
	char uuid[SIM_UUID_LEN];
	char profile[32];
	uint64_t mib;
	unsigned int gi, ci;		/* instance ids, as NVML counts them */
	unsigned int caps[2];		/* minors of the GI and the CI cap file */
	int entry;			/* index in the shared state */
	struct sim_card *card;
};

struct sim_card {
	char uuid[SIM_UUID_LEN];
	char name[SIM_NAME_LEN];
	uint64_t mib;
	unsigned int domain, bus, slot;
	unsigned int minor;
	unsigned int cc_major, cc_minor;
	bool mig_mode;
	bool exclusive;			/* compute mode: one process at a time */
	unsigned int nmig;
	struct sim_mig mig[SIM_MIG_MAX];
	int entry;
};

struct sim_driver {
	char root[PATH_MAX];
	char version[32];
	int cuda;			/* 12060 for 12.6, as cuDriverGetVersion */
	uint64_t context_mib;
	uint64_t reserved_mib;
	uint64_t module_mib;		/* what each loaded module takes */
	uint64_t init_ms;		/* what cuInit takes */
	uint64_t kernel_us;		/* what a launch takes whose kernel's name has no time */
	unsigned int ncards;
	struct sim_card cards[SIM_CARDS_MAX];
};

/* root.c: the folder that the library itself was loaded from, less the usual suffix. */
void sim_root(const void *own_symbol, char *root, size_t len);

/* cards.c: 0, or a negative errno; a bad line is -EINVAL and named on stderr. */
int sim_cards_load(struct sim_driver *drv);

/* cardline.c: one line into the driver; NULL, or what is wrong with it. */
const char *sim_card_line(struct sim_driver *drv, char *line);

/* driver.c: root, state, cards, less what this process cannot see.
 * 0, -ENODEV (driver not loaded), or another negative errno. */
int sim_driver_open(struct sim_driver *drv, const void *own_symbol);

/* state.c: the mapping, its lock and the uuid table. */
int sim_state_open(const char *root);
int sim_state_create(const char *root);
void sim_lock(void);
void sim_unlock(void);
int sim_entry(const char *uuid);	/* index, or -1 when the table is full */
int sim_entry_find(const char *uuid);	/* index, or -1 */

/* slots.c: who holds what, and is it alive. Callers of these hold the lock. */
struct sim_use {
	unsigned int pid;		/* in our pid namespace; 0: not to be seen from here */
	uint64_t bytes;
	unsigned int contexts;
	bool draws;
};
int sim_slot_own(void);			/* this process's slot, taken when needed; -1: full */
void sim_slots_reap(void);
uint64_t sim_used(int entry);		/* but by processes that are checkpointed */
unsigned int sim_users(int entry, struct sim_use *out, unsigned int max);
struct sim_share {
	unsigned int pid, percent;	/* as in sim_use; of the windows that were asked for, at most the last 6 */
};
unsigned int sim_shares(int entry, uint64_t first, uint64_t last, struct sim_share *out, unsigned int max);

enum sim_process { SIM_RUNNING, SIM_LOCKED, SIM_CHECKPOINTED };	/* as CUprocessState */
int sim_process(int pid);		/* -1: it has no card */
void sim_process_set(int pid, enum sim_process what);
uint64_t sim_process_bytes(int pid, int entry);
enum sim_process sim_process_own(void);	/* needs no lock */

bool sim_take(int entry, uint64_t bytes, uint64_t limit);
void sim_give(int entry, uint64_t bytes);
void sim_context(int entry, int delta);

/* fault.c: what people injected. */
enum sim_fault_kind { SIM_FAULT_NONE, SIM_FAULT_HANG, SIM_FAULT_FAIL };
int sim_fault(const char *call);	/* blocks while the call hangs; 0, or the code to answer */
int sim_fault_add(const char *call, enum sim_fault_kind kind, int code);
void sim_fault_end(const char *call);	/* of that name, as it was given */
void sim_faults_clear(void);
bool sim_unloaded(void);
void sim_unload(bool gone);
bool sim_lost(int entry);
void sim_lose(int entry, bool gone);

/* ring.c: events with a generation, seen by every waiter. */
struct sim_event {
	uint64_t type, data;
	int32_t entry;
	uint32_t generation;
};
uint32_t sim_ring_now(void);
void sim_ring_put(int entry, uint64_t type, uint64_t data);
bool sim_ring_next(uint32_t *seen, struct sim_event *out);
void sim_ring_wait(uint32_t seen, int timeout_ms);

/* clock.c: the time of a card, which its processes share. Times are CLOCK_MONOTONIC's, in ns. */
uint64_t sim_now_ns(void);
/* The next stretch of the card's time that is free at `ready` or after it: its start; it ends ns later. */
uint64_t sim_reserve(int entry, uint64_t ready, uint64_t ns);
uint64_t sim_free_at(int entry);		/* when all that was reserved is over */
unsigned int sim_busy_percent(int entry);	/* of the last full second */
#define SIM_WINDOW_NS (1000000000ULL / 6)	/* as long as NVML samples processes, on some cards */
uint64_t sim_busy_ns(int entry);		/* of all living processes */
void sim_sleep_until(uint64_t ns);

/* dials.c: values that people set and the driver shows. */
int sim_temperature(int entry);
unsigned int sim_utilisation(int entry);
void sim_set_temperature(int entry, int celsius);
void sim_set_utilisation(int entry, unsigned int percent);

#endif
