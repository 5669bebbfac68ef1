/* nvml_core.h - what the files of the simulated NVML share. */
#ifndef EDGEGPU_SIM_NVML_CORE_H
#define EDGEGPU_SIM_NVML_CORE_H

#include "nvml.h"
#include "sim.h"

struct nvml_dev {
	struct sim_card *card;
	struct sim_mig *mig;		/* NULL: the whole card */
	unsigned int index;
};

/* Every call starts with one of these: an injected fault, not initialised, not a device, lost. */
nvmlReturn_t nvml_enter(const char *call);
nvmlReturn_t nvml_enter_dev(const char *call, nvmlDevice_t dev, const void *out);
nvmlReturn_t nvml_enter_card(const char *call, nvmlDevice_t dev, const void *out);

const struct sim_driver *nvml_driver(void);
nvmlDevice_t nvml_card_dev(unsigned int index);
nvmlDevice_t nvml_mig_dev(const struct sim_card *card, const struct sim_mig *mig);
nvmlDevice_t nvml_next_dev(nvmlDevice_t after);	/* NULL starts and ends */
int nvml_entry(nvmlDevice_t dev);
nvmlReturn_t nvml_text(char *out, unsigned int len, const char *text);
uint64_t nvml_used(nvmlDevice_t dev);	/* a card's includes its instances'; the lock is held */

#endif
