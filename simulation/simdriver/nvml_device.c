/* nvml_device.c - what a card is: name, uuid, place, capability. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "nvml_core.h"

SIM_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t dev, char *out, unsigned int len)
{
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, out);
	char text[SIM_NAME_LEN + 40];

	if (ret != NVML_SUCCESS)
		return ret;
	if (dev->mig == NULL)
		return nvml_text(out, len, dev->card->name);
	snprintf(text, sizeof(text), "%s MIG %s", dev->card->name, dev->mig->profile);
	return nvml_text(out, len, text);
}

SIM_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t dev, char *out, unsigned int len)
{
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, out);

	if (ret != NVML_SUCCESS)
		return ret;
	return nvml_text(out, len, dev->mig != NULL ? dev->mig->uuid : dev->card->uuid);
}

SIM_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t dev, unsigned int *out)
{
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, out);

	if (ret == NVML_SUCCESS)
		*out = dev->index;
	return ret;
}

SIM_API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t dev, unsigned int *out)
{
	nvmlReturn_t ret = nvml_enter_card(__func__, dev, out);

	if (ret == NVML_SUCCESS)
		*out = dev->card->minor;
	return ret;
}

static nvmlReturn_t pci_info(const char *call, nvmlDevice_t dev, struct nvml_pci *out)
{
	nvmlReturn_t ret = nvml_enter_card(call, dev, out);
	const struct sim_card *card;

	if (ret != NVML_SUCCESS)
		return ret;
	card = dev->card;
	memset(out, 0, sizeof(*out));
	out->domain = card->domain;
	out->bus = card->bus;
	out->device = card->slot;
	out->device_id = 0x1EB810DE;
	out->subsystem_id = 0x12A210DE;
	snprintf(out->bus_id, sizeof(out->bus_id), "%08X:%02X:%02X.0", card->domain, card->bus,
		 card->slot);
	snprintf(out->bus_id_legacy, sizeof(out->bus_id_legacy), "%04X:%02X:%02X.0",
		 card->domain & 0xFFFF, card->bus & 0xFF, card->slot & 0x1F);
	return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t dev, struct nvml_pci *out)
{
	return pci_info(__func__, dev, out);
}

SIM_API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t dev, struct nvml_pci *out)
{
	return pci_info(__func__, dev, out);
}

SIM_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t dev, struct nvml_pci *out)
{
	return pci_info(__func__, dev, out);
}

SIM_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t dev, int *major, int *minor)
{
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, major);

	if (ret != NVML_SUCCESS)
		return ret;
	if (minor == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*major = (int)dev->card->cc_major;
	*minor = (int)dev->card->cc_minor;
	return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t dev, unsigned int *out)
{
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, out);

	if (ret == NVML_SUCCESS)
		*out = strstr(dev->card->name, "GeForce") != NULL ? 5 : 14;	/* GeForce; NVIDIA */
	return ret;
}

SIM_API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t dev, unsigned int *out)
{
	static const struct {
		unsigned int major, minor, arch;
	} first[] = {			/* newest first: the first that is not above the card */
		{ 10, 0, 10 }, { 9, 0, 9 }, { 8, 9, 8 }, { 8, 0, 7 }, { 7, 5, 6 }, { 7, 0, 5 },
		{ 6, 0, 4 }, { 5, 0, 3 }, { 3, 0, 2 },
	};
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, out);

	if (ret != NVML_SUCCESS)
		return ret;
	*out = 0xFFFFFFFF;
	for (size_t i = 0; i < sizeof(first) / sizeof(*first); i++) {
		if (dev->card->cc_major * 100 + dev->card->cc_minor <
		    first[i].major * 100 + first[i].minor)
			continue;
		*out = first[i].arch;
		break;
	}
	return NVML_SUCCESS;
}
