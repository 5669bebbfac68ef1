/* kernel.c - a module is loaded and its kernel launched; then fixed work is timed: KERNELS of it, queued at once.
 *
 * The kernel takes KERNEL_US by the card's own timer, whatever the card's clock, so the same work takes the
 * same time in each process. A card whose timer stands still ends it by its clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

#include "hooks.h"
#include "selftest.h"

CUresult cuModuleGetFunction(void **out, CUmodule module, const char *name);

#define CU(name) ((__typeof__(&name))dlsym(cuda, #name))

/* For Maxwell and newer, by the driver's own compiler. The simulated driver takes the time from the name. */
static const char kernel_name[] = "spin_1ms";
static const char image[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry spin_1ms()\n"
	"{\n"
	"	.reg .pred %again;\n"
	"	.reg .u64 %began, %now, %first, %clock;\n"
	"	mov.u64 %began, %globaltimer;\n"
	"	mov.u64 %first, %clock64;\n"
	"spin:\n"
	"	mov.u64 %now, %globaltimer;\n"
	"	sub.u64 %now, %now, %began;\n"
	"	mov.u64 %clock, %clock64;\n"
	"	sub.u64 %clock, %clock, %first;\n"
	"	setp.lt.u64 %again, %now, 1000000;\n"
	"	setp.lt.and.u64 %again, %clock, 20000000, %again;\n"
	"	@%again bra spin;\n"
	"	ret;\n"
	"}\n";

_Static_assert(KERNEL_US == 1000, "as the image and its name say");

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static bool is_there(void *cuda)
{
	static const char *const needed[] = { "cuModuleLoadData", "cuModuleGetFunction", "cuModuleUnload",
					      "cuLaunchKernel" };

	for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++)
		if (dlsym(cuda, needed[i]) == NULL)
			return false;
	return true;
}

/* True: went well; else no later step is begun. */
static bool went(struct run *run, CUresult code)
{
	run->kernel.code = code;
	run->kernel.at = run->step;
	return code == CUDA_SUCCESS;
}

static CUresult launch(void *cuda, void *kernel, int times)
{
	CUresult ret = CUDA_SUCCESS;

	for (int i = 0; i < times && ret == CUDA_SUCCESS; i++)
		ret = CU(cuLaunchKernel)(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	return ret == CUDA_SUCCESS ? CU(cuStreamSynchronize)(NULL) : ret;
}

/* The first launch brings the code onto the card, and is not timed. */
static void run_kernels(void *cuda, void *kernel, struct run *run)
{
	uint64_t began;

	run_reach(run, STEP_LAUNCH);
	if (!went(run, launch(cuda, kernel, 1)))
		return;
	run_reach(run, STEP_COMPUTE);
	began = now_us();
	if (went(run, launch(cuda, kernel, KERNELS)))
		run->kernel.work_us = now_us() - began;
}

void kernel_run(void *cuda, struct run *run)
{
	CUmodule module;
	void *kernel;

	run->kernel.missing = !is_there(cuda);
	if (run->kernel.missing)
		return;
	run_reach(run, STEP_MODULE);
	if (!went(run, CU(cuModuleLoadData)(&module, image)))
		return;
	if (went(run, CU(cuModuleGetFunction)(&kernel, module, kernel_name)))
		run_kernels(cuda, kernel, run);
	CU(cuModuleUnload)(module);
}
