/* smi_apps.c - nvidia-smi --query-compute-apps=... --format=csv. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "smi.h"

#define FIELDS_MAX 16
#define PROCESSES_MAX 512
#define MIB (1024ULL * 1024ULL)

enum app_field { APP_GPU, APP_PID, APP_NAME, APP_MEMORY };

static const struct {
	const char *name, *alias;
	enum app_field what;
	const char *gpu_field;		/* the field of --query-gpu that gives it */
} fields[] = {
	{ "timestamp", NULL, APP_GPU, "timestamp" },
	{ "gpu_name", NULL, APP_GPU, "name" },
	{ "gpu_bus_id", NULL, APP_GPU, "pci.bus_id" },
	{ "gpu_serial", NULL, APP_GPU, "serial" },
	{ "gpu_uuid", NULL, APP_GPU, "uuid" },
	{ "pid", NULL, APP_PID, NULL },
	{ "process_name", "name", APP_NAME, NULL },
	{ "used_gpu_memory", "used_memory", APP_MEMORY, NULL },
};

unsigned int smi_processes(nvmlDevice_t dev, struct nvml_process *out, unsigned int max)
{
	unsigned int n = max;

	return smi_nvml()->processes(dev, &n, out) == NVML_SUCCESS ? n : 0;
}

void smi_process_name(unsigned int pid, char *out, unsigned int len)
{
	if (smi_nvml()->process_name(pid, out, len) != NVML_SUCCESS)
		snprintf(out, len, "[Not Found]");
}

static int find(const char *name)
{
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		if (strcmp(fields[i].name, name) == 0 ||
		    (fields[i].alias != NULL && strcmp(fields[i].alias, name) == 0))
			return (int)i;
	return -1;
}

static void of_gpu(const struct smi_gpu *gpu, const char *name)
{
	size_t n;
	const struct smi_field *all = smi_gpu_fields(&n);

	for (size_t i = 0; i < n; i++) {
		char value[256] = "";
		nvmlReturn_t status;

		if (strcmp(all[i].name, name) != 0)
			continue;
		status = all[i].get(gpu, value, sizeof(value));
		fputs(status == NVML_SUCCESS ? value : smi_missing(status), stdout);
	}
}

static void print_value(const struct smi_gpu *gpu, const struct nvml_process *process, int field,
			bool units)
{
	char name[256];

	switch (fields[field].what) {
	case APP_GPU:
		of_gpu(gpu, fields[field].gpu_field);
		break;
	case APP_PID:
		printf("%u", process->pid);
		break;
	case APP_NAME:
		smi_process_name(process->pid, name, sizeof(name));
		fputs(name, stdout);
		break;
	case APP_MEMORY:
		if (process->used == ~0ULL)
			fputs("[N/A]", stdout);
		else
			printf("%llu%s", process->used / MIB, units ? " MiB" : "");
		break;
	}
}

int smi_query_apps(const struct smi_gpus *gpus, char *list, struct smi_csv csv)
{
	static struct nvml_process processes[PROCESSES_MAX];
	int picked[FIELDS_MAX], n = 0;
	char *word;

	while ((word = strsep(&list, ",")) != NULL && n < FIELDS_MAX) {
		word += strspn(word, " ");
		picked[n] = find(word);
		if (picked[n++] < 0)
			return smi_bad_field(word);
	}
	for (int f = 0; f < n && !csv.noheader; f++)
		printf("%s%s%s", fields[picked[f]].name,
		       fields[picked[f]].what == APP_MEMORY ? " [MiB]" : "",
		       f + 1 < n ? ", " : "\n");
	for (unsigned int i = 0; i < gpus->n; i++) {
		unsigned int found = smi_processes(gpus->at[i].dev, processes, PROCESSES_MAX);

		for (unsigned int p = 0; p < found; p++)
			for (int f = 0; f < n; f++) {
				print_value(&gpus->at[i], &processes[p], picked[f], !csv.nounits);
				fputs(f + 1 < n ? ", " : "\n", stdout);
			}
	}
	return SMI_OK;
}
