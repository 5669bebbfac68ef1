/* nvml_system.c - versions, and the names of processes. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "nvml_core.h"

SIM_API nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned int len)
{
	nvmlReturn_t ret = nvml_enter(__func__);

	if (ret != NVML_SUCCESS)
		return ret;
	return out == NULL ? NVML_ERROR_INVALID_ARGUMENT :
		nvml_text(out, len, nvml_driver()->version);
}

/* As the real one: the CUDA major number in front of the driver's version. */
SIM_API nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned int len)
{
	nvmlReturn_t ret = nvml_enter(__func__);
	char text[64];

	if (ret != NVML_SUCCESS)
		return ret;
	snprintf(text, sizeof(text), "%d.%s", nvml_driver()->cuda / 1000, nvml_driver()->version);
	return out == NULL ? NVML_ERROR_INVALID_ARGUMENT : nvml_text(out, len, text);
}

static nvmlReturn_t cuda_version(const char *call, int *out)
{
	nvmlReturn_t ret = nvml_enter(call);

	if (ret != NVML_SUCCESS)
		return ret;
	if (out == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = nvml_driver()->cuda;
	return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out)
{
	return cuda_version(__func__, out);
}

SIM_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out)
{
	return cuda_version(__func__, out);
}

SIM_API nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *out, unsigned int len)
{
	nvmlReturn_t ret = nvml_enter(__func__);
	char path[64], name[1024];
	size_t have;
	FILE *file;

	if (ret != NVML_SUCCESS)
		return ret;
	if (out == NULL || len == 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	file = fopen(path, "re");
	if (file == NULL)
		return NVML_ERROR_NOT_FOUND;
	have = fread(name, 1, sizeof(name) - 1, file);
	fclose(file);
	if (have == 0)
		return NVML_ERROR_NOT_FOUND;
	name[have] = '\0';
	snprintf(out, len, "%s", name);	/* the first argument; cut to fit, as the real one */
	return NVML_SUCCESS;
}
