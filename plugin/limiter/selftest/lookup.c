/* lookup.c - plain memory by the function that cuGetProcAddress gives: the CUDA runtime finds each function so, and a
 * program of the runtime's never calls what dlsym finds.
 *
 * The runtime asks for cuGetProcAddress itself first, and goes on with what it was given: of CUDA 11 for the form
 * of 11.3, of CUDA 12 and 13 for that of 12.0. A driver that does not give it leaves the one of dlsym. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "hooks.h"
#include "selftest.h"

#define CU(name) ((__typeof__(&name))dlsym(cuda, #name))

/* As the runtime names them: the version since which the form is there that is meant. */
#define SINCE_LOOKUP 11030
#define SINCE_LOOKUP_V2 12000
#define SINCE_ALLOC 3020		/* of cuMemAlloc_v2 */

static CUresult find(void *cuda, void **out)
{
	__typeof__(&cuGetProcAddress) ask = CU(cuGetProcAddress);

	if (ask("cuGetProcAddress", out, SINCE_LOOKUP, 0) == CUDA_SUCCESS && *out != NULL)
		ask = (__typeof__(ask))*out;
	*out = NULL;
	return ask("cuMemAlloc", out, SINCE_ALLOC, 0);
}

static CUresult find_v2(void *cuda, void **out)
{
	__typeof__(&cuGetProcAddress_v2) ask = CU(cuGetProcAddress_v2);
	int status;

	if (ask("cuGetProcAddress", out, SINCE_LOOKUP_V2, 0, &status) == CUDA_SUCCESS && *out != NULL)
		ask = (__typeof__(ask))*out;
	*out = NULL;
	return ask("cuMemAlloc", out, SINCE_ALLOC, 0, &status);
}

CUresult lookup_take(void *cuda, enum way way, CUdeviceptr *out)
{
	void *found = NULL;
	CUresult ret = way == WAY_LOOKUP ? find(cuda, &found) : find_v2(cuda, &found);

	if (ret == CUDA_SUCCESS && found == NULL)	/* the second form says why in its status alone */
		ret = CUDA_ERROR_NOT_FOUND;
	return ret != CUDA_SUCCESS ? ret : ((__typeof__(&cuMemAlloc_v2))found)(out, EACH);
}
