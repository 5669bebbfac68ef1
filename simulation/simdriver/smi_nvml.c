/* smi_nvml.c - loads NVML by its usual name and picks the cards that were asked for. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

static struct smi_nvml nvml;

static const struct {
	const char *symbol;
	size_t at;
} symbols[] = {
#define AT(member, symbol) { symbol, offsetof(struct smi_nvml, member) }
	AT(init, "nvmlInit_v2"),
	AT(error, "nvmlErrorString"),
	AT(driver, "nvmlSystemGetDriverVersion"),
	AT(version, "nvmlSystemGetNVMLVersion"),
	AT(cuda, "nvmlSystemGetCudaDriverVersion_v2"),
	AT(count, "nvmlDeviceGetCount_v2"),
	AT(by_index, "nvmlDeviceGetHandleByIndex_v2"),
	AT(by_uuid, "nvmlDeviceGetHandleByUUID"),
	AT(by_pci, "nvmlDeviceGetHandleByPciBusId_v2"),
	AT(index, "nvmlDeviceGetIndex"),
	AT(name, "nvmlDeviceGetName"),
	AT(uuid, "nvmlDeviceGetUUID"),
	AT(serial, "nvmlDeviceGetSerial"),
	AT(pci, "nvmlDeviceGetPciInfo_v3"),
	AT(memory, "nvmlDeviceGetMemoryInfo"),
	AT(memory_v2, "nvmlDeviceGetMemoryInfo_v2"),
	AT(utilization, "nvmlDeviceGetUtilizationRates"),
	AT(temperature, "nvmlDeviceGetTemperature"),
	AT(power, "nvmlDeviceGetPowerUsage"),
	AT(power_limit, "nvmlDeviceGetEnforcedPowerLimit"),
	AT(fan, "nvmlDeviceGetFanSpeed"),
	AT(pstate, "nvmlDeviceGetPerformanceState"),
	AT(persistence, "nvmlDeviceGetPersistenceMode"),
	AT(display_active, "nvmlDeviceGetDisplayActive"),
	AT(compute_mode, "nvmlDeviceGetComputeMode"),
	AT(ecc_mode, "nvmlDeviceGetEccMode"),
	AT(capability, "nvmlDeviceGetCudaComputeCapability"),
	AT(mig_mode, "nvmlDeviceGetMigMode"),
	AT(mig_max, "nvmlDeviceGetMaxMigDeviceCount"),
	AT(mig_at, "nvmlDeviceGetMigDeviceHandleByIndex"),
	AT(gi, "nvmlDeviceGetGpuInstanceId"),
	AT(ci, "nvmlDeviceGetComputeInstanceId"),
	AT(processes, "nvmlDeviceGetComputeRunningProcesses_v3"),
	AT(process_name, "nvmlSystemGetProcessName"),
#undef AT
};

const struct smi_nvml *smi_nvml(void)
{
	return &nvml;
}

/* What a driver lacks answers as a card that lacks it: the arguments are not looked at. */
static nvmlReturn_t lacking(void)
{
	return NVML_ERROR_NOT_SUPPORTED;
}

static bool load(void)
{
	void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);

	if (lib == NULL)
		return false;
	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		void *symbol = dlsym(lib, symbols[i].symbol);
		nvmlReturn_t (*none)(void) = lacking;

		if (symbol == NULL)
			memcpy((char *)&nvml + symbols[i].at, &none, sizeof(none));
		else
			memcpy((char *)&nvml + symbols[i].at, &symbol, sizeof(symbol));
	}
	return dlsym(lib, "nvmlInit_v2") != NULL && dlsym(lib, "nvmlErrorString") != NULL;
}

int smi_start(void)
{
	nvmlReturn_t status;

	if (!load()) {
		puts("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. "
		     "Please make sure that the NVIDIA Display Driver is properly installed and "
		     "present in your system.\nPlease also try adding directory that contains "
		     "libnvidia-ml.so to your system PATH.");
		return SMI_NO_LIBRARY;
	}
	status = nvml.init();
	return status == NVML_SUCCESS ? SMI_OK : smi_fail(status);
}

int smi_fail(nvmlReturn_t status)
{
	if (status == NVML_ERROR_DRIVER_NOT_LOADED)
		puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
		     "Make sure that the latest NVIDIA driver is installed and running.\n");
	else
		printf("Failed to initialize NVML: %s\n", nvml.error(status));
	return status < SMI_OTHER ? status : SMI_OTHER;
}

static int no_handle(unsigned int index, nvmlReturn_t status)
{
	printf("Unable to determine the device handle for GPU%u: %s%s\n", index,
	       nvml.error(status), status == NVML_ERROR_GPU_IS_LOST ?
	       ".  Reboot the system to recover this GPU" : "");
	return status < SMI_OTHER ? status : SMI_OTHER;
}

static int one(const char *id, struct smi_gpus *out)
{
	struct smi_gpu *gpu = &out->at[out->n];
	nvmlReturn_t status;

	if (strncmp(id, "GPU-", 4) == 0)
		status = nvml.by_uuid(id, &gpu->dev);
	else if (strchr(id, ':') != NULL)
		status = nvml.by_pci(id, &gpu->dev);
	else if (isdigit((unsigned char)*id))
		status = nvml.by_index((unsigned int)atoi(id), &gpu->dev);
	else
		status = NVML_ERROR_NOT_FOUND;
	if (status == NVML_SUCCESS)
		status = nvml.index(gpu->dev, &gpu->index);
	if (status != NVML_SUCCESS) {
		puts("No devices were found");
		return SMI_NO_DEVICE;
	}
	out->n++;
	return SMI_OK;
}

int smi_gpus(const char *id, struct smi_gpus *out)
{
	unsigned int count = 0;
	nvmlReturn_t status;
	char list[512], *rest = list, *word;

	out->n = 0;
	if (id != NULL) {
		int ret = SMI_OK;

		snprintf(list, sizeof(list), "%s", id);
		while (ret == SMI_OK && out->n < SMI_GPUS_MAX &&
		       (word = strsep(&rest, ",")) != NULL)
			ret = one(word, out);
		return ret;
	}
	status = nvml.count(&count);
	if (status != NVML_SUCCESS)
		return smi_fail(status);
	for (unsigned int i = 0; i < count && i < SMI_GPUS_MAX; i++) {
		status = nvml.by_index(i, &out->at[i].dev);
		if (status != NVML_SUCCESS)
			return no_handle(i, status);
		out->at[out->n++].index = i;
	}
	return SMI_OK;
}
