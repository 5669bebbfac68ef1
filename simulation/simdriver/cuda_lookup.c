/* cuda_lookup.c - cuGetProcAddress: of a function's variants the one that the asked CUDA version has,
 * for the default stream that the caller means. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_core.h"

enum {					/* flags */
	LEGACY_STREAM = 1,
	PER_THREAD_STREAM = 2,
};

enum {					/* symbolStatus */
	STATUS_FOUND = 0,
	STATUS_NOT_FOUND = 1,
	STATUS_VERSION_TOO_LOW = 2,
};

static int by_base(const void *key, const void *entry)
{
	return strcmp(key, ((const struct cu_function *)entry)->base);
}

/* The first of the function's variants: they lie side by side, the oldest first. */
static const struct cu_function *first_of(const char *base)
{
	const struct cu_function *found;

	found = bsearch(base, cu_functions, cu_function_count, sizeof(*cu_functions), by_base);
	while (found != NULL && found > cu_functions && strcmp(found[-1].base, base) == 0)
		found--;
	return found;
}

/* The newest variant not newer than the version; of one age the per-thread one where it is meant. */
static int choose(const char *base, int version, bool per_thread, void **out)
{
	const struct cu_function *end = cu_functions + cu_function_count, *best = NULL;
	const struct cu_function *f = first_of(base);

	*out = NULL;
	if (f == NULL)
		return STATUS_NOT_FOUND;
	for (; f < end && strcmp(f->base, base) == 0; f++) {
		if (f->since > version || (f->per_thread && !per_thread))
			continue;
		best = f;
	}
	if (best == NULL)
		return STATUS_VERSION_TOO_LOW;
	*out = best->at;
	return STATUS_FOUND;
}

static CUresult look_up(const char *base, void **out, int version, uint64_t flags, int *status)
{
	if (base == NULL || out == NULL || flags > PER_THREAD_STREAM || version > cu_version())
		return CUDA_ERROR_INVALID_VALUE;
	*status = choose(base, version, flags == PER_THREAD_STREAM, out);
	return CUDA_SUCCESS;
}

SIM_API CUresult cuGetProcAddress_v2(const char *base, void **out, int version, uint64_t flags,
				     int *status)
{
	int unused;

	return look_up(base, out, version, flags, status != NULL ? status : &unused);
}

/* CUDA 11's: without a status, the result says that there is none. */
SIM_API CUresult cuGetProcAddress(const char *base, void **out, int version, uint64_t flags)
{
	int status;
	CUresult ret = look_up(base, out, version, flags, &status);

	if (ret == CUDA_SUCCESS && status != STATUS_FOUND)
		return CUDA_ERROR_NOT_FOUND;
	return ret;
}
