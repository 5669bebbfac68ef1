/* nvml_init.c - start, end, and the checks that each call begins with. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "nvml_core.h"

#define DEVS_MAX (SIM_CARDS_MAX * (1 + SIM_MIG_MAX))

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sim_driver driver;
static struct nvml_dev devs[DEVS_MAX];
static unsigned int ndevs;
static unsigned int users;

const struct sim_driver *nvml_driver(void)
{
	return &driver;
}

static void list_devices(void)
{
	ndevs = 0;
	for (unsigned int c = 0; c < driver.ncards; c++)
		devs[ndevs++] = (struct nvml_dev){ &driver.cards[c], NULL, c };
	for (unsigned int c = 0; c < driver.ncards; c++)
		for (unsigned int m = 0; m < driver.cards[c].nmig; m++)
			devs[ndevs++] = (struct nvml_dev){ &driver.cards[c],
							   &driver.cards[c].mig[m], m };
}

static nvmlReturn_t init_error(int err)
{
	switch (err) {
	case 0:
		return NVML_SUCCESS;
	case -ENODEV:
		return NVML_ERROR_DRIVER_NOT_LOADED;
	case -EACCES:
	case -EPERM:
		return NVML_ERROR_NO_PERMISSION;
	default:
		return NVML_ERROR_UNKNOWN;
	}
}

static nvmlReturn_t start(const char *call)
{
	nvmlReturn_t ret = NVML_SUCCESS;
	int fault;

	pthread_mutex_lock(&mutex);
	if (users == 0) {
		ret = init_error(sim_driver_open(&driver, (const void *)&nvml_driver));
		if (ret == NVML_SUCCESS)
			list_devices();
	}
	if (ret == NVML_SUCCESS)
		users++;
	pthread_mutex_unlock(&mutex);
	if (ret != NVML_SUCCESS)
		return ret;
	fault = sim_fault(call);	/* after the open: faults live in the state */
	if (fault != 0) {
		pthread_mutex_lock(&mutex);
		users--;
		pthread_mutex_unlock(&mutex);
	}
	return fault;
}

SIM_API nvmlReturn_t nvmlInit_v2(void)
{
	return start("nvmlInit_v2");
}

SIM_API nvmlReturn_t nvmlInit(void)
{
	return start("nvmlInit");
}

SIM_API nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	return start("nvmlInitWithFlags");
}

SIM_API nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t ret = nvml_enter("nvmlShutdown");

	if (ret != NVML_SUCCESS)
		return ret;
	pthread_mutex_lock(&mutex);
	if (users == 0)
		ret = NVML_ERROR_UNINITIALIZED;
	else
		users--;
	pthread_mutex_unlock(&mutex);
	return ret;
}

nvmlReturn_t nvml_enter(const char *call)
{
	bool ready;

	pthread_mutex_lock(&mutex);
	ready = users > 0;
	pthread_mutex_unlock(&mutex);
	return ready ? sim_fault(call) : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvml_enter_dev(const char *call, nvmlDevice_t dev, const void *out)
{
	nvmlReturn_t ret = nvml_enter(call);

	if (ret != NVML_SUCCESS)
		return ret;
	if (dev < devs || dev >= devs + ndevs || out == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	return sim_lost(dev->card->entry) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t nvml_enter_card(const char *call, nvmlDevice_t dev, const void *out)
{
	nvmlReturn_t ret = nvml_enter_dev(call, dev, out);

	if (ret == NVML_SUCCESS && dev->mig != NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	return ret;
}

nvmlDevice_t nvml_card_dev(unsigned int index)
{
	return index < driver.ncards ? &devs[index] : NULL;
}

nvmlDevice_t nvml_mig_dev(const struct sim_card *card, const struct sim_mig *mig)
{
	for (unsigned int i = 0; i < ndevs; i++)
		if (devs[i].card == card && devs[i].mig == mig)
			return &devs[i];
	return NULL;
}

nvmlDevice_t nvml_next_dev(nvmlDevice_t after)
{
	nvmlDevice_t next = after == NULL ? devs : after + 1;

	return next < devs + ndevs ? next : NULL;
}

int nvml_entry(nvmlDevice_t dev)
{
	return dev->mig != NULL ? dev->mig->entry : dev->card->entry;
}

nvmlReturn_t nvml_text(char *out, unsigned int len, const char *text)
{
	if (strlen(text) >= len)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_SUCCESS;
}
