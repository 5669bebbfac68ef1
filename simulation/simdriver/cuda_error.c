/* cuda_error.c - names and texts of the statuses that the simulation or an injected fault gives. */
#include "cuda_core.h"

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
	{ 0, "CUDA_SUCCESS", "no error" },
	{ 1, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ 3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
	{ 4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down" },
	{ 46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable" },
	{ 100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
	{ 101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
	{ 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
	{ 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered" },
	{ 304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS" },
	{ 400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
	{ 500, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
	{ 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered" },
	{ 719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
	{ 801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
	{ 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
	  "system has unsupported display driver / cuda driver combination" },
	{ 999, "CUDA_ERROR_UNKNOWN", "unknown error" },
};

#define COUNT (sizeof(errors) / sizeof(*errors))

static size_t find(CUresult code)
{
	size_t i = 0;

	while (i < COUNT && errors[i].code != code)
		i++;
	return i;
}

SIM_API CUresult cuGetErrorName(CUresult code, const char **out)
{
	size_t i = find(code);

	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = i < COUNT ? errors[i].name : NULL;
	return i < COUNT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuGetErrorString(CUresult code, const char **out)
{
	size_t i = find(code);

	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = i < COUNT ? errors[i].text : NULL;
	return i < COUNT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
