/* clock.c - the time of a card: processes reserve stretches of it, one after the other.
 *
 * The card has no process of its own. Who has work reserves the next free stretch, at most a slice, and
 * reserves again when that is over: so each gets its turn, and what a killed process leaves behind is
 * over with its slice. A stretch may begin before now: a card does not wait for the reserving thread. */
#define _GNU_SOURCE
#include <sys/prctl.h>
#include <time.h>

#include "state.h"

#define SECOND_NS 1000000000ULL
#define TENTH_NS (SECOND_NS / 10)

uint64_t sim_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Into a ring of so many periods of that length. */
static void count_busy(_Atomic uint64_t *ring, unsigned int count, uint64_t length, uint64_t from, uint64_t to)
{
	while (from < to) {
		uint64_t number = from / length, end = (number + 1) * length, ns, seen, next;
		_Atomic uint64_t *place = &ring[number % count];

		ns = (to < end ? to : end) - from;
		seen = *place;
		do
			next = (seen >> 32) == (uint32_t)number ? seen + ns : (number << 32) + ns;
		while (!atomic_compare_exchange_weak(place, &seen, next));
		from += ns;
	}
}

uint64_t sim_reserve(int index, uint64_t ready, uint64_t ns)
{
	struct state *map = state_map();
	struct state_entry *entry = &map->entries[index];
	uint64_t free_at = entry->free_at_ns, start;
	int slot;

	do
		start = free_at > ready ? free_at : ready;
	while (!atomic_compare_exchange_weak(&entry->free_at_ns, &free_at, start + ns));
	count_busy(entry->busy, STATE_TENTHS, TENTH_NS, start, start + ns);
	sim_lock();
	slot = sim_slot_own();
	sim_unlock();
	if (slot >= 0) {
		map->slots[slot].busy_ns[index] += ns;
		count_busy(map->slots[slot].windows[index], STATE_WINDOWS, SIM_WINDOW_NS, start, start + ns);
	}
	return start;
}

uint64_t sim_free_at(int index)
{
	return state_map()->entries[index].free_at_ns;
}

unsigned int sim_busy_percent(int index)
{
	struct state_entry *entry = &state_map()->entries[index];
	uint64_t now = sim_now_ns() / TENTH_NS, sum = 0;

	for (uint64_t tenth = now - 10; tenth < now; tenth++) {
		uint64_t seen = entry->busy[tenth % STATE_TENTHS];

		if (seen >> 32 == (uint32_t)tenth)
			sum += (uint32_t)seen;
	}
	return (unsigned int)(sum >= SECOND_NS ? 100 : sum * 100 / SECOND_NS);
}

uint64_t sim_busy_ns(int index)
{
	struct state *map = state_map();
	uint64_t sum = 0;

	sim_slots_reap();
	for (int i = 0; i < (int)map->high; i++)
		if (map->slots[i].used)
			sum += map->slots[i].busy_ns[index];
	return sum;
}

/* A timer's usual slack would add a third to a kernel of 0.1 ms. */
void sim_sleep_until(uint64_t ns)
{
	struct timespec until = { (time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS) };
	int slack;

	if (ns <= sim_now_ns())
		return;
	slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
		;
	prctl(PR_SET_TIMERSLACK, slack > 0 ? slack : 0, 0, 0, 0);
}
