/* nvml.h - the part of NVIDIA's management library that the limiter stands in: numbers and layouts as
 * published, nothing else. */
#ifndef EDGEGPU_LIMITER_NVML_H
#define EDGEGPU_LIMITER_NVML_H

#include "driver.h"

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef int nvmlReturn_t;

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_LIBRARY_NOT_FOUND = 12,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
};

#define NVML_NO_INSTANCE 0xffffffffu

struct nvmlMemory {
	unsigned long long total, free, used;
};

struct nvmlMemory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};

struct nvmlProcess_v1 {
	unsigned int pid;
	unsigned long long bytes;
};

struct nvmlProcess_v2 {
	unsigned int pid;
	unsigned long long bytes;
	unsigned int gpu_instance, compute_instance;
};

/* Called, not hooked. */
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned int size);

const char *nvmlErrorString(nvmlReturn_t code);
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct nvmlMemory *out);
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct nvmlMemory_v2 *out);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
						  struct nvmlProcess_v1 *out);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
						     struct nvmlProcess_v2 *out);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
						     struct nvmlProcess_v2 *out);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
						   struct nvmlProcess_v1 *out);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
						      struct nvmlProcess_v2 *out);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
						      struct nvmlProcess_v2 *out);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
						     struct nvmlProcess_v1 *out);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
							struct nvmlProcess_v2 *out);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
							struct nvmlProcess_v2 *out);

#endif
