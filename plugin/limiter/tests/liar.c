/* liar.c - a library that a program's author preloads: to the limiter, and to it alone, it tells other limits, a
 * faster clock, a lock that was had, processes that have ended, and equal texts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FASTER 10

/* The limiter has the driver's name, and stands where LIAR_LIMITER says. */
static bool from_limiter(const void *at)
{
	Dl_info info;
	const char *folder = getenv("LIAR_LIMITER");

	return folder != NULL && dladdr(at, &info) != 0 && strstr(info.dli_fname, folder) != NULL;
}

#define ASKED from_limiter(__builtin_return_address(0))

int open(const char *path, int flags, ...)
{
	const char *lie = getenv("LIAR_LIMITS"), *name = strrchr(path, '/');
	va_list rest;
	int mode;

	va_start(rest, flags);
	mode = va_arg(rest, int);
	va_end(rest);
	if (name != NULL && strcmp(name, "/limits") == 0 && lie != NULL && ASKED)
		path = lie;
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

int clock_gettime(clockid_t which, struct timespec *out)
{
	int ret = (int)syscall(SYS_clock_gettime, which, out);
	uint64_t ns = ((uint64_t)out->tv_sec * 1000000000u + (uint64_t)out->tv_nsec) * FASTER;

	if (ASKED) {
		out->tv_sec = (time_t)(ns / 1000000000u);
		out->tv_nsec = (long)(ns % 1000000000u);
	}
	return ret;
}

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
	return ASKED ? 0 : (int)syscall(SYS_nanosleep, wanted, left);
}

int flock(int file, int how)
{
	return ASKED ? 0 : (int)syscall(SYS_flock, file, how);
}

int kill(pid_t pid, int signal)
{
	if (ASKED) {
		errno = ESRCH;
		return -1;
	}
	return (int)syscall(SYS_kill, pid, signal);
}

unsigned long long strtoull(const char *text, char **end, int base)
{
	unsigned long long value = (unsigned long long)strtol(text, end, base);

	return ASKED ? value * 16 : value;
}

int strncmp(const char *one, const char *other, size_t bytes)
{
	if (one[0] == 'c' && one[1] == 'u' && ASKED)	/* no name of the driver's is another one's */
		return 1;
	for (; bytes > 0 && *one == *other && *one != '\0'; bytes--, one++, other++)
		;
	return bytes == 0 ? 0 : (unsigned char)*one - (unsigned char)*other;
}
