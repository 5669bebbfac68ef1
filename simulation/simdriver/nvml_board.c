/* nvml_board.c - the board's gauges and modes, and what such a board does not have. */
#include "nvml_core.h"

#define POWER_IDLE_MW 20000U
#define POWER_LIMIT_MW 70000U
#define PSTATE_IDLE 8U
#define COMPUTE_EXCLUSIVE_PROCESS 3U
#define SENSOR_GPU 0U

static nvmlReturn_t value(const char *call, nvmlDevice_t dev, unsigned int *out, unsigned int is)
{
	nvmlReturn_t ret = nvml_enter_card(call, dev, out);

	if (ret == NVML_SUCCESS)
		*out = is;
	return ret;
}

static nvmlReturn_t absent(const char *call, nvmlDevice_t dev, const void *out)
{
	nvmlReturn_t ret = nvml_enter_dev(call, dev, out);

	return ret == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : ret;
}

SIM_API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t dev, struct nvml_utilization *out)
{
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, out);

	if (ret != NVML_SUCCESS)
		return ret;
	if (dev->card->mig_mode)
		return NVML_ERROR_NOT_SUPPORTED;
	out->gpu = sim_utilisation(dev->card->entry);
	if (out->gpu == 0)		/* nobody set it: what the card did */
		out->gpu = sim_busy_percent(dev->card->entry);
	out->memory = out->gpu / 2;
	return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t dev, unsigned int sensor,
					      unsigned int *out)
{
	nvmlReturn_t ret = nvml_enter_card(__func__, dev, out);

	if (ret != NVML_SUCCESS)
		return ret;
	if (sensor != SENSOR_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = (unsigned int)sim_temperature(dev->card->entry);
	return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t dev, struct nvml_temperature *out)
{
	nvmlReturn_t ret = nvml_enter_card(__func__, dev, out);

	if (ret != NVML_SUCCESS)
		return ret;
	if (out->version != NVML_TEMPERATURE_V1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (out->sensor != SENSOR_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	out->celsius = sim_temperature(dev->card->entry);
	return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t dev, unsigned int *out)
{
	return value(__func__, dev, out, POWER_IDLE_MW);
}

SIM_API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t dev, unsigned int *out)
{
	return value(__func__, dev, out, POWER_LIMIT_MW);
}

SIM_API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t dev, unsigned int *out)
{
	return value(__func__, dev, out, POWER_LIMIT_MW);
}

SIM_API nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t dev, unsigned int *out)
{
	return value(__func__, dev, out, 1);
}

SIM_API nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t dev, unsigned int *out)
{
	return value(__func__, dev, out, 0);
}

SIM_API nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t dev, unsigned int *out)
{
	return value(__func__, dev, out, 0);
}

SIM_API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t dev, unsigned int *out)
{
	nvmlReturn_t ret = value(__func__, dev, out, 0);

	if (ret == NVML_SUCCESS && dev->card->exclusive)
		*out = COMPUTE_EXCLUSIVE_PROCESS;
	return ret;
}

SIM_API nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t dev, unsigned int *out)
{
	return value(__func__, dev, out, PSTATE_IDLE);
}

SIM_API nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t dev, unsigned int *out)
{
	return value(__func__, dev, out, PSTATE_IDLE);
}

SIM_API nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t dev, unsigned int *out)
{
	return absent(__func__, dev, out);
}

SIM_API nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t dev, unsigned int fan, unsigned int *out)
{
	(void)fan;
	return absent(__func__, dev, out);
}

SIM_API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t dev, unsigned int *now, unsigned int *next)
{
	(void)next;
	return absent(__func__, dev, now);
}

SIM_API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t dev, unsigned int kind,
						 unsigned int counter, unsigned long long *out)
{
	(void)kind;
	(void)counter;
	return absent(__func__, dev, out);
}

SIM_API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t dev, char *out, unsigned int len)
{
	(void)len;
	return absent(__func__, dev, out);
}
