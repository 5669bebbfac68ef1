/* replaces_dlopen.c - a library that a program's author has loaded first: it opens the driver itself for libcuda.so.1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

void *dlopen(const char *file, int flags)
{
	void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");

	if (file != NULL && strcmp(file, "libcuda.so.1") == 0)
		file = "/run/edgegpu/container/driver/libcuda.so.1";
	return next(file, flags);
}
