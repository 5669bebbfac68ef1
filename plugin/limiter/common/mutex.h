/* mutex.h - a mutex between the threads of one process. All zeros is an open one.
 *
 * Small and fast, and its layout is ours whatever libc there is. 0: open, 1: held, 2: held, and
 * somebody may wait. */
#ifndef EDGEGPU_LIMITER_MUTEX_H
#define EDGEGPU_LIMITER_MUTEX_H

struct mutex {
	int state;
};

void mutex_wait(struct mutex *mutex);	/* for mutex_lock alone */
void mutex_wake(struct mutex *mutex);

static inline void mutex_lock(struct mutex *mutex)
{
	int open = 0;

	if (!__atomic_compare_exchange_n(&mutex->state, &open, 1, 0, __ATOMIC_ACQUIRE,
					 __ATOMIC_RELAXED))
		mutex_wait(mutex);
}

static inline void mutex_unlock(struct mutex *mutex)
{
	if (__atomic_exchange_n(&mutex->state, 0, __ATOMIC_RELEASE) == 2)
		mutex_wake(mutex);
}

#endif
