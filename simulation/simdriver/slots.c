/* slots.c - what each process took, and whether that process still lives.
 *
 * A process keeps a record lock on its slot's byte for as long as it lives; the kernel drops it at any
 * kind of end, and F_GETLK answers with the owner's pid in the asker's own pid namespace. A process
 * never meets its own locks, so its own slot is known by pid and a value that each exec draws anew. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "state.h"

static int own = -1;
static pid_t own_pid;

static uint64_t cookie(void)
{
	const void *random = (const void *)getauxval(AT_RANDOM);
	uint64_t value = 0;

	if (random != NULL)
		memcpy(&value, random, sizeof(value));
	return value;
}

static struct flock slot_lock(int slot)
{
	return (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET,
			       .l_start = STATE_SLOT_BYTE + slot, .l_len = 1 };
}

/* The holder's pid as seen from here (0: in a namespace that we cannot see); -1: nobody lives. */
static pid_t holder(int slot)
{
	const struct state_slot *s = &state_map()->slots[slot];
	struct flock lock = slot_lock(slot);

	if (s->pid == (uint32_t)getpid() && s->cookie == cookie())
		return getpid();
	if (fcntl(state_fd(), F_GETLK, &lock) < 0)
		return 0;		/* cannot tell: never take from the living */
	if (lock.l_type == F_UNLCK)
		return -1;
	return lock.l_pid > 0 ? lock.l_pid : 0;
}

void sim_slots_reap(void)
{
	struct state *map = state_map();

	for (int i = 0; i < (int)map->high; i++)
		if (map->slots[i].used && holder(i) < 0)
			memset(&map->slots[i], 0, sizeof(map->slots[i]));
}

static void raise_high(struct state *map, uint32_t high)
{
	uint32_t known = map->high;

	while (known < high && !atomic_compare_exchange_weak(&map->high, &known, high))
		;
}

int sim_slot_own(void)
{
	struct state *map = state_map();

	if (own >= 0 && own_pid == getpid())
		return own;
	sim_slots_reap();
	for (int i = 0; i < (int)map->high && own_pid != getpid(); i++)	/* another library of the driver's has one */
		if (map->slots[i].used && map->slots[i].pid == (uint32_t)getpid() && map->slots[i].cookie == cookie()) {
			own = i;
			own_pid = getpid();
			return i;
		}
	for (int i = 0; i < STATE_SLOTS; i++) {
		struct flock lock = slot_lock(i);

		if (map->slots[i].used || fcntl(state_fd(), F_SETLK, &lock) < 0)
			continue;
		memset(&map->slots[i], 0, sizeof(map->slots[i]));
		map->slots[i].pid = (uint32_t)getpid();
		map->slots[i].cookie = cookie();
		raise_high(map, (uint32_t)i + 1);	/* first: a slot in use that nobody looks at is lost */
		map->slots[i].used = 1;
		own = i;
		own_pid = getpid();
		return i;
	}
	return -1;
}

/* A checkpoint has put aside all that the process has of its cards. */
static bool has_cards(const struct state_slot *slot)
{
	return slot->used && slot->process != SIM_CHECKPOINTED;
}

/* The number of a thread stands for its process. */
static bool is_of(pid_t process, int pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d", process, pid);
	return process > 0 && (process == pid || access(path, F_OK) == 0);
}

static struct state_slot *slot_of(int pid)
{
	struct state *map = state_map();

	sim_slots_reap();
	for (int i = 0; i < (int)map->high; i++)
		if (map->slots[i].used && is_of(holder(i), pid))
			return &map->slots[i];
	return NULL;
}

int sim_process(int pid)
{
	const struct state_slot *slot = slot_of(pid);

	return slot != NULL ? (int)slot->process : -1;
}

void sim_process_set(int pid, enum sim_process what)
{
	struct state_slot *slot = slot_of(pid);

	if (slot != NULL)		/* it may have been killed since */
		slot->process = what;
}

uint64_t sim_process_bytes(int pid, int entry)
{
	const struct state_slot *slot = slot_of(pid);

	return slot != NULL ? slot->bytes[entry] : 0;
}

enum sim_process sim_process_own(void)
{
	return own >= 0 && own_pid == getpid() ? (enum sim_process)state_map()->slots[own].process : SIM_RUNNING;
}

uint64_t sim_used(int entry)
{
	struct state *map = state_map();
	uint64_t sum = 0;

	sim_slots_reap();
	for (int i = 0; i < (int)map->high; i++)
		if (has_cards(&map->slots[i]))
			sum += map->slots[i].bytes[entry];
	return sum;
}

unsigned int sim_users(int entry, struct sim_use *out, unsigned int max)
{
	struct state *map = state_map();
	unsigned int n = 0;

	sim_slots_reap();
	for (int i = 0; i < (int)map->high; i++) {
		const struct state_slot *slot = &map->slots[i];
		pid_t pid;

		if (!has_cards(slot) || (slot->bytes[entry] == 0 && slot->contexts[entry] == 0))
			continue;
		pid = holder(i);
		if (pid <= 0)
			continue;
		if (n < max)
			out[n] = (struct sim_use){ (unsigned int)pid, slot->bytes[entry],
						   slot->contexts[entry], slot->draws != 0 };
		n++;
	}
	return n;
}

/* Of some windows, by their numbers. */
static unsigned int window_percent(const struct state_slot *of, int index, uint64_t first, uint64_t last)
{
	uint64_t sum = 0;

	for (uint64_t window = first; window <= last; window++) {
		uint64_t seen = of->windows[index][window % STATE_WINDOWS];

		if (seen >> 32 == (uint32_t)window)
			sum += (uint32_t)seen;
	}
	return (unsigned int)(sum * 100 / ((last - first + 1) * SIM_WINDOW_NS));
}

unsigned int sim_shares(int entry, uint64_t first, uint64_t last, struct sim_share *out, unsigned int max)
{
	struct state *map = state_map();
	unsigned int n = 0;

	sim_slots_reap();
	for (int i = 0; i < (int)map->high && n < max; i++) {
		unsigned int percent = map->slots[i].used ? window_percent(&map->slots[i], entry, first, last) : 0;
		pid_t pid = percent > 0 ? holder(i) : 0;

		if (pid > 0)
			out[n++] = (struct sim_share){ (unsigned int)pid, percent };
	}
	return n;
}

bool sim_take(int entry, uint64_t bytes, uint64_t limit)
{
	int slot = sim_slot_own();
	uint64_t used = sim_used(entry);

	if (slot < 0 || bytes > limit || used > limit - bytes)
		return false;
	state_map()->slots[slot].bytes[entry] += bytes;
	return true;
}

void sim_give(int entry, uint64_t bytes)
{
	int slot = sim_slot_own();

	if (slot >= 0)
		state_map()->slots[slot].bytes[entry] -= bytes;
}

void sim_context(int entry, int delta)
{
	int slot = sim_slot_own();

	if (slot >= 0)
		state_map()->slots[slot].contexts[entry] += (uint32_t)delta;
}
