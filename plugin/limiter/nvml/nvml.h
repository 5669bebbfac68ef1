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
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_LIBRARY_NOT_FOUND = 12,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_MEMORY = 20,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
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

/* In the mode of a list of details. */
enum { NVML_MODE_COMPUTE = 0 };

struct nvmlProcessDetail_v1 {
	unsigned int pid;
	unsigned long long bytes;
	unsigned int gpu_instance, compute_instance;
	unsigned long long protected_bytes;
};

struct nvmlProcessDetailList_v1 {
	unsigned int version, mode, count;
	struct nvmlProcessDetail_v1 *list;
};

struct nvmlProcessUtilization {
	unsigned int pid;
	unsigned long long time;
	unsigned int sm, memory, encoder, decoder;
};

struct nvmlProcessUtilizationInfo_v1 {
	unsigned long long time;
	unsigned int pid, sm, memory, encoder, decoder, jpeg, flow;
};

struct nvmlProcessesUtilizationInfo_v1 {
	unsigned int version, count;
	unsigned long long since;
	struct nvmlProcessUtilizationInfo_v1 *list;
};

struct nvmlEncoderSession {
	unsigned int session, pid, vgpu, codec, width, height, rate, latency;
};

struct nvmlFBCSession {
	unsigned int session, pid, vgpu, display, kind, flags, most_width, most_height, width, height, rate,
		latency;
};

/* A version names the size of its layout as well. */
#define NVML_VERSION_1(layout) (1u << 24 | (unsigned int)sizeof(layout))

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

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
						   struct nvmlProcessDetailList_v1 *out);
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, struct nvmlProcessUtilization *out,
					     unsigned int *count, unsigned long long since);
nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
						   struct nvmlProcessesUtilizationInfo_v1 *out);
nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *count,
					  struct nvmlEncoderSession *out);
nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *count,
				      struct nvmlFBCSession *out);
nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *out);
nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, void *out);
nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, void *out);

#endif
