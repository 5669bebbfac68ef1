/* cuda_mps.c - makes the process a client of NVIDIA MPS, where the limits file says policy=mps.
 *
 * The driver connects to MPS when it is initialised, and reads then from the environment where the control
 * daemon is and which part of the multiprocessors the process is to have. Both are set here right before, so
 * that whatever the program or the image has set there does not count. That the process became a client is
 * then asked of the driver, for each card; where it says no, or cannot say, the share is held by time. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "charge.h"
#include "mps.h"
#include "settings.h"
#include "text.h"

#define PIPE "CUDA_MPS_PIPE_DIRECTORY"
#define PERCENT "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
/* With it each context reads the percentage anew, whenever the program likes. */
#define PER_CONTEXT "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING"

/* The percent that is asked for; 0: no MPS, or no environment to ask in. */
static unsigned int ask(void)
{
	unsigned int percent = limits_mps_percent();
	char folder[SETTING_MAX + 8], text[24];

	if (percent == 0 || !setting_path(folder, sizeof(folder), setting_folder(), "mps"))
		return 0;
	text_put_number(text, percent);
	if (setenv(PIPE, folder, 1) != 0 || setenv(PERCENT, text, 1) != 0 || unsetenv(PER_CONTEXT) != 0)
		return 0;
	return percent;
}

CUresult EXPORT cuInit(unsigned int flags)
{
	struct process *own = NESTED ? NULL : process_own();
	unsigned int asked = 0;

	/* Once: what a later call found in the environment would not be what the driver has read. */
	if (own != NULL && __atomic_load_n(&own->mps_asked, __ATOMIC_RELAXED) == 0) {
		asked = ask();
		__atomic_store_n(&own->mps_percent, asked, __ATOMIC_RELAXED);
		__atomic_store_n(&own->mps_asked, 1, __ATOMIC_RELEASE);
	}
	return CALL(cuInit, flags);
}

void mps_learn(struct card *card, CUdevice device)
{
	struct process *own = process_own();
	unsigned int asked = own != NULL ? __atomic_load_n(&own->mps_percent, __ATOMIC_RELAXED) : 0;
	int client = 0;

	if (asked == 0 || CALL(cuDeviceGetAttribute, &client, CU_ATTRIBUTE_MPS_ENABLED, device) != CUDA_SUCCESS ||
	    client != 1)
		asked = 0;
	if (asked != 0)
		__atomic_store_n(&card->sharers, usage_sharers(card_index(card), 0), __ATOMIC_RELAXED);
	__atomic_store_n(&card->sm_percent, asked, __ATOMIC_RELAXED);
}

void mps_distrust(void)
{
	struct process *own = process_own();

	if (own == NULL)
		return;
	__atomic_store_n(&own->mps_percent, 0, __ATOMIC_RELAXED);
	for (unsigned int i = 0; i < __atomic_load_n(&own->limits.ncards, __ATOMIC_ACQUIRE); i++)
		__atomic_store_n(&own->limits.cards[i].sm_percent, 0, __ATOMIC_RELAXED);
}
