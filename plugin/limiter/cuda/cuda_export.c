/* cuda_export.c - notes which of the driver's private tables a program asks for. They pass unchanged: the CUDA runtime
 * checks the driver by them. */
#include "charge.h"
#include "usage.h"

CUresult EXPORT cuGetExportTable(const void **out, const struct CUuuid *id)
{
	CUresult ret = CALL(cuGetExportTable, out, id);

	if (!NESTED && id != NULL && (ret == CUDA_SUCCESS || ret == CUDA_ERROR_NOT_FOUND))
		usage_table(id->bytes);
	return ret;
}
