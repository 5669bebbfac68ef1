/* ring.c - events with a generation: each waiter keeps its own place, so that all see each event. */
#define _GNU_SOURCE
#include "state.h"

uint32_t sim_ring_now(void)
{
	return state_map()->ring_gen;
}

void sim_ring_put(int entry, uint64_t type, uint64_t data)
{
	struct state *map = state_map();
	uint32_t gen = map->ring_gen + 1;

	map->ring[gen % STATE_RING] = (struct sim_event){ type, data, entry, gen };
	map->ring_gen = gen;
	state_futex_wake(&map->ring_gen);
}

bool sim_ring_next(uint32_t *seen, struct sim_event *out)
{
	struct state *map = state_map();
	bool found = false;

	sim_lock();
	if (map->ring_gen - *seen > STATE_RING)	/* slept through a whole round: the oldest is next */
		*seen = map->ring_gen - STATE_RING;
	if (map->ring_gen != *seen) {
		*out = map->ring[++*seen % STATE_RING];
		found = true;
	}
	sim_unlock();
	return found;
}

void sim_ring_wait(uint32_t seen, int timeout_ms)
{
	state_futex_wait(&state_map()->ring_gen, seen, timeout_ms);
}
