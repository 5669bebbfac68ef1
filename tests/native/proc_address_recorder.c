/* proc_address_recorder.c - stands in front of the driver and notes what is asked of cuGetProcAddress.
 *
 * One line a request into the file that REQUESTS names: name, version, flags, result, status (-1: the
 * caller cannot ask for it), and the symbol that the driver's answer points to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int lookup_v1(const char *name, void **out, int version, uint64_t flags);
typedef int lookup_v2(const char *name, void **out, int version, uint64_t flags, int *status);

lookup_v1 cuGetProcAddress;
lookup_v2 cuGetProcAddress_v2;

static void note(const char *name, int version, uint64_t flags, int result, int status, void *at)
{
	FILE *file = fopen(getenv("REQUESTS"), "ae");
	Dl_info info = { .dli_sname = NULL };

	if (at != NULL)
		dladdr(at, &info);
	fprintf(file, "%s %d %d %d %d %s\n", *name == '\0' ? "-" : name, version, (int)flags, result,
		status, info.dli_sname != NULL ? info.dli_sname : "-");
	fclose(file);
}

/* The caller asks on by what it was given: ourselves. */
static void stay_in_front(void **out)
{
	if (*out == dlsym(RTLD_NEXT, "cuGetProcAddress"))
		*out = (void *)cuGetProcAddress;
	if (*out == dlsym(RTLD_NEXT, "cuGetProcAddress_v2"))
		*out = (void *)cuGetProcAddress_v2;
}

int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
	lookup_v1 *next = dlsym(RTLD_NEXT, "cuGetProcAddress");
	int result = next(name, out, version, flags);

	note(name, version, flags, result, -1, result == 0 ? *out : NULL);
	stay_in_front(out);
	return result;
}

int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status)
{
	lookup_v2 *next = dlsym(RTLD_NEXT, "cuGetProcAddress_v2");
	int found = -1;
	int result = next(name, out, version, flags, &found);

	if (status != NULL)
		*status = found;
	note(name, version, flags, result, found, result == 0 ? *out : NULL);
	stay_in_front(out);
	return result;
}
