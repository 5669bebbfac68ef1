/* cuda_export.c - cuGetExportTable: the private tables that NVIDIA's runtime asks for, as stubs.
 *
 * A table begins with its size in bytes; each function in it answers that it is not supported. So the
 * runtime ends with an error before it trusts the driver: its check that it is NVIDIA's is not imitated. */
#include <string.h>

#include "cuda_core.h"

#define FUNCTIONS 63

struct export_table {
	size_t bytes;
	CUresult (*functions[FUNCTIONS])(void);
};

static const unsigned char known[][16] = {
	{ 0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,	/* the runtime's interface */
	  0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9 },
	{ 0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e,	/* asked for before cuInit since CUDA 12 */
	  0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9 },
	{ 0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74,	/* for tools */
	  0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66 },
};

static CUresult stub(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

static const struct export_table table = {
	.bytes = sizeof(table),
	.functions = { [0 ... FUNCTIONS - 1] = stub },
};

SIM_API CUresult cuGetExportTable(const void **out, const unsigned char *id)
{
	if (out == NULL || id == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (memcmp(id, known[i], sizeof(known[i])) == 0)
			*out = &table;
	return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
