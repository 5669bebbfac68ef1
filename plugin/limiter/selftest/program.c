/* program.c - a process that uses the card which CUDA_VISIBLE_DEVICES names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hooks.h"
#include "nvml.h"
#include "selftest.h"

CUresult cuInit(unsigned int flags);
CUresult cuDeviceGet(CUdevice *out, int ordinal);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuDriverGetVersion(int *out);
nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out);

#define PROCESSES_MAX 256
#define NO_FIGURE (~0ull)

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void *load(const char *path, struct run *run)
{
	void *loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const char *why = loaded == NULL ? dlerror() : NULL;

	if (why != NULL)
		strncpy(run->error, why, sizeof(run->error) - 1);
	return loaded;
}

struct card_seen {			/* by NVML */
	void *nvml;
	nvmlDevice_t device;
	struct nvmlMemory memory;
};

#define NV(name) ((__typeof__(&name))dlsym(seen->nvml, #name))

static bool look(struct card_seen *seen, const char *library, const char *card)
{
	memset(seen, 0, sizeof(*seen));
	seen->nvml = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	return seen->nvml != NULL && NV(nvmlInit_v2) != NULL && NV(nvmlDeviceGetMemoryInfo) != NULL &&
	       NV(nvmlDeviceGetHandleByUUID) != NULL && NV(nvmlInit_v2)() == NVML_SUCCESS &&
	       NV(nvmlDeviceGetHandleByUUID)(card, &seen->device) == NVML_SUCCESS &&
	       NV(nvmlDeviceGetMemoryInfo)(seen->device, &seen->memory) == NVML_SUCCESS;
}

static int64_t listed_bytes(const struct card_seen *seen)
{
	__typeof__(&nvmlDeviceGetComputeRunningProcesses_v3) list = NV(nvmlDeviceGetComputeRunningProcesses_v3);
	static struct nvmlProcess_v2 all[PROCESSES_MAX];
	unsigned int count = PROCESSES_MAX;

	if (list == NULL)
		list = NV(nvmlDeviceGetComputeRunningProcesses_v2);
	if (list == NULL || list(seen->device, &count, all) != NVML_SUCCESS)
		return -1;
	for (unsigned int i = 0; i < count && i < PROCESSES_MAX; i++)
		if (all[i].pid == (unsigned int)getpid() && all[i].bytes != NO_FIGURE)
			return (int64_t)all[i].bytes;
	return -1;
}

/* What this process takes of the card; where NVML does not list it, what the card has less. */
static int64_t context_bytes(const struct card_seen *before)
{
	const struct card_seen *seen = before;
	int64_t listed = listed_bytes(before);
	struct nvmlMemory now;

	if (listed >= 0)
		return listed;
	if (NV(nvmlDeviceGetMemoryInfo)(seen->device, &now) != NVML_SUCCESS || now.used < before->memory.used)
		return -1;
	return (int64_t)(now.used - before->memory.used);
}

#define CU(name) ((__typeof__(&name))dlsym(cuda, #name))

/* True: went well; else the run ends at this step. */
static bool step(struct run *run, enum step next, CUresult code)
{
	if (code != CUDA_SUCCESS) {
		run->code = code;
		return false;
	}
	run_reach(run, next);
	return true;
}

/* As a runtime does: before the first call. */
static void look_up_names(void *cuda, struct run *run)
{
	run_reach(run, STEP_NAMES);
	if (CU(cuDriverGetVersion) == NULL || CU(cuDriverGetVersion)(&run->cuda_version) != CUDA_SUCCESS)
		run->cuda_version = 0;
	names_look_up(cuda, run->cuda_version != 0 ? run->cuda_version : LISTED_CUDA, &run->names);
}

static bool start(void *cuda, struct run *run)
{
	uint64_t began = now_us();
	CUcontext context;
	CUdevice device;

	if (!step(run, STEP_DEVICE, CU(cuInit)(0)) || !step(run, STEP_CONTEXT, CU(cuDeviceGet)(&device, 0)) ||
	    !step(run, STEP_CONTEXT, CU(cuDevicePrimaryCtxRetain)(&context, device)) ||
	    !step(run, STEP_INFO, CU(cuCtxSetCurrent)(context)))
		return false;
	run->init_us = now_us() - began;
	return true;
}

void program_first(const struct libraries *libraries, struct run *run, int go, bool needs_room)
{
	void *cuda = load(libraries->cuda, run);
	size_t free_bytes = 0, total = 0;
	struct card_seen seen;
	bool is_seen;
	char byte;

	run->context_bytes = run->nvml_total_bytes = -1;
	if (cuda == NULL)
		_exit(1);
	is_seen = look(&seen, libraries->nvml, getenv("CUDA_VISIBLE_DEVICES"));
	run->nvml_total_bytes = is_seen ? (int64_t)seen.memory.total : -1;
	run->no_room = is_seen && needs_room && seen.memory.free < ROOM;
	if (run->no_room)
		_exit(1);
	look_up_names(cuda, run);
	step(run, STEP_INIT, CUDA_SUCCESS);
	if (!start(cuda, run))
		_exit(1);
	run->context_bytes = is_seen ? context_bytes(&seen) : -1;
	run->listed = is_seen && listed_bytes(&seen) >= 0;
	if (!step(run, STEP_WAYS, CU(cuMemGetInfo_v2)(&free_bytes, &total)))
		_exit(1);
	run->free_bytes = free_bytes;
	run->total_bytes = total;
	for (run->way = 0; run->way < WAYS; run->way++)
		memory_take(cuda, (enum way)run->way, false, &run->ways[run->way]);
	kernel_run(cuda, run);
	memory_take(cuda, WAY_PLAIN, true, &run->hold);
	step(run, STEP_HOLD, CUDA_SUCCESS);
	if (read(go, &byte, 1) < 0)
		_exit(1);
	step(run, STEP_DONE, CU(cuDevicePrimaryCtxRelease_v2)(0));
	_exit(run->step == STEP_DONE ? 0 : 1);
}

void program_second(const struct libraries *libraries, struct run *run)
{
	void *cuda = load(libraries->cuda, run);

	run->context_bytes = run->nvml_total_bytes = -1;
	if (cuda == NULL)
		_exit(1);
	step(run, STEP_INIT, CUDA_SUCCESS);
	if (!start(cuda, run))
		_exit(1);
	memory_take(cuda, WAY_PLAIN, false, &run->ways[WAY_PLAIN]);
	step(run, STEP_DONE, CU(cuDevicePrimaryCtxRelease_v2)(0));
	_exit(run->step == STEP_DONE ? 0 : 1);
}
