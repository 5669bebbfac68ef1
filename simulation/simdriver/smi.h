/* smi.h - nvidia-smi asks NVML for everything, by dlopen, so that it works on a real driver too. */
#ifndef EDGEGPU_SIM_SMI_H
#define EDGEGPU_SIM_SMI_H

#include <stdbool.h>
#include <stddef.h>

#include "nvml.h"

#define SMI_GPUS_MAX 64

enum {					/* exit statuses of the real one */
	SMI_OK = 0,
	SMI_BAD_ARGUMENT = 2,
	SMI_NO_DEVICE = 6,
	SMI_NO_DRIVER = 9,
	SMI_NO_LIBRARY = 12,
	SMI_LOST = 15,
	SMI_OTHER = 255,
};

struct smi_nvml {			/* members that an old driver may lack answer NOT_SUPPORTED */
	nvmlReturn_t (*init)(void);
	const char *(*error)(nvmlReturn_t status);
	nvmlReturn_t (*driver)(char *out, unsigned int len);
	nvmlReturn_t (*version)(char *out, unsigned int len);
	nvmlReturn_t (*cuda)(int *out);
	nvmlReturn_t (*count)(unsigned int *out);
	nvmlReturn_t (*by_index)(unsigned int index, nvmlDevice_t *out);
	nvmlReturn_t (*by_uuid)(const char *uuid, nvmlDevice_t *out);
	nvmlReturn_t (*by_pci)(const char *bus_id, nvmlDevice_t *out);
	nvmlReturn_t (*index)(nvmlDevice_t dev, unsigned int *out);
	nvmlReturn_t (*name)(nvmlDevice_t dev, char *out, unsigned int len);
	nvmlReturn_t (*uuid)(nvmlDevice_t dev, char *out, unsigned int len);
	nvmlReturn_t (*serial)(nvmlDevice_t dev, char *out, unsigned int len);
	nvmlReturn_t (*pci)(nvmlDevice_t dev, struct nvml_pci *out);
	nvmlReturn_t (*memory)(nvmlDevice_t dev, struct nvml_memory *out);
	nvmlReturn_t (*memory_v2)(nvmlDevice_t dev, struct nvml_memory_v2 *out);
	nvmlReturn_t (*utilization)(nvmlDevice_t dev, struct nvml_utilization *out);
	nvmlReturn_t (*temperature)(nvmlDevice_t dev, unsigned int sensor, unsigned int *out);
	nvmlReturn_t (*power)(nvmlDevice_t dev, unsigned int *out);
	nvmlReturn_t (*power_limit)(nvmlDevice_t dev, unsigned int *out);
	nvmlReturn_t (*fan)(nvmlDevice_t dev, unsigned int *out);
	nvmlReturn_t (*pstate)(nvmlDevice_t dev, unsigned int *out);
	nvmlReturn_t (*persistence)(nvmlDevice_t dev, unsigned int *out);
	nvmlReturn_t (*display_active)(nvmlDevice_t dev, unsigned int *out);
	nvmlReturn_t (*compute_mode)(nvmlDevice_t dev, unsigned int *out);
	nvmlReturn_t (*ecc_mode)(nvmlDevice_t dev, unsigned int *now, unsigned int *next);
	nvmlReturn_t (*capability)(nvmlDevice_t dev, int *major, int *minor);
	nvmlReturn_t (*mig_mode)(nvmlDevice_t dev, unsigned int *now, unsigned int *next);
	nvmlReturn_t (*mig_max)(nvmlDevice_t dev, unsigned int *out);
	nvmlReturn_t (*mig_at)(nvmlDevice_t dev, unsigned int index, nvmlDevice_t *out);
	nvmlReturn_t (*gi)(nvmlDevice_t dev, unsigned int *out);
	nvmlReturn_t (*ci)(nvmlDevice_t dev, unsigned int *out);
	nvmlReturn_t (*processes)(nvmlDevice_t dev, unsigned int *count, struct nvml_process *out);
	nvmlReturn_t (*process_name)(unsigned int pid, char *out, unsigned int len);
};

struct smi_gpu {
	nvmlDevice_t dev;
	unsigned int index;
};

struct smi_gpus {
	unsigned int n;
	struct smi_gpu at[SMI_GPUS_MAX];
};

struct smi_csv {
	bool noheader, nounits;
};

/* smi_nvml.c */
const struct smi_nvml *smi_nvml(void);
int smi_start(void);
int smi_fail(nvmlReturn_t status);	/* prints what init failed with; the exit status */
int smi_gpus(const char *id, struct smi_gpus *out);	/* id NULL: all */

/* smi_list.c, smi_table.c */
int smi_list(const struct smi_gpus *gpus);
int smi_version(void);
int smi_table(const struct smi_gpus *gpus);
bool smi_mig_on(nvmlDevice_t dev);
bool smi_profile(nvmlDevice_t mig, char *out, size_t len);

/* smi_gauge.c: one value of one card as text, less its unit; the status of what was asked. */
struct smi_field {
	const char *name, *alias, *unit;
	nvmlReturn_t (*get)(const struct smi_gpu *gpu, char *out, size_t len);
};
const struct smi_field *smi_gpu_fields(size_t *n);
const char *smi_missing(nvmlReturn_t status);

/* smi_query.c, smi_apps.c */
int smi_query_gpu(const struct smi_gpus *gpus, char *fields, struct smi_csv csv);
int smi_query_apps(const struct smi_gpus *gpus, char *fields, struct smi_csv csv);
unsigned int smi_processes(nvmlDevice_t dev, struct nvml_process *out, unsigned int max);
void smi_process_name(unsigned int pid, char *out, unsigned int len);
int smi_bad_field(const char *name);

#endif
