/* nvml_handle.c - from index, uuid or bus id to a device. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "nvml_core.h"

static nvmlReturn_t count(const char *call, unsigned int *out)
{
	nvmlReturn_t ret = nvml_enter(call);

	if (ret != NVML_SUCCESS)
		return ret;
	if (out == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = nvml_driver()->ncards;
	return NVML_SUCCESS;
}

static nvmlReturn_t give(const char *call, nvmlDevice_t found, nvmlDevice_t *out,
			 nvmlReturn_t missing)
{
	nvmlReturn_t ret;

	if (found == NULL) {
		ret = nvml_enter(call);
		return ret != NVML_SUCCESS ? ret : missing;
	}
	ret = nvml_enter_dev(call, found, out);
	if (ret == NVML_SUCCESS)
		*out = found;
	return ret;
}

SIM_API nvmlReturn_t nvmlDeviceGetCount(unsigned int *out)
{
	return count(__func__, out);
}

SIM_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *out)
{
	return count(__func__, out);
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *out)
{
	return give(__func__, nvml_card_dev(index), out, NVML_ERROR_INVALID_ARGUMENT);
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out)
{
	return give(__func__, nvml_card_dev(index), out, NVML_ERROR_INVALID_ARGUMENT);
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
	nvmlDevice_t dev = NULL;

	if (uuid == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	while ((dev = nvml_next_dev(dev)) != NULL)
		if (strcmp(dev->mig != NULL ? dev->mig->uuid : dev->card->uuid, uuid) == 0)
			break;
	return give(__func__, dev, out, NVML_ERROR_NOT_FOUND);
}

static nvmlDevice_t by_bus_id(const char *text)
{
	unsigned int domain = 0, bus, slot, function = 0;

	if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
		domain = 0;
		if (sscanf(text, "%x:%x.%x", &bus, &slot, &function) < 2)
			return NULL;
	}
	for (unsigned int i = 0; i < nvml_driver()->ncards; i++) {
		const struct sim_card *card = &nvml_driver()->cards[i];

		if (card->domain == domain && card->bus == bus && card->slot == slot)
			return nvml_card_dev(i);
	}
	return NULL;
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *out)
{
	if (bus_id == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	return give(__func__, by_bus_id(bus_id), out, NVML_ERROR_NOT_FOUND);
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *out)
{
	if (bus_id == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	return give(__func__, by_bus_id(bus_id), out, NVML_ERROR_NOT_FOUND);
}
