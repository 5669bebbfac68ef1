/* mutex.c - the slow sides of the mutex. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mutex.h"

void mutex_wait(struct mutex *mutex)
{
	int saved = errno;

	while (__atomic_exchange_n(&mutex->state, 2, __ATOMIC_ACQUIRE) != 0)
		syscall(SYS_futex, &mutex->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
	errno = saved;
}

void mutex_wake(struct mutex *mutex)
{
	int saved = errno;

	syscall(SYS_futex, &mutex->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	errno = saved;
}
