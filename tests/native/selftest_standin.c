/* selftest_standin.c - a library in the limiter's place that does what none should: it lets all pass (as built),
 * crashes, hangs, fails, grants nothing, refuses by a strange number, or loads no module or launches no kernel.
 *
 * It has the marks of plugin/limiter/common/settings.c, and opens the driver where they say. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct setting {
	char mark[32], value[256];
};

static volatile struct setting folder = { "edgegpu-limiter-folder:", "/run/edgegpu/container" };
static volatile struct setting driver = { "edgegpu-limiter-driver:", "/run/edgegpu/container/driver" };

static void *real(const char *name)
{
	char path[300];

	if (folder.value[0] == '\0')
		abort();
	snprintf(path, sizeof(path), "%s/libcuda.so.1", (const char *)driver.value);
	return dlsym(dlopen(path, RTLD_NOW | RTLD_LOCAL), name);
}

static long pass(const char *name, long a, long b, long c, long d)
{
	return ((long (*)(long, long, long, long))real(name))(a, b, c, d);
}

#define PASS(name)                                                                                \
	long name(long a, long b, long c, long d)                                                 \
	{                                                                                         \
		return pass(#name, a, b, c, d);                                                   \
	}

#define PASS_OF_5(name)                                                                           \
	long name(long a, long b, long c, long d, long e)                                         \
	{                                                                                         \
		return ((long (*)(long, long, long, long, long))real(#name))(a, b, c, d, e);      \
	}

PASS(cuDriverGetVersion)
PASS(cuDeviceGet)
PASS(cuDevicePrimaryCtxRetain)
PASS(cuDevicePrimaryCtxRelease_v2)
PASS(cuCtxSetCurrent)
PASS(cuMemFree_v2)
PASS(cuMemAllocAsync)
PASS(cuMemFreeAsync)
PASS(cuStreamSynchronize)
PASS(cuDeviceGetDefaultMemPool)
PASS(cuMemPoolTrimTo)
PASS(cuMemCreate)
PASS(cuMemRelease)
PASS(cuMemGetAllocationGranularity)
PASS(cuGraphCreate)
PASS_OF_5(cuGraphAddMemAllocNode)
PASS(cuGraphInstantiateWithFlags)
PASS(cuGraphLaunch)
PASS(cuGraphExecDestroy)
PASS(cuGraphDestroy)
PASS(cuDeviceGraphMemTrim)
PASS(cuModuleGetFunction)
PASS(cuModuleUnload)
PASS(cuGetProcAddress)
PASS_OF_5(cuGetProcAddress_v2)

long cuModuleLoadData(long out, long image)
{
#ifdef LOADS_NO_MODULE
	return 999;
#endif
	return pass("cuModuleLoadData", out, image, 0, 0);
}

long cuLaunchKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
		    unsigned int bz, unsigned int shared, void *stream, void **params, void **extra)
{
	__typeof__(&cuLaunchKernel) launch = (__typeof__(&cuLaunchKernel))real("cuLaunchKernel");

#ifdef LAUNCHES_NOTHING
	return 999;
#endif
#ifdef CRASHES_AT_LAUNCH
	abort();
#endif
	return launch(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

long cuInit(long flags)
{
#ifdef CRASHES
	abort();
#endif
#ifdef HANGS
	for (;;)
		pause();
#endif
#ifdef FAILS
	return 999;
#endif
	return pass("cuInit", flags, 0, 0, 0);
}

/* As of a card of 64 MiB, so that this alone is no sign. */
long cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	long ret = pass("cuMemGetInfo_v2", (long)free_bytes, (long)total, 0, 0);

	*free_bytes = *total = 64 << 20;
	return ret;
}

static int granted;

long cuMemAllocManaged(long out, long bytes, long flags, long d)
{
	(void)d;
	return pass("cuMemAllocManaged", out, bytes, flags, 0);
}

long cuMemAlloc_v2(long out, long bytes, long c, long d)
{
	(void)c;
	(void)d;
#ifdef GRANTS_NOTHING
	return 2;
#endif
#ifdef STRANGE_NUMBER
	if (++granted % 4 == 0)
		return 999;
#endif
	(void)granted;
	return pass("cuMemAlloc_v2", out, bytes, 0, 0);
}
