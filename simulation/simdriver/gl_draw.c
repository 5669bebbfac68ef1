/* gl_draw.c - memory of a program that draws: the one thing of Vulkan and OpenGL that others see on a card.
 *
 * A program asks for it by a function of our own, since no loader of Vulkan is needed to take memory. Its
 * process is in NVML's list of those that draw, and in that of those that compute only with a context of CUDA. */
#define _GNU_SOURCE
#include <stdbool.h>

#include "state.h"

static struct sim_driver driver;

/* Take MiB of the first card that this process sees, until its end: 0, or -1. */
SIM_API int sim_draw(unsigned int mib)
{
	static bool is_open;
	const struct sim_card *card = &driver.cards[0];
	bool taken;

	if (!is_open && sim_driver_open(&driver, (const void *)&sim_draw) < 0)
		return -1;
	is_open = true;
	if (driver.ncards == 0)
		return -1;
	sim_lock();
	taken = sim_take(card->entry, mib * SIM_MIB, (card->mib - driver.reserved_mib) * SIM_MIB);
	if (taken)
		state_map()->slots[sim_slot_own()].draws = 1;
	sim_unlock();
	return taken ? 0 : -1;
}
