/* cuda_lookup.c - cuGetProcAddress: a name without its version gives the newest that we have. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cuda_core.h"

#define NEWEST 4			/* highest _vN that the driver interface has for these calls */
#define STATUS_FOUND 0
#define STATUS_NOT_FOUND 1

/* This library's own symbols, never another's that stands in front of it. */
static void *own(const char *name)
{
	static void *self;
	Dl_info info;
	void *found;

	if (self == NULL && dladdr((const void *)&own, &info) != 0)
		self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	found = self != NULL ? dlsym(self, name) : NULL;
	return found;
}

static void *lookup(const char *symbol)
{
	char name[128];
	void *found;

	for (int v = NEWEST; v >= 2; v--) {
		snprintf(name, sizeof(name), "%s_v%d", symbol, v);
		found = own(name);
		if (found != NULL)
			return found;
	}
	return own(symbol);
}

SIM_API CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags,
				     int *status)
{
	(void)version;
	(void)flags;
	if (symbol == NULL || out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = strncmp(symbol, "cu", 2) == 0 ? lookup(symbol) : NULL;
	if (status != NULL)
		*status = *out != NULL ? STATUS_FOUND : STATUS_NOT_FOUND;
	return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SIM_API CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(symbol, out, version, flags, NULL);
}
