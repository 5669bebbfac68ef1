/* nvml_error.c - the text of each status. */
#include "nvml_core.h"

static const char *const texts[] = {
	[0] = "Success",
	[1] = "Uninitialized",
	[2] = "Invalid Argument",
	[3] = "Not Supported",
	[4] = "Insufficient Permissions",
	[5] = "Already Initialized",
	[6] = "Not Found",
	[7] = "Insufficient Size",
	[8] = "Insufficient External Power",
	[9] = "Driver Not Loaded",
	[10] = "Timeout",
	[11] = "Interrupt Request Issue",
	[12] = "NVML Shared Library Not Found",
	[13] = "Function Not Found",
	[14] = "Corrupted infoROM",
	[15] = "GPU is lost",
	[16] = "GPU requires reset",
	[17] = "The operating system has blocked the request.",
	[18] = "Driver/library version mismatch",
	[19] = "In use by another client",
	[20] = "Insufficient Memory",
	[21] = "No data",
	[22] = "VGPU ECC not supported",
	[23] = "Insufficient resources",
	[24] = "Frequency not supported",
	[25] = "Argument version mismatch",
	[26] = "Deprecated",
	[27] = "Not Ready",
	[28] = "GPU not found",
};

SIM_API const char *nvmlErrorString(nvmlReturn_t status)
{
	if (status < 0 || status >= (int)(sizeof(texts) / sizeof(*texts)))
		return "Unknown Error";
	return texts[status];
}
