/* cuda_launch.c - every function by which a program has the card compute, graphs apart (cuda_graph.c).
 *
 * Copies and fills are not among them: engines of their own do the former, and the time of an engine is
 * not that of the multiprocessors, of which a container has its share (README.md, "What escapes today"). */
#include "gpu_time.h"
#include "local.h"

#define MULTI_MAX 16			/* cards of one cooperative launch */

CUresult EXPORT cuLaunchKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
			       unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			       CUstream stream, void **params, void **extra)
{
	LOCAL(function, stream);
	MEASURED(cuLaunchKernel, stream, false, function, gx, gy, gz, bx, by, bz, shared, stream, params,
		 extra);
}

CUresult EXPORT cuLaunchKernel_ptsz(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
				    unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
				    CUstream stream, void **params, void **extra)
{
	LOCAL(function, stream);
	MEASURED(cuLaunchKernel_ptsz, stream, true, function, gx, gy, gz, bx, by, bz, shared, stream,
		 params, extra);
}

/* Without a configuration the driver says what is wrong; nothing runs. The driver gets a copy: what it reads is what
 * was measured, whatever the program writes there meanwhile. */
CUresult EXPORT cuLaunchKernelEx(const struct CUlaunch_config *config, void *function, void **params,
				 void **extra)
{
	struct CUlaunch_config own;

	if (config == NULL)
		return DRIVER(cuLaunchKernelEx)(config, function, params, extra);
	own = *(const volatile struct CUlaunch_config *)config;
	LOCAL(function, own.stream);
	MEASURED(cuLaunchKernelEx, own.stream, false, &own, function, params, extra);
}

CUresult EXPORT cuLaunchKernelEx_ptsz(const struct CUlaunch_config *config, void *function, void **params,
				      void **extra)
{
	struct CUlaunch_config own;

	if (config == NULL)
		return DRIVER(cuLaunchKernelEx_ptsz)(config, function, params, extra);
	own = *(const volatile struct CUlaunch_config *)config;
	LOCAL(function, own.stream);
	MEASURED(cuLaunchKernelEx_ptsz, own.stream, true, &own, function, params, extra);
}

CUresult EXPORT cuLaunchCooperativeKernel(void *function, unsigned int gx, unsigned int gy,
					  unsigned int gz, unsigned int bx, unsigned int by,
					  unsigned int bz, unsigned int shared, CUstream stream,
					  void **params)
{
	LOCAL(function, stream);
	MEASURED(cuLaunchCooperativeKernel, stream, false, function, gx, gy, gz, bx, by, bz, shared, stream,
		 params);
}

CUresult EXPORT cuLaunchCooperativeKernel_ptsz(void *function, unsigned int gx, unsigned int gy,
					       unsigned int gz, unsigned int bx, unsigned int by,
					       unsigned int bz, unsigned int shared, CUstream stream,
					       void **params)
{
	LOCAL(function, stream);
	MEASURED(cuLaunchCooperativeKernel_ptsz, stream, true, function, gx, gy, gz, bx, by, bz, shared,
		 stream, params);
}

CUresult EXPORT cuLaunchCooperativeKernelMultiDevice(struct CUlaunch_params *list, unsigned int count,
						     unsigned int flags)
{
	struct CUlaunch_params own[MULTI_MAX];
	struct launch launches[MULTI_MAX];
	unsigned int known = count < MULTI_MAX ? count : MULTI_MAX;	/* no container has more */
	CUresult ret;

	if (NESTED || list == NULL)
		return DRIVER(cuLaunchCooperativeKernelMultiDevice)(list, count, flags);
	for (unsigned int i = 0; i < known; i++) {
		own[i] = *(const volatile struct CUlaunch_params *)&list[i];
		LOCAL(own[i].function, own[i].stream);
	}
	for (unsigned int i = known; i-- > 0;) {	/* downwards, as stacks grow: gpu_time.c goes by that */
		gpu_time_begin(&launches[i], own[i].stream, false);
	}
	ret = CALL(cuLaunchCooperativeKernelMultiDevice, count <= MULTI_MAX ? own : list, count, flags);
	for (unsigned int i = 0; i < known; i++)
		gpu_time_end(&launches[i], ret);
	return ret;
}

CUresult EXPORT cuLaunch(void *function)
{
	LOCAL(function, NULL);
	MEASURED(cuLaunch, NULL, false, function);
}

CUresult EXPORT cuLaunchGrid(void *function, int width, int height)
{
	LOCAL(function, NULL);
	MEASURED(cuLaunchGrid, NULL, false, function, width, height);
}

CUresult EXPORT cuLaunchGridAsync(void *function, int width, int height, CUstream stream)
{
	LOCAL(function, stream);
	MEASURED(cuLaunchGridAsync, stream, false, function, width, height, stream);
}
