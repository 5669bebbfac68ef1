/* cuda_init.c - cuInit, and the checks that each call begins with. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <unistd.h>
#include <stdio.h>

#include "cuda_core.h"

#define LOOK_NS 1000000ULL		/* whether a process that was locked runs again */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sim_driver driver;
static struct cu_dev devs[SIM_CARDS_MAX];
static int ndevs;
static pid_t ready;			/* who called cuInit: a forked child did not */

const struct sim_driver *cu_driver(void)
{
	return &driver;
}

void cu_lock(void)
{
	pthread_mutex_lock(&mutex);
}

void cu_unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

static bool uvm_there(void)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/dev/nvidia-uvm", driver.root);
	return access(path, R_OK) == 0;
}

static CUresult start(void)
{
	int ret = sim_driver_open(&driver, (const void *)&cu_driver);

	if (ret == -ENODEV)
		return CUDA_ERROR_NO_DEVICE;
	if (ret == -EACCES || ret == -EPERM)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (ret < 0 || !uvm_there())
		return CUDA_ERROR_UNKNOWN;
	ndevs = cu_visible(&driver, devs, SIM_CARDS_MAX);
	if (ndevs == 0)
		return CUDA_ERROR_NO_DEVICE;
	sim_sleep_until(sim_now_ns() + driver.init_ms * 1000000);
	cu_mps_connect();
	ready = getpid();
	return CUDA_SUCCESS;
}

SIM_API CUresult cuInit(unsigned int flags)
{
	CUresult ret = CUDA_SUCCESS;

	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	if (ready != 0 && ready != getpid())
		ret = CUDA_ERROR_NOT_INITIALIZED;
	else if (ready == 0)
		ret = start();
	cu_unlock();
	return ret != CUDA_SUCCESS ? ret : sim_fault(__func__);
}

int cu_version(void)
{
	static bool known;
	int version;

	cu_lock();
	if (ready == 0 && !known) {	/* answers before cuInit too */
		sim_root((const void *)&cu_driver, driver.root, sizeof(driver.root));
		known = sim_cards_load(&driver) == 0;
		if (!known)
			driver.cuda = 0;
	}
	version = driver.cuda;
	cu_unlock();
	return version;
}

SIM_API CUresult cuDriverGetVersion(int *out)
{
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = cu_version();
	return CUDA_SUCCESS;
}

CUresult cu_enter_locked(const char *call)
{
	if (ready != getpid())
		return CUDA_ERROR_NOT_INITIALIZED;
	return sim_fault(call);
}

CUresult cu_enter(const char *call)
{
	CUresult ret = cu_enter_locked(call);

	while (sim_process_own() != SIM_RUNNING)
		sim_sleep_until(sim_now_ns() + LOOK_NS);
	return ret;
}

CUresult cu_not_simulated(const char *call)
{
	CUresult ret = cu_enter(call);

	return ret != CUDA_SUCCESS ? ret : CUDA_ERROR_NOT_SUPPORTED;
}

struct cu_dev *cu_dev_at(int index)
{
	return index >= 0 && index < ndevs ? &devs[index] : NULL;
}

int cu_dev_index(const struct cu_dev *dev)
{
	return (int)(dev - devs);
}

CUresult cu_enter_dev(const char *call, CUdevice index, struct cu_dev **dev)
{
	CUresult ret = cu_enter(call);

	if (ret != CUDA_SUCCESS)
		return ret;
	*dev = cu_dev_at(index);
	return *dev != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

SIM_API CUresult cuDeviceGetCount(int *out)
{
	CUresult ret = cu_enter(__func__);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = ndevs;
	return CUDA_SUCCESS;
}
