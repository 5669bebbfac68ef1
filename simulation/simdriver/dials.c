/* dials.c - temperature and utilisation, set by people and shown by the driver. */
#define _GNU_SOURCE
#include "state.h"

#define IDLE_CELSIUS 35

int sim_temperature(int entry)
{
	const struct state_entry *e = &state_map()->entries[entry];

	return e->has_temperature ? e->temperature : IDLE_CELSIUS;
}

unsigned int sim_utilisation(int entry)
{
	return state_map()->entries[entry].utilisation;
}

void sim_set_temperature(int entry, int celsius)
{
	state_map()->entries[entry].temperature = celsius;
	state_map()->entries[entry].has_temperature = 1;
}

void sim_set_utilisation(int entry, unsigned int percent)
{
	state_map()->entries[entry].utilisation = percent;
}
