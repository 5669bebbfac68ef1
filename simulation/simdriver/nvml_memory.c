/* nvml_memory.c - memory of a card or instance, and the processes that hold it. */
#include "nvml_core.h"

#define USERS_MAX 512

uint64_t nvml_used(nvmlDevice_t dev)
{
	uint64_t used = sim_used(nvml_entry(dev));

	for (unsigned int i = 0; dev->mig == NULL && i < dev->card->nmig; i++)
		used += sim_used(dev->card->mig[i].entry);
	return used;
}

static struct nvml_memory_v2 measure(nvmlDevice_t dev)
{
	struct nvml_memory_v2 mem = { .version = NVML_MEMORY_V2 };

	mem.total = (dev->mig != NULL ? dev->mig->mib : dev->card->mib) * SIM_MIB;
	mem.reserved = dev->mig != NULL ? 0 : nvml_driver()->reserved_mib * SIM_MIB;
	sim_lock();
	mem.used = nvml_used(dev);
	sim_unlock();
	mem.free = mem.total - mem.reserved - mem.used;
	return mem;
}

SIM_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t dev, struct nvml_memory *out)
{
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, out);
	struct nvml_memory_v2 mem;

	if (ret != NVML_SUCCESS)
		return ret;
	mem = measure(dev);
	*out = (struct nvml_memory){ mem.total, mem.free, mem.used + mem.reserved };
	return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t dev, struct nvml_memory_v2 *out)
{
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, out);

	if (ret != NVML_SUCCESS)
		return ret;
	if (out->version != NVML_MEMORY_V2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	*out = measure(dev);
	return NVML_SUCCESS;
}

/* Those that draw, or those that compute: one that draws alone has no context. */
static unsigned int add_users(struct nvml_process *list, unsigned int have, int entry,
			      const struct sim_mig *mig, bool draws)
{
	struct sim_use uses[USERS_MAX];
	unsigned int n;

	n = sim_users(entry, uses, USERS_MAX);
	for (unsigned int i = 0; i < n && i < USERS_MAX && have < USERS_MAX; i++) {
		if (draws ? !uses[i].draws : uses[i].draws && uses[i].contexts == 0)
			continue;
		list[have++] = (struct nvml_process){ uses[i].pid, uses[i].bytes,
			mig != NULL ? mig->gi : NVML_NO_INSTANCE,
			mig != NULL ? mig->ci : NVML_NO_INSTANCE };
	}
	return have;
}

/* A card in MIG mode lists the processes of its instances, each with its instance ids. */
static unsigned int users_of(nvmlDevice_t dev, struct nvml_process *list, bool draws)
{
	unsigned int n;

	sim_lock();
	n = add_users(list, 0, nvml_entry(dev), dev->mig, draws);
	for (unsigned int i = 0; dev->mig == NULL && i < dev->card->nmig; i++)
		n = add_users(list, n, dev->card->mig[i].entry, &dev->card->mig[i], draws);
	sim_unlock();
	return n;
}

static nvmlReturn_t processes(const char *call, nvmlDevice_t dev, unsigned int *count, void *out,
			      bool v1, bool draws)
{
	nvmlReturn_t ret = nvml_enter_dev(call, dev, count);
	struct nvml_process list[USERS_MAX];
	unsigned int n, room;

	if (ret != NVML_SUCCESS)
		return ret;
	n = users_of(dev, list, draws);
	room = out == NULL ? 0 : *count;
	*count = n;
	if (n > room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < n; i++) {
		if (v1)
			((struct nvml_process_v1 *)out)[i] =
				(struct nvml_process_v1){ list[i].pid, list[i].used };
		else
			((struct nvml_process *)out)[i] = list[i];
	}
	return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t dev, unsigned int *count,
							  struct nvml_process_v1 *out)
{
	return processes(__func__, dev, count, out, true, false);
}

SIM_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t dev, unsigned int *count,
							     struct nvml_process *out)
{
	return processes(__func__, dev, count, out, false, false);
}

SIM_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t dev, unsigned int *count,
							     struct nvml_process *out)
{
	return processes(__func__, dev, count, out, false, false);
}

SIM_API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t dev, unsigned int *count,
							   struct nvml_process_v1 *out)
{
	return processes(__func__, dev, count, out, true, true);
}

SIM_API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t dev,
							      unsigned int *count,
							      struct nvml_process *out)
{
	return processes(__func__, dev, count, out, false, true);
}

SIM_API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t dev,
							      unsigned int *count,
							      struct nvml_process *out)
{
	return processes(__func__, dev, count, out, false, true);
}

SIM_API nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t dev,
								unsigned int *count, void *out)
{
	nvmlReturn_t ret = nvml_enter_dev(__func__, dev, count);

	(void)out;
	if (ret == NVML_SUCCESS)
		*count = 0;
	return ret;
}
