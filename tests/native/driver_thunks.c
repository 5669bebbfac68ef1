/* driver_thunks.c - a driver whose cuGetProcAddress gives other addresses than its symbols have: jumps of its own.
 *
 * It stands under the driver's name, needs the driver itself under another one, and has nothing else of its own. Built
 * with -DONLY="name", only that name's addresses differ; with -DANEW, each answer is another address. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

typedef int lookup_v1(const char *name, void **out, int version, uint64_t flags);
typedef int lookup_v2(const char *name, void **out, int version, uint64_t flags, int *status);

#define JUMP_BYTES 16
#define PAGE 4096
#define MOST 4096

lookup_v1 cuGetProcAddress;
lookup_v2 cuGetProcAddress_v2;

static void *targets[MOST], *jumps[MOST];
static int count;

/* jmp *(%rip), and behind it where to. */
static void *new_jump(void *target)
{
	static unsigned char *page;
	static size_t used = PAGE;
	unsigned char *at;

	if (used + JUMP_BYTES > PAGE) {
		page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		used = 0;
	}
	at = page + used;
	used += JUMP_BYTES;
	memcpy(at, "\xff\x25\0\0\0\0", 6);
	memcpy(at + 6, &target, sizeof(target));
	return at;
}

static void *jump_to(void *target)
{
#ifndef ANEW
	for (int i = 0; i < count; i++)
		if (targets[i] == target)
			return jumps[i];
#endif
	if (count == MOST)
		return new_jump(target);
	targets[count] = target;
	jumps[count] = new_jump(target);
	return jumps[count++];
}

static void replace(const char *name, void **out, int result)
{
#ifdef ONLY
	if (strcmp(name, ONLY) != 0)
		return;
#endif
	(void)name;
	if (result == 0 && *out != NULL)
		*out = jump_to(*out);
}

int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
	lookup_v1 *next = dlsym(RTLD_NEXT, "cuGetProcAddress");
	int result = next(name, out, version, flags);

	replace(name, out, result);
	return result;
}

int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status)
{
	lookup_v2 *next = dlsym(RTLD_NEXT, "cuGetProcAddress_v2");
	int result = next(name, out, version, flags, status);

	replace(name, out, result);
	return result;
}
