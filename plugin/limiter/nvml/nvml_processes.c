/* nvml_processes.c - the container's own processes, with pids as they are here.
 *
 * The driver is still asked first, for what it makes of the arguments. Processes of other containers
 * are not shown. Nor are those that draw: graphics is closed to most containers, and has no slots. */
#include "nvml_card.h"

/* `out` is of the first or the second layout. */
static nvmlReturn_t own(nvmlDevice_t device, unsigned int room, unsigned int *count, void *out,
			bool first)
{
	struct usage_process list[USAGE_SLOTS];
	struct card *card = nvml_card(device);
	unsigned int found = card != NULL ? usage_processes(card_index(card), list, USAGE_SLOTS) : 0;

	*count = found;
	if (found > room || (found > 0 && out == NULL))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < found; i++) {
		if (first)
			((struct nvmlProcess_v1 *)out)[i] = (struct nvmlProcess_v1){
				(unsigned int)list[i].pid, list[i].bytes };
		else
			((struct nvmlProcess_v2 *)out)[i] = (struct nvmlProcess_v2){
				(unsigned int)list[i].pid, list[i].bytes, NVML_NO_INSTANCE,
				NVML_NO_INSTANCE };
	}
	return NVML_SUCCESS;
}

/* NVIDIA allows no list where the count is 0, and there alone. */
#define NO_LIST (count != NULL && *count > 0 && out == NULL)

/* Ask the driver with no room of the program's: it must not write other processes there. */
#define OWN(name, first)                                                                          \
	unsigned int room = count != NULL ? *count : 0, none = 0;                                 \
	nvmlReturn_t ret = DRIVER(name)(device, count != NULL ? &none : NULL, NULL);              \
                                                                                                  \
	if (answered(ret) && NO_LIST)                                                             \
		return NVML_ERROR_INVALID_ARGUMENT;                                               \
	return answered(ret) ? own(device, room, count, out, first) : ret

#define NONE(name)                                                                                \
	unsigned int none = 0;                                                                    \
	nvmlReturn_t ret = DRIVER(name)(device, count != NULL ? &none : NULL, NULL);              \
                                                                                                  \
	if (!answered(ret))                                                                       \
		return ret;                                                                       \
	if (NO_LIST)                                                                              \
		return NVML_ERROR_INVALID_ARGUMENT;                                               \
	*count = 0;                                                                               \
	return NVML_SUCCESS

nvmlReturn_t EXPORT nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
							 struct nvmlProcess_v1 *out)
{
	OWN(nvmlDeviceGetComputeRunningProcesses, true);
}

nvmlReturn_t EXPORT nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device,
							    unsigned int *count,
							    struct nvmlProcess_v2 *out)
{
	OWN(nvmlDeviceGetComputeRunningProcesses_v2, false);
}

nvmlReturn_t EXPORT nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
							    unsigned int *count,
							    struct nvmlProcess_v2 *out)
{
	OWN(nvmlDeviceGetComputeRunningProcesses_v3, false);
}

nvmlReturn_t EXPORT nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
							  struct nvmlProcess_v1 *out)
{
	NONE(nvmlDeviceGetGraphicsRunningProcesses);
}

nvmlReturn_t EXPORT nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device,
							     unsigned int *count,
							     struct nvmlProcess_v2 *out)
{
	NONE(nvmlDeviceGetGraphicsRunningProcesses_v2);
}

nvmlReturn_t EXPORT nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device,
							     unsigned int *count,
							     struct nvmlProcess_v2 *out)
{
	NONE(nvmlDeviceGetGraphicsRunningProcesses_v3);
}

nvmlReturn_t EXPORT nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device,
							    unsigned int *count,
							    struct nvmlProcess_v1 *out)
{
	NONE(nvmlDeviceGetMPSComputeRunningProcesses);
}

nvmlReturn_t EXPORT nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device,
							       unsigned int *count,
							       struct nvmlProcess_v2 *out)
{
	NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2);
}

nvmlReturn_t EXPORT nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
							       unsigned int *count,
							       struct nvmlProcess_v2 *out)
{
	NONE(nvmlDeviceGetMPSComputeRunningProcesses_v3);
}

/* The same in a layout of its own: who computes, and neither who draws nor who computes by MPS. */
static nvmlReturn_t own_details(nvmlDevice_t device, struct nvmlProcessDetailList_v1 *out)
{
	struct usage_process list[USAGE_SLOTS];
	struct card *card = nvml_card(device);
	unsigned int room = out->count, found = 0;

	if (card != NULL && out->mode == NVML_MODE_COMPUTE)
		found = usage_processes(card_index(card), list, USAGE_SLOTS);
	out->count = found;
	if (found > room || (found > 0 && out->list == NULL))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < found; i++)
		out->list[i] = (struct nvmlProcessDetail_v1){ (unsigned int)list[i].pid, list[i].bytes,
							      NVML_NO_INSTANCE, NVML_NO_INSTANCE, 0 };
	return NVML_SUCCESS;
}

nvmlReturn_t EXPORT nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
							  struct nvmlProcessDetailList_v1 *out)
{
	struct nvmlProcessDetailList_v1 asked;
	nvmlReturn_t ret;

	if (out == NULL)
		return DRIVER(nvmlDeviceGetRunningProcessDetailList)(device, out);
	asked = *out;
	if (asked.version != NVML_VERSION_1(asked))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	asked.count = 0;
	asked.list = NULL;
	ret = DRIVER(nvmlDeviceGetRunningProcessDetailList)(device, &asked);
	return answered(ret) ? own_details(device, out) : ret;
}
