/* driver.c - opens the driver at the first call, and finds its functions.
 *
 * RTLD_LOCAL: neither RTLD_NEXT nor RTLD_DEFAULT of the program finds the driver. No lock of ours is
 * held over dlopen: a constructor that runs under the loader's lock may call the driver as well. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "driver.h"
#include "library.h"
#include "settings.h"

static void *library;

/* What the driver's folder must not hold is this very library: the call would never end. */
EXPORT const char edgegpu_limiter[] = LIBRARY;

static int no_driver(void)
{
	return STATUS_NO_DRIVER;
}

static int no_function(void)
{
	return STATUS_NO_FUNCTION;
}

static void *open_driver(void)
{
	void *seen = __atomic_load_n(&library, __ATOMIC_ACQUIRE), *opened;
	char path[SETTING_MAX + sizeof(LIBRARY) + 1];

	if (seen != NULL || !setting_path(path, sizeof(path), setting_driver(), LIBRARY))
		return seen;
	opened = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (opened == NULL)
		return NULL;
	if (dlsym(opened, "edgegpu_limiter") != NULL) {
		dlclose(opened);
		return NULL;
	}
	if (!__atomic_compare_exchange_n(&library, &seen, opened, 0, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE)) {
		dlclose(opened);	/* another thread was faster */
		return seen;
	}
	return opened;
}

void *driver_find(int function)
{
	void *opened = open_driver(), *found;

	found = opened != NULL ? dlsym(opened, driver_names[function]) : NULL;
	if (found != NULL)
		__atomic_store_n(&driver_addresses[function], found, __ATOMIC_RELEASE);
	return found;
}

void *driver_bind(int function)
{
	void *found = driver_find(function);

	if (found != NULL)
		return found;
	return __atomic_load_n(&library, __ATOMIC_ACQUIRE) != NULL ? (void *)&no_function
								    : (void *)&no_driver;
}
