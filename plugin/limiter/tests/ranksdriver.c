/* ranksdriver.c - a driver with one card for each of two ranks, whose kernels wait for each other, as those of a collective
 * do: a kernel works for KERNEL_US once the other rank has launched its own of that number, or at once where ALONE is 1.
 * It answers at once, and counts its calls. */
#include <string.h>
#include <unistd.h>

#include "../cuda/cuda.h"
#include "ranks.h"

#define API __attribute__((visibility("default")))
#define NOT_READY 600
#define NEVER UINT64_MAX
#define CONTEXT ((CUcontext)0x1000)
#define COUNT() (ready()->calls[rank]++)

struct CUevent_st {
	unsigned int behind;		/* so many kernels */
	uint64_t recorded;
};

static struct ranks *ranks;
static uint64_t ends[STEPS_MAX], kernel_ns;
static unsigned int rank, count, known;	/* kernels that were launched, and those whose end is known */
static int alone;

static struct ranks *ready(void)
{
	if (ranks == NULL) {
		kernel_ns = setting("KERNEL_US") * 1000;
		alone = setting("ALONE") != 0;
		rank = setting("RANK") != 0;
		ranks = ranks_map();
	}
	return ranks;
}

/* When so many kernels are over; NEVER: one of them still waits. */
static uint64_t end_of(unsigned int kernels)
{
	for (; known < kernels; known++) {
		uint64_t own = ranks->launched[rank][known], begin = known != 0 ? ends[known - 1] : 0;
		uint64_t other = alone ? own : __atomic_load_n(&ranks->launched[!rank][known], __ATOMIC_SEQ_CST);

		if (other == 0)
			return NEVER;
		begin = own > begin ? own : begin;
		ends[known] = (other > begin ? other : begin) + kernel_ns;
	}
	return kernels != 0 ? ends[kernels - 1] : 0;
}

static int is_over(unsigned int kernels)
{
	uint64_t end = end_of(kernels);

	return end != NEVER && end <= now_ns();
}

API CUresult cuInit(unsigned int flags)
{
	COUNT();
	return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuDeviceGetUuid_v2(struct CUuuid *out, CUdevice device)
{
	COUNT();
	memset(out->bytes, rank == 0 ? 0xab : 0xcd, sizeof(out->bytes));
	return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

API CUresult cuCtxGetCurrent(CUcontext *out)
{
	COUNT();
	*out = CONTEXT;
	return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *out)
{
	COUNT();
	*out = 0;
	return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	COUNT();
	*out = CONTEXT;
	return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	COUNT();
	*flags = 0;
	*active = 1;
	return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

API CUresult cuCtxSetCurrent(CUcontext context)
{
	COUNT();
	return context == CONTEXT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuStreamIsCapturing(CUstream stream, int *out)
{
	(void)stream;
	COUNT();
	*out = 0;
	return CUDA_SUCCESS;
}

API CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
	(void)mode;
	COUNT();
	return CUDA_SUCCESS;
}

API CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	(void)flags;
	COUNT();
	*out = calloc(1, sizeof(**out));
	return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuEventRecord(CUevent event, CUstream stream)
{
	(void)stream;
	COUNT();
	*event = (struct CUevent_st){ count, now_ns() };
	return CUDA_SUCCESS;
}

API CUresult cuEventQuery(CUevent event)
{
	COUNT();
	return is_over(event->behind) ? CUDA_SUCCESS : NOT_READY;
}

static int64_t came_to(CUevent event)
{
	uint64_t end = end_of(event->behind);

	return (int64_t)(end > event->recorded ? end : event->recorded);
}

API CUresult cuEventElapsedTime(float *out, CUevent from, CUevent to)
{
	COUNT();
	if (!is_over(from->behind) || !is_over(to->behind))
		return NOT_READY;
	*out = (float)((double)(came_to(to) - came_to(from)) / 1e6);
	return CUDA_SUCCESS;
}

API CUresult cuLaunchKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
			    unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,
			    void **extra)
{
	(void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;
	(void)params, (void)extra;
	MUST(count < STEPS_MAX);
	__atomic_store_n(&ready()->launched[rank][count++], now_ns(), __ATOMIC_SEQ_CST);
	return CUDA_SUCCESS;
}

API CUresult cuStreamQuery(CUstream stream)
{
	(void)stream;
	COUNT();
	return is_over(count) ? CUDA_SUCCESS : NOT_READY;
}

API CUresult cuStreamSynchronize(CUstream stream)
{
	(void)stream;
	COUNT();
	while (!is_over(count))
		usleep(20);
	return CUDA_SUCCESS;
}
