/* nvml_event.c - event sets: each keeps its own place in the ring that all processes share. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

#include "nvml_core.h"

#define WAIT_STEP_MS 1000		/* a wait is cut up, should the waking process die early */

struct nvml_set {
	uint32_t seen;
	unsigned int n;
	struct {
		nvmlDevice_t dev;
		unsigned long long types;
	} wants[SIM_CARDS_MAX * 2];
};

SIM_API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out)
{
	nvmlReturn_t ret = nvml_enter(__func__);

	if (ret != NVML_SUCCESS)
		return ret;
	if (out == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = calloc(1, sizeof(**out));
	if (*out == NULL)
		return NVML_ERROR_MEMORY;
	(*out)->seen = sim_ring_now();
	return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	nvmlReturn_t ret = nvml_enter(__func__);

	if (ret == NVML_SUCCESS)
		free(set);
	return ret;
}

SIM_API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t dev, unsigned long long *out)
{
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, out);

	if (ret == NVML_SUCCESS)
		*out = dev->mig != NULL ? 0 : NVML_EVENT_XID;
	return ret;
}

SIM_API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t dev, unsigned long long types,
					      nvmlEventSet_t set)
{
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, set);

	if (ret != NVML_SUCCESS)
		return ret;
	if (dev->mig != NULL || (types & ~NVML_EVENT_XID) != 0)
		return NVML_ERROR_NOT_SUPPORTED;
	if (set->n == sizeof(set->wants) / sizeof(set->wants[0]))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (set->n == 0)
		set->seen = sim_ring_now();
	set->wants[set->n].dev = dev;
	set->wants[set->n++].types = types;
	return NVML_SUCCESS;
}

static bool wanted(nvmlEventSet_t set, const struct sim_event *event, struct nvml_event *out)
{
	for (unsigned int i = 0; i < set->n; i++) {
		nvmlDevice_t dev = set->wants[i].dev;

		if (nvml_entry(dev) != event->entry || (set->wants[i].types & event->type) == 0)
			continue;
		*out = (struct nvml_event){ dev, event->type, event->data, NVML_NO_INSTANCE,
					    NVML_NO_INSTANCE };
		return true;
	}
	return false;
}

static bool any_lost(nvmlEventSet_t set)
{
	for (unsigned int i = 0; i < set->n; i++)
		if (sim_lost(set->wants[i].dev->card->entry))
			return true;
	return false;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static nvmlReturn_t wait_event(nvmlEventSet_t set, struct nvml_event *out, unsigned int timeout_ms)
{
	int64_t end = now_ms() + timeout_ms;
	struct sim_event event;

	for (;;) {
		int64_t left;

		while (sim_ring_next(&set->seen, &event))
			if (wanted(set, &event, out))
				return NVML_SUCCESS;
		if (any_lost(set))
			return NVML_ERROR_GPU_IS_LOST;
		left = end - now_ms();
		if (left <= 0)
			return NVML_ERROR_TIMEOUT;
		sim_ring_wait(set->seen, left < WAIT_STEP_MS ? (int)left : WAIT_STEP_MS);
	}
}

SIM_API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, struct nvml_event *out,
					 unsigned int timeout_ms)
{
	nvmlReturn_t ret = nvml_enter(__func__);

	if (ret != NVML_SUCCESS)
		return ret;
	if (set == NULL || out == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	return wait_event(set, out, timeout_ms);
}

SIM_API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, struct nvml_event_v1 *out,
				      unsigned int timeout_ms)
{
	nvmlReturn_t ret = nvml_enter(__func__);
	struct nvml_event event;

	if (ret != NVML_SUCCESS)
		return ret;
	if (set == NULL || out == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	ret = wait_event(set, &event, timeout_ms);
	if (ret == NVML_SUCCESS)
		*out = (struct nvml_event_v1){ event.device, event.type, event.data };
	return ret;
}
