/* cache.h - glibc's loader cache, /etc/ld.so.cache, with libraries added (elf/dl-cache.c, elf/cache.c and
 * sysdeps/generic/dl-cache.h of glibc say how it is laid out). Pure: no call of the kernel. */
#ifndef EDGEGPU_LOADER_CACHE_CACHE_H
#define EDGEGPU_LOADER_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>

struct library {
	const char *name;	/* under which programs ask for it */
	const char *path;	/* in the container */
};

/* Write a cache with these libraries first among those of their names, and all that the old one has.
 * The old one may have no bytes: there is none. Returns the new one's length; 0: the old one is none that
 * we understand, or there is no room, and it has to stay what it is. `out` is at a multiple of 8. */
size_t cache_merge(const unsigned char *old, size_t length, const struct library *some, size_t count,
		   unsigned char *out, size_t room);

#endif
