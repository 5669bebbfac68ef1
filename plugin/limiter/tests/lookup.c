/* lookup.c - asks for more card memory than the limit of 64 MiB, by a function found in one way.
 *
 *   lookup WAY [FILE]   prints "held" (refused), "past" (given), or "none" (nothing is found there)
 *   lookup spawn FILE   starts a program 300 times; prints the microseconds of the quickest
 *   lookup wait         says that it runs, and ends with its standard input
 *
 * It is also built against musl, static, and as the library that NEXT names; it needs nothing of the driver's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OVER_BYTES ((64ull << 20) + 1)
#define OUT_OF_MEMORY 2

typedef int (*call)();

#ifdef NEXT
/* The library before the driver in a program's list: what comes after it. */
void *find_next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}
#else
static call find(void *handle, const char *name, const char *version)
{
#ifdef __GLIBC__
	if (version != NULL)
		return (call)dlvsym(handle, name, version);
#endif
	return version == NULL ? (call)dlsym(handle, name) : NULL;
}

static int ask(call init, call retain, call current, call alloc)
{
	unsigned long long at;
	void *context;
	int ret;

	if (init == NULL || retain == NULL || current == NULL || alloc == NULL)
		return puts("none") < 0;
	if (init(0) != 0 || retain(&context, 0) != 0 || current(context) != 0)
		return puts("no start") < 0;
	ret = alloc(&at, OVER_BYTES);
	return puts(ret == 0 ? "past" : ret == OUT_OF_MEMORY ? "held" : "another error") < 0;
}

static int by_handle(void *handle, const char *version)
{
	return ask(find(handle, "cuInit", version), find(handle, "cuDevicePrimaryCtxRetain", version),
		   find(handle, "cuCtxSetCurrent", version), find(handle, "cuMemAlloc_v2", version));
}

static int by_file(const char *file, int more)
{
	void *handle = dlopen(file, RTLD_NOW | more);

	return handle == NULL ? puts("none") < 0 : by_handle(handle, NULL);
}

static int by_fork(const char *file)
{
	void *handle = dlopen(file, RTLD_NOW);
	int status;

	if (handle == NULL)
		return puts("none") < 0;
	((call)dlsym(handle, "cuInit"))(0);
	if (fork() == 0)
		exit(by_handle(handle, NULL));
	return wait(&status) < 0 || status != 0;
}

static int spawn(char *file)
{
	char *words[] = { file, NULL };
	long long least = -1;

	for (int i = 0; i < 300; i++) {
		struct timespec from, to;
		long long took;
		int status;
		pid_t child;

		clock_gettime(CLOCK_MONOTONIC, &from);
		if (posix_spawn(&child, file, NULL, NULL, words, words + 1) != 0)
			return 1;
		waitpid(child, &status, 0);
		clock_gettime(CLOCK_MONOTONIC, &to);
		took = (to.tv_sec - from.tv_sec) * 1000000ll + (to.tv_nsec - from.tv_nsec) / 1000;
		if (least < 0 || took < least)
			least = took;
	}
	return printf("%lld\n", least) < 0;
}

#ifdef LINKED
int cuInit(unsigned int flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(unsigned long long *at, unsigned long bytes);
void *find_next(const char *name);

static int linked(const char *way)
{
	if (strcmp(way, "link") == 0)
		return ask((call)cuInit, (call)cuDevicePrimaryCtxRetain, (call)cuCtxSetCurrent, (call)cuMemAlloc_v2);
	if (strcmp(way, "default") == 0)
		return by_handle(RTLD_DEFAULT, NULL);
	if (strcmp(way, "next") == 0)
		return by_handle(RTLD_NEXT, NULL);
	return ask((call)find_next("cuInit"), (call)find_next("cuDevicePrimaryCtxRetain"),
		   (call)find_next("cuCtxSetCurrent"), (call)find_next("cuMemAlloc_v2"));
}
#endif

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "", *file = argc > 2 ? argv[2] : "libcuda.so.1";
	char *empty[] = { NULL }, *again[] = { argv[0], "open", (char *)file, NULL };

	if (strcmp(way, "wait") == 0)
		return puts("ready") < 0 || fflush(stdout) != 0 || getchar() != EOF;
	if (strcmp(way, "spawn") == 0)
		return spawn((char *)file);
	if (strcmp(way, "open") == 0)
		return by_file(file, 0);
	if (strcmp(way, "fork") == 0)
		return by_fork(file);
	if (strcmp(way, "exec") == 0)
		return execve(argv[0], again, empty);
#ifdef __GLIBC__
	if (strcmp(way, "deepbind") == 0)
		return by_file(file, RTLD_DEEPBIND);
	if (strcmp(way, "dlmopen") == 0) {
		void *handle = dlmopen(LM_ID_NEWLM, file, RTLD_NOW);

		return handle == NULL ? puts("none") < 0 : by_handle(handle, NULL);
	}
	if (strcmp(way, "dlvsym") == 0) {
		void *handle = dlopen(file, RTLD_NOW);

		return handle == NULL ? puts("none") < 0 : by_handle(handle, argv[3]);
	}
#endif
#ifdef LINKED
	return linked(way);
#else
	fprintf(stderr, "no way %s\n", way);
	return 2;
#endif
}
#endif
