/* nvml_export.c - nvmlInternalGetExportTable: the private tables that NVIDIA's own nvidia-smi asks for, as one that refuses.
 *
 * A table begins with its size in bytes; each function in it answers that it is not supported. Nobody published the
 * tables or their ids, so none is known here: whatever id is asked for gets this one. NVIDIA's nvidia-smi needs no more
 * to show cards, UUIDs and memory. It lists processes by such a table from 525 on, and so finds none here. */
#include "nvml_core.h"

#define FUNCTIONS 255

struct export_table {
	size_t bytes;
	nvmlReturn_t (*functions[FUNCTIONS])(void);
};

static nvmlReturn_t refuse(void)
{
	return NVML_ERROR_NOT_SUPPORTED;
}

static const struct export_table table = {
	.bytes = sizeof(table),
	.functions = { [0 ... FUNCTIONS - 1] = refuse },
};

SIM_API nvmlReturn_t nvmlInternalGetExportTable(const void **out, const unsigned char *id)
{
	if (out == NULL || id == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = &table;
	return NVML_SUCCESS;
}
