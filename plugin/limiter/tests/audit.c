/* An auditor of the loader (LD_AUDIT, rtld-audit(7)) that names another file for the driver. */

#define _GNU_SOURCE
#include <link.h>
#include <string.h>

#define DRIVER "libcuda.so.1"

unsigned int la_version(unsigned int version)
{
	return version;
}

char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag)
{
	const char *last = strrchr(name, '/');

	(void)cookie;
	(void)flag;
	if (strcmp(last ? last + 1 : name, DRIVER) == 0)
		return (char *)ELSEWHERE "/" DRIVER;
	return (char *)name;
}
