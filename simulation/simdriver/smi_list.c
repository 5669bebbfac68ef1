/* smi_list.c - nvidia-smi -L and --version. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "smi.h"

bool smi_mig_on(nvmlDevice_t dev)
{
	unsigned int now = 0, next = 0;

	return smi_nvml()->mig_mode(dev, &now, &next) == NVML_SUCCESS && now == 1;
}

/* An instance's name is the card's, " MIG " and the profile. */
bool smi_profile(nvmlDevice_t mig, char *out, size_t len)
{
	char name[160];
	const char *at;

	if (smi_nvml()->name(mig, name, sizeof(name)) != NVML_SUCCESS)
		return false;
	at = strstr(name, " MIG ");
	return snprintf(out, len, "%s", at != NULL ? at + 5 : name) < (int)len;
}

static void list_migs(nvmlDevice_t dev)
{
	unsigned int max = 0, shown = 0;

	if (!smi_mig_on(dev) || smi_nvml()->mig_max(dev, &max) != NVML_SUCCESS)
		return;
	for (unsigned int i = 0; i < max; i++) {
		char profile[64], uuid[96];
		nvmlDevice_t mig;

		if (smi_nvml()->mig_at(dev, i, &mig) != NVML_SUCCESS ||
		    smi_nvml()->uuid(mig, uuid, sizeof(uuid)) != NVML_SUCCESS ||
		    !smi_profile(mig, profile, sizeof(profile)))
			continue;
		printf("  MIG %-12sDevice %2u: (UUID: %s)\n", profile, shown++, uuid);
	}
}

int smi_list(const struct smi_gpus *gpus)
{
	for (unsigned int i = 0; i < gpus->n; i++) {
		char name[160] = "", uuid[96] = "";
		nvmlReturn_t status = smi_nvml()->name(gpus->at[i].dev, name, sizeof(name));

		if (status == NVML_SUCCESS)
			status = smi_nvml()->uuid(gpus->at[i].dev, uuid, sizeof(uuid));
		if (status != NVML_SUCCESS)
			return smi_fail(status);
		printf("GPU %u: %s (UUID: %s)\n", gpus->at[i].index, name, uuid);
		list_migs(gpus->at[i].dev);
	}
	return SMI_OK;
}

int smi_version(void)
{
	char driver[80] = "N/A", nvml[80] = "";
	const char *start;
	int cuda = 0;

	smi_nvml()->driver(driver, sizeof(driver));
	smi_nvml()->version(nvml, sizeof(nvml));
	smi_nvml()->cuda(&cuda);
	start = strchr(nvml, '.');	/* less the CUDA major number; and less the last part */
	start = start != NULL ? start + 1 : nvml;
	printf("NVIDIA-SMI version  : %s\n", driver);
	printf("NVML version        : %.*s\n", (int)(strcspn(start, ".") +
	       (strchr(start, '.') != NULL ? 1 + strcspn(strchr(start, '.') + 1, ".") : 0)), start);
	printf("DRIVER version      : %s\n", driver);
	printf("CUDA Version        : %d.%d\n", cuda / 1000, cuda % 1000 / 10);
	return SMI_OK;
}
