/* Goes before libfaketime: it fakes a sleep until a moment of the monotonic clock although it was told to leave that clock alone, and
 * the sleep ends at once with EINVAL. This one is the kernel's. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
	return syscall(SYS_clock_nanosleep, clock, flags, until, left) ? errno : 0;
}
