/* smi_gauge.c - the fields of --query-gpu. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "smi.h"

#define MIB (1024ULL * 1024ULL)

typedef nvmlReturn_t (*uint_call)(nvmlDevice_t dev, unsigned int *out);

static nvmlReturn_t number(uint_call call, const struct smi_gpu *gpu, const char *format, char *out,
			   size_t len)
{
	unsigned int value;
	nvmlReturn_t status = call(gpu->dev, &value);

	if (status == NVML_SUCCESS)
		snprintf(out, len, format, value);
	return status;
}

static nvmlReturn_t get_timestamp(const struct smi_gpu *gpu, char *out, size_t len)
{
	struct timeval now;
	struct tm parts;
	size_t at;

	(void)gpu;
	gettimeofday(&now, NULL);
	localtime_r(&now.tv_sec, &parts);
	at = strftime(out, len, "%Y/%m/%d %H:%M:%S", &parts);
	snprintf(out + at, len - at, ".%03d", (int)(now.tv_usec / 1000));
	return NVML_SUCCESS;
}

static nvmlReturn_t get_driver(const struct smi_gpu *gpu, char *out, size_t len)
{
	(void)gpu;
	return smi_nvml()->driver(out, (unsigned int)len);
}

static nvmlReturn_t get_count(const struct smi_gpu *gpu, char *out, size_t len)
{
	unsigned int count = 0;
	nvmlReturn_t status = smi_nvml()->count(&count);

	(void)gpu;
	snprintf(out, len, "%u", count);
	return status;
}

static nvmlReturn_t get_name(const struct smi_gpu *gpu, char *out, size_t len)
{
	return smi_nvml()->name(gpu->dev, out, (unsigned int)len);
}

static nvmlReturn_t get_uuid(const struct smi_gpu *gpu, char *out, size_t len)
{
	return smi_nvml()->uuid(gpu->dev, out, (unsigned int)len);
}

static nvmlReturn_t get_serial(const struct smi_gpu *gpu, char *out, size_t len)
{
	return smi_nvml()->serial(gpu->dev, out, (unsigned int)len);
}

static nvmlReturn_t get_index(const struct smi_gpu *gpu, char *out, size_t len)
{
	return number(smi_nvml()->index, gpu, "%u", out, len);
}

static nvmlReturn_t get_bus_id(const struct smi_gpu *gpu, char *out, size_t len)
{
	struct nvml_pci pci;
	nvmlReturn_t status = smi_nvml()->pci(gpu->dev, &pci);

	if (status == NVML_SUCCESS)
		snprintf(out, len, "%s", pci.bus_id);
	return status;
}

static nvmlReturn_t memory(const struct smi_gpu *gpu, struct nvml_memory_v2 *mem)
{
	struct nvml_memory old;
	nvmlReturn_t status;

	*mem = (struct nvml_memory_v2){ .version = NVML_MEMORY_V2 };
	status = smi_nvml()->memory_v2(gpu->dev, mem);
	if (status != NVML_ERROR_NOT_SUPPORTED)
		return status;
	status = smi_nvml()->memory(gpu->dev, &old);
	*mem = (struct nvml_memory_v2){ 0, old.total, 0, old.free, old.used };
	return status;
}

#define MEMORY_FIELD(field)							\
static nvmlReturn_t get_memory_##field(const struct smi_gpu *gpu, char *out, size_t len) \
{										\
	struct nvml_memory_v2 mem;						\
	nvmlReturn_t status = memory(gpu, &mem);				\
										\
	snprintf(out, len, "%llu", mem.field / MIB);				\
	return status;								\
}
MEMORY_FIELD(total)
MEMORY_FIELD(reserved)
MEMORY_FIELD(used)
MEMORY_FIELD(free)

static nvmlReturn_t get_util_gpu(const struct smi_gpu *gpu, char *out, size_t len)
{
	struct nvml_utilization util = { 0, 0 };
	nvmlReturn_t status = smi_nvml()->utilization(gpu->dev, &util);

	snprintf(out, len, "%u", util.gpu);
	return status;
}

static nvmlReturn_t get_util_memory(const struct smi_gpu *gpu, char *out, size_t len)
{
	struct nvml_utilization util = { 0, 0 };
	nvmlReturn_t status = smi_nvml()->utilization(gpu->dev, &util);

	snprintf(out, len, "%u", util.memory);
	return status;
}

static nvmlReturn_t get_temperature(const struct smi_gpu *gpu, char *out, size_t len)
{
	unsigned int celsius = 0;
	nvmlReturn_t status = smi_nvml()->temperature(gpu->dev, 0, &celsius);

	snprintf(out, len, "%d", (int)celsius);
	return status;
}

static nvmlReturn_t watts(uint_call call, const struct smi_gpu *gpu, char *out, size_t len)
{
	unsigned int mw = 0;
	nvmlReturn_t status = call(gpu->dev, &mw);

	snprintf(out, len, "%u.%02u", mw / 1000, mw % 1000 / 10);
	return status;
}

static nvmlReturn_t get_power(const struct smi_gpu *gpu, char *out, size_t len)
{
	return watts(smi_nvml()->power, gpu, out, len);
}

static nvmlReturn_t get_power_limit(const struct smi_gpu *gpu, char *out, size_t len)
{
	return watts(smi_nvml()->power_limit, gpu, out, len);
}

static nvmlReturn_t get_fan(const struct smi_gpu *gpu, char *out, size_t len)
{
	return number(smi_nvml()->fan, gpu, "%u", out, len);
}

static nvmlReturn_t get_pstate(const struct smi_gpu *gpu, char *out, size_t len)
{
	return number(smi_nvml()->pstate, gpu, "P%u", out, len);
}

static nvmlReturn_t on_off(uint_call call, const struct smi_gpu *gpu, char *out, size_t len)
{
	unsigned int on = 0;
	nvmlReturn_t status = call(gpu->dev, &on);

	snprintf(out, len, "%s", on ? "Enabled" : "Disabled");
	return status;
}

static nvmlReturn_t get_persistence(const struct smi_gpu *gpu, char *out, size_t len)
{
	return on_off(smi_nvml()->persistence, gpu, out, len);
}

static nvmlReturn_t get_display(const struct smi_gpu *gpu, char *out, size_t len)
{
	return on_off(smi_nvml()->display_active, gpu, out, len);
}

static nvmlReturn_t get_compute_mode(const struct smi_gpu *gpu, char *out, size_t len)
{
	static const char *const modes[] = { "Default", "Exclusive_Thread", "Prohibited",
					     "Exclusive_Process" };
	unsigned int mode = 0;
	nvmlReturn_t status = smi_nvml()->compute_mode(gpu->dev, &mode);

	snprintf(out, len, "%s", mode < 4 ? modes[mode] : "Unknown");
	return status;
}

static nvmlReturn_t get_capability(const struct smi_gpu *gpu, char *out, size_t len)
{
	int major = 0, minor = 0;
	nvmlReturn_t status = smi_nvml()->capability(gpu->dev, &major, &minor);

	snprintf(out, len, "%d.%d", major, minor);
	return status;
}

static nvmlReturn_t get_mig(const struct smi_gpu *gpu, char *out, size_t len)
{
	unsigned int now = 0, next = 0;
	nvmlReturn_t status = smi_nvml()->mig_mode(gpu->dev, &now, &next);

	snprintf(out, len, "%s", now ? "Enabled" : "Disabled");
	return status;
}

static nvmlReturn_t get_ecc(const struct smi_gpu *gpu, char *out, size_t len)
{
	unsigned int now = 0, next = 0;
	nvmlReturn_t status = smi_nvml()->ecc_mode(gpu->dev, &now, &next);

	snprintf(out, len, "%s", now ? "Enabled" : "Disabled");
	return status;
}

static const struct smi_field fields[] = {
	{ "timestamp", NULL, NULL, get_timestamp },
	{ "driver_version", NULL, NULL, get_driver },
	{ "count", NULL, NULL, get_count },
	{ "name", "gpu_name", NULL, get_name },
	{ "serial", "gpu_serial", NULL, get_serial },
	{ "uuid", "gpu_uuid", NULL, get_uuid },
	{ "pci.bus_id", "gpu_bus_id", NULL, get_bus_id },
	{ "index", NULL, NULL, get_index },
	{ "memory.total", NULL, "MiB", get_memory_total },
	{ "memory.reserved", NULL, "MiB", get_memory_reserved },
	{ "memory.used", NULL, "MiB", get_memory_used },
	{ "memory.free", NULL, "MiB", get_memory_free },
	{ "utilization.gpu", NULL, "%", get_util_gpu },
	{ "utilization.memory", NULL, "%", get_util_memory },
	{ "temperature.gpu", NULL, NULL, get_temperature },
	{ "power.draw", NULL, "W", get_power },
	{ "power.limit", "enforced.power.limit", "W", get_power_limit },
	{ "fan.speed", NULL, "%", get_fan },
	{ "pstate", NULL, NULL, get_pstate },
	{ "persistence_mode", NULL, NULL, get_persistence },
	{ "display_active", NULL, NULL, get_display },
	{ "compute_mode", NULL, NULL, get_compute_mode },
	{ "compute_cap", NULL, NULL, get_capability },
	{ "mig.mode.current", NULL, NULL, get_mig },
	{ "mig.mode.pending", NULL, NULL, get_mig },
	{ "ecc.mode.current", NULL, NULL, get_ecc },
};

const struct smi_field *smi_gpu_fields(size_t *n)
{
	*n = sizeof(fields) / sizeof(*fields);
	return fields;
}

const char *smi_missing(nvmlReturn_t status)
{
	switch (status) {
	case NVML_ERROR_NOT_SUPPORTED:
		return "[N/A]";
	case NVML_ERROR_NO_PERMISSION:
		return "[Insufficient Permissions]";
	case NVML_ERROR_GPU_IS_LOST:
		return "[GPU is lost]";
	default:
		return "[Unknown Error]";
	}
}
