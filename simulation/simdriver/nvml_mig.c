/* nvml_mig.c - cards that are split into instances. */
#include <string.h>

#include "nvml_core.h"

SIM_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t dev, unsigned int *now, unsigned int *next)
{
	nvmlReturn_t ret = nvml_enter_card(__func__, dev, now);

	if (ret != NVML_SUCCESS)
		return ret;
	if (next == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (dev->card->cc_major < 8)	/* no MIG before Ampere */
		return NVML_ERROR_NOT_SUPPORTED;
	*now = *next = dev->card->mig_mode;
	return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t dev, unsigned int *out)
{
	nvmlReturn_t ret = nvml_enter_card(__func__, dev, out);

	if (ret == NVML_SUCCESS)
		*out = dev->card->mig_mode ? SIM_MIG_MAX : 0;
	return ret;
}

SIM_API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t dev, unsigned int index,
							 nvmlDevice_t *out)
{
	nvmlReturn_t ret = nvml_enter_card(__func__, dev, out);

	if (ret != NVML_SUCCESS)
		return ret;
	if (index >= SIM_MIG_MAX)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (index >= dev->card->nmig)
		return NVML_ERROR_NOT_FOUND;
	*out = nvml_mig_dev(dev->card, &dev->card->mig[index]);
	return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t dev, unsigned int *out)
{
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, out);

	if (ret == NVML_SUCCESS)
		*out = dev->mig != NULL;
	return ret;
}

/* The checks of a call that asks about an instance. */
static nvmlReturn_t enter_mig(const char *call, nvmlDevice_t dev, const void *out)
{
	nvmlReturn_t ret = nvml_enter_dev(call, dev, out);

	if (ret == NVML_SUCCESS && dev->mig == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	return ret;
}

SIM_API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t dev,
								   nvmlDevice_t *out)
{
	nvmlReturn_t ret = enter_mig(__func__, dev, out);

	if (ret == NVML_SUCCESS)
		*out = nvml_mig_dev(dev->card, NULL);
	return ret;
}

SIM_API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t dev, unsigned int *out)
{
	nvmlReturn_t ret = enter_mig(__func__, dev, out);

	if (ret == NVML_SUCCESS)
		*out = dev->mig->gi;
	return ret;
}

SIM_API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t dev, unsigned int *out)
{
	nvmlReturn_t ret = enter_mig(__func__, dev, out);

	if (ret == NVML_SUCCESS)
		*out = dev->mig->ci;
	return ret;
}

/* Slices are the digit in front of the profile's g: 3g.40gb has three. */
static nvmlReturn_t attributes(const char *call, nvmlDevice_t dev, struct nvml_attributes *out)
{
	nvmlReturn_t ret = nvml_enter_dev(call, dev, out);
	unsigned int slices = 7;

	if (ret != NVML_SUCCESS)
		return ret;
	if (dev->mig == NULL)		/* as the real one: only for instances */
		return NVML_ERROR_INVALID_ARGUMENT;
	if (dev->mig->profile[0] >= '1' && dev->mig->profile[0] <= '7')
		slices = (unsigned int)(dev->mig->profile[0] - '0');
	memset(out, 0, sizeof(*out));
	out->multiprocessors = slices * 14;
	out->copy_engines = slices;
	out->gi_slices = slices;
	out->ci_slices = slices;
	out->memory_mib = dev->mig->mib;
	return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t dev, struct nvml_attributes *out)
{
	return attributes(__func__, dev, out);
}

SIM_API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t dev, struct nvml_attributes *out)
{
	return attributes(__func__, dev, out);
}
