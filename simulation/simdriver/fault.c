/* fault.c - what people injected: calls that hang or fail, cards that are gone, no driver at all. */
#define _GNU_SOURCE
#include <ctype.h>
#include <string.h>

#include "state.h"

#define HANG_CHECK_MS 500		/* should the clearing process die between write and wake */

/* The name less a version suffix: nvmlInit for nvmlInit_v2. */
static size_t base_length(const char *call)
{
	size_t len = strlen(call), end = len;

	while (end > 0 && isdigit((unsigned char)call[end - 1]))
		end--;
	if (end < len && end > 2 && strncmp(call + end - 2, "_v", 2) == 0)
		return end - 2;
	return len;
}

static bool matches(const char *wanted, const char *call)
{
	size_t len = base_length(call);

	if (strcmp(wanted, "*") == 0)
		return strncmp(call, "nvml", 4) == 0;
	if (strcmp(wanted, call) == 0)
		return true;
	return strlen(wanted) == len && strncmp(wanted, call, len) == 0;
}

static struct state_fault find(const char *call)
{
	struct state *map = state_map();
	struct state_fault found = { .kind = SIM_FAULT_NONE };

	sim_lock();
	for (int i = 0; i < STATE_FAULTS; i++) {
		if (map->faults[i].kind == SIM_FAULT_NONE || !matches(map->faults[i].call, call))
			continue;
		found = map->faults[i];
		break;
	}
	sim_unlock();
	return found;
}

int sim_fault(const char *call)
{
	struct state *map = state_map();

	while (map != NULL && map->fault_count > 0) {
		uint32_t gen = map->fault_gen;
		struct state_fault fault = find(call);

		if (fault.kind != SIM_FAULT_HANG)
			return fault.kind == SIM_FAULT_FAIL ? fault.code : 0;
		state_futex_wait(&map->fault_gen, gen, HANG_CHECK_MS);
	}
	return 0;
}

static void changed(void)
{
	struct state *map = state_map();
	uint32_t n = 0;

	for (int i = 0; i < STATE_FAULTS; i++)
		n += map->faults[i].kind != SIM_FAULT_NONE;
	map->fault_count = n;
	map->fault_gen++;
	state_futex_wake(&map->fault_gen);
}

int sim_fault_add(const char *call, enum sim_fault_kind kind, int code)
{
	struct state *map = state_map();
	struct state_fault *place = NULL;

	for (int i = STATE_FAULTS - 1; i >= 0; i--)
		if (map->faults[i].kind == SIM_FAULT_NONE)
			place = &map->faults[i];
	for (int i = 0; i < STATE_FAULTS; i++)
		if (map->faults[i].kind != SIM_FAULT_NONE && strcmp(map->faults[i].call, call) == 0)
			place = &map->faults[i];
	if (place == NULL || strlen(call) >= sizeof(place->call))
		return -1;
	place->kind = SIM_FAULT_NONE;
	strcpy(place->call, call);
	place->code = code;
	place->kind = kind;
	changed();
	return 0;
}

void sim_fault_end(const char *call)
{
	struct state *map = state_map();

	for (int i = 0; i < STATE_FAULTS; i++)
		if (strcmp(map->faults[i].call, call) == 0)
			map->faults[i].kind = SIM_FAULT_NONE;
	changed();
}

void sim_faults_clear(void)
{
	struct state *map = state_map();

	for (int i = 0; i < STATE_FAULTS; i++)
		map->faults[i].kind = SIM_FAULT_NONE;
	for (uint32_t i = 0; i < map->nentries; i++)
		map->entries[i].lost = 0;
	map->unloaded = 0;
	changed();
}

bool sim_unloaded(void)
{
	return state_map()->unloaded != 0;
}

void sim_unload(bool gone)
{
	state_map()->unloaded = gone;
}

bool sim_lost(int entry)
{
	return state_map()->entries[entry].lost != 0;
}

void sim_lose(int entry, bool gone)
{
	state_map()->entries[entry].lost = gone;
	sim_ring_put(entry, 0, 0);	/* an event of no type: wakes those that wait on the card */
}
