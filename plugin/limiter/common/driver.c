/* driver.c - opens the driver at the first call, and finds its functions.
 *
 * RTLD_LOCAL: neither RTLD_NEXT nor RTLD_DEFAULT of the program finds the driver. No lock of ours is
 * held over dlopen and dlsym: a constructor that runs under the loader's lock may call the driver as well. So
 * all functions are found at once, and that before the first lock (process.c). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>

#include "driver.h"
#include "library.h"
#include "settings.h"

static void *library;
static uintptr_t driver_begin, driver_end;	/* where the driver lies; atomic, the end is set last */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));	/* the linker's, of this library */

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

/* The end of what is loaded of a library that lies at a header. */
static uintptr_t end_of(const ElfW(Ehdr) *header)
{
	const ElfW(Phdr) *segments = (const void *)((uintptr_t)header + header->e_phoff);
	uintptr_t end = 0;

	for (unsigned int i = 0; i < header->e_phnum; i++)
		if (segments[i].p_type == PT_LOAD && segments[i].p_vaddr + segments[i].p_memsz > end)
			end = segments[i].p_vaddr + segments[i].p_memsz;
	return (uintptr_t)header + end;
}

static void learn_place(void *opened)
{
	struct link_map *map = NULL;
	const ElfW(Ehdr) *header;

	if (dlinfo(opened, RTLD_DI_LINKMAP, &map) != 0 || map == NULL || map->l_addr == 0)
		return;
	header = (const void *)map->l_addr;
	__atomic_store_n(&driver_begin, (uintptr_t)header, __ATOMIC_RELAXED);
	__atomic_store_n(&driver_end, end_of(header), __ATOMIC_RELEASE);
}

PRESERVING _Bool driver_calls(const void *return_address)
{
	uintptr_t at = (uintptr_t)return_address, end = __atomic_load_n(&driver_end, __ATOMIC_ACQUIRE);

	if (end != 0 && at >= __atomic_load_n(&driver_begin, __ATOMIC_RELAXED) && at < end)
		return 1;
	return at >= (uintptr_t)&__ehdr_start && at < end_of(&__ehdr_start);
}

/* The same for each thread that comes here at once. dlsym leaves a text of what it has not found for the program. */
static void find_functions(void *opened)
{
	bool all = true;

	for (int function = 0; function < FN_COUNT; function++) {
		void *found = dlsym(opened, driver_names[function]);

		all = all && found != NULL;
		__atomic_store_n(&driver_addresses[function], found != NULL ? found : (void *)&no_function,
				 __ATOMIC_RELEASE);
	}
	if (!all)
		dlerror();
}

void *driver_open(void)
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
	learn_place(opened);		/* before anybody calls into it; the same for each that is fast */
	find_functions(opened);
	if (!__atomic_compare_exchange_n(&library, &seen, opened, 0, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE)) {
		dlclose(opened);	/* another thread was faster */
		return seen;
	}
	return opened;
}

void *driver_find(int function)
{
	void *found;

	if (driver_open() == NULL)
		return NULL;
	found = __atomic_load_n(&driver_addresses[function], __ATOMIC_ACQUIRE);
	return found != (void *)&no_function ? found : NULL;
}

void *driver_bind(int function)
{
	if (driver_open() == NULL)
		return (void *)&no_driver;
	return __atomic_load_n(&driver_addresses[function], __ATOMIC_ACQUIRE);
}
