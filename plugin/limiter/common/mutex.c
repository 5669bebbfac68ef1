/* mutex.c - the slow sides of the mutex. */
#define _GNU_SOURCE
#include <linux/futex.h>

#include "mutex.h"
#include "system.h"

void mutex_wait(struct mutex *mutex)
{
	while (__atomic_exchange_n(&mutex->state, 2, __ATOMIC_ACQUIRE) != 0)
		system_call(SYS_futex, (long)&mutex->state, FUTEX_WAIT_PRIVATE, 2, 0, 0, 0);
}

void mutex_wake(struct mutex *mutex)
{
	system_call(SYS_futex, (long)&mutex->state, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}
