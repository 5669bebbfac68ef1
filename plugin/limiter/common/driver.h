/* driver.h - the driver's own functions, by their number in the generated functions.h. */
#ifndef EDGEGPU_LIMITER_DRIVER_H
#define EDGEGPU_LIMITER_DRIVER_H

#include <stddef.h>

#include "functions.h"

#define EXPORT __attribute__((visibility("default")))

/* A function that is nearly never called costs its callers no saved registers. */
#if defined(__clang__)
#define PRESERVING __attribute__((preserve_most, noinline, cold))
#else
#define PRESERVING __attribute__((noinline, cold))
#endif

/* Generated: a name, and the driver's address once it is open, for each function of the list. */
extern const char *const driver_names[FN_COUNT];
extern void *driver_addresses[FN_COUNT];

/* Look a function up in the driver. Never NULL: without a driver, or where the driver is too old
 * for the function, a function that answers so. */
void *driver_bind(int function);

/* Open the driver, if that was not done yet; NULL: there is none. Before a lock is taken over calls of the driver. */
void *driver_open(void);

void *driver_find(int function);	/* the same, but NULL where there is none */

/* Was a hook called by the driver? Where that jumped to it in the place of its own return, the address is of this
 * library, which calls none. */
_Bool driver_calls(const void *return_address) PRESERVING;

static inline void *driver_function(int function)
{
	void *known = __atomic_load_n(&driver_addresses[function], __ATOMIC_RELAXED);

	return known != NULL ? known : driver_bind(function);
}

#define DRIVER(name) ((__typeof__(&name))driver_function(FN_##name))

#endif
