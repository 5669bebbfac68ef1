/* system.h - the kernel's calls that the limiter needs, without libc.
 *
 * A library that a program preloads may have an open(), a flock() or a nanosleep() of its own, and the
 * limiter would believe it. So nothing that it goes by comes from libc, text and bytes neither
 * (text.h, bytes.c); what is left, the loader and the environment, is in tools/limiter_functions.py.
 * A call returns what the kernel does: a negative number is an error. errno is left alone, and no
 * thread is cancelled in one. */
#ifndef EDGEGPU_LIMITER_SYSTEM_H
#define EDGEGPU_LIMITER_SYSTEM_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

static inline long system_call(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long fourth __asm__("r10") = d;
	register long fifth __asm__("r8") = e;
	register long sixth __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall" : "=a"(ret) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth),
			 "r"(sixth) : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long which __asm__("x8") = number;
	register long first __asm__("x0") = a;
	register long second __asm__("x1") = b;
	register long third __asm__("x2") = c;
	register long fourth __asm__("x3") = d;
	register long fifth __asm__("x4") = e;
	register long sixth __asm__("x5") = f;

	__asm__ volatile("svc 0" : "+r"(first) : "r"(which), "r"(second), "r"(third), "r"(fourth), "r"(fifth),
			 "r"(sixth) : "memory");
	return first;
#else
#error "no calls of the kernel are known for this processor"
#endif
}

static inline void system_close(int file)
{
	system_call(SYS_close, file, 0, 0, 0, 0, 0);
}

/* Never one of the standard ones, though the program has closed it: another thread may write a line there. */
static inline int system_open(const char *path, int flags)
{
	int file = (int)system_call(SYS_openat, AT_FDCWD, (long)path, flags | O_CLOEXEC, 0, 0, 0), higher;

	if (file < 0 || file > 2)
		return file;
	higher = (int)system_call(SYS_fcntl, file, F_DUPFD_CLOEXEC, 3, 0, 0, 0);
	if (higher < 0)			/* there is no other one */
		return file;
	system_close(file);
	return higher;
}

static inline long system_read(int file, void *out, size_t bytes)
{
	return system_call(SYS_read, file, (long)out, (long)bytes, 0, 0, 0);
}

static inline int system_fstat(int file, struct stat *out)
{
	return (int)system_call(SYS_fstat, file, (long)out, 0, 0, 0, 0);
}

static inline int system_stat(const char *path, struct stat *out)
{
	return (int)system_call(SYS_newfstatat, AT_FDCWD, (long)path, (long)out, 0, 0, 0);
}

/* file -1: memory of this process alone. NULL: there is none. */
static inline void *system_map(size_t bytes, int file)
{
	int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	long at = system_call(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE, flags, file, 0);

	return at < 0 && at > -4096 ? NULL : (void *)at;
}

static inline void system_unmap(void *at, size_t bytes)
{
	system_call(SYS_munmap, (long)at, (long)bytes, 0, 0, 0, 0);
}

static inline void system_sleep(long ns)
{
	struct timespec pause = { 0, ns };	/* less than a second */

	system_call(SYS_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
}

static inline int system_pid(void)
{
	return (int)system_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

#endif
