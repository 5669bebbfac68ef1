/* mutex.c - the slow sides of the mutex. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdbool.h>

#include "clock.h"
#include "mutex.h"
#include "system.h"

#define NS 1000000000u

void mutex_wait(struct mutex *mutex)
{
	while (__atomic_exchange_n(&mutex->state, 2, __ATOMIC_ACQUIRE) != 0)
		system_call(SYS_futex, (long)&mutex->state, FUTEX_WAIT_PRIVATE, 2, 0, 0, 0);
}

bool mutex_lock_for(struct mutex *mutex, uint64_t ns)
{
	uint64_t until = clock_ns() + ns, now;
	int open = 0;

	if (__atomic_compare_exchange_n(&mutex->state, &open, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return true;
	while (__atomic_exchange_n(&mutex->state, 2, __ATOMIC_ACQUIRE) != 0) {
		struct timespec left;

		now = clock_ns();
		if (now >= until)
			return false;
		left = (struct timespec){ (time_t)((until - now) / NS), (long)((until - now) % NS) };
		system_call(SYS_futex, (long)&mutex->state, FUTEX_WAIT_PRIVATE, 2, (long)&left, 0, 0);
	}
	return true;
}

void mutex_wake(struct mutex *mutex)
{
	system_call(SYS_futex, (long)&mutex->state, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}
