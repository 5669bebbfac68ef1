/* nvml.h - the part of NVIDIA's management library interface that is simulated here: numbers and
 * layouts as published, nothing else. */
#ifndef EDGEGPU_SIM_NVML_H
#define EDGEGPU_SIM_NVML_H

#include <stdint.h>

typedef struct nvml_dev *nvmlDevice_t;
typedef struct nvml_set *nvmlEventSet_t;
typedef int nvmlReturn_t;

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
	NVML_ERROR_MEMORY = 20,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_UNKNOWN = 999,
};

#define NVML_EVENT_XID 0x8ULL
#define NVML_NO_INSTANCE 0xFFFFFFFFU

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};
#define NVML_MEMORY_V2 (sizeof(struct nvml_memory_v2) | 2U << 24)

struct nvml_utilization {
	unsigned int gpu, memory;
};

struct nvml_pci {
	char bus_id_legacy[16];
	unsigned int domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};

struct nvml_process_v1 {
	unsigned int pid;
	unsigned long long used;
};

struct nvml_process {			/* _v2 and _v3 */
	unsigned int pid;
	unsigned long long used;
	unsigned int gi, ci;
};

struct nvml_process_sample {
	unsigned int pid;
	unsigned long long timestamp;	/* us */
	unsigned int sm, memory, encoder, decoder;	/* percent */
};

struct nvml_temperature {
	unsigned int version, sensor;
	int celsius;
};
#define NVML_TEMPERATURE_V1 (sizeof(struct nvml_temperature) | 1U << 24)

struct nvml_attributes {
	unsigned int multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
	unsigned int gi_slices, ci_slices;
	unsigned long long memory_mib;
};

struct nvml_event_v1 {
	nvmlDevice_t device;
	unsigned long long type, data;
};

struct nvml_event {
	nvmlDevice_t device;
	unsigned long long type, data;
	unsigned int gi, ci;
};

#endif
