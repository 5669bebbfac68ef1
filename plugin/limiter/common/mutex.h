/* mutex.h - a mutex between the threads of one process. All zeros is an open one.
 *
 * Small and fast, and its layout is ours whatever libc there is. 0: open, 1: held, 2: held, and
 * somebody may wait. */
#ifndef EDGEGPU_LIMITER_MUTEX_H
#define EDGEGPU_LIMITER_MUTEX_H

#include <stdint.h>

struct mutex {
	int state;
};

void mutex_wait(struct mutex *mutex);	/* for mutex_lock alone */
void mutex_wake(struct mutex *mutex);
_Bool mutex_lock_for(struct mutex *mutex, uint64_t ns);	/* false: it was not open for so long */

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

/* One that is held over the driver's calls: the driver may call the program back (CUPTI does), and that calls a hook
 * again. So the thread that holds it passes. */
struct deep_mutex {
	struct mutex mutex;
	unsigned int depth;		/* its holder's alone */
	uintptr_t owner;		/* an address of the holder's; 0: nobody; atomic */
};

/* True: this thread holds it already. */
static inline _Bool mutex_enter(struct deep_mutex *deep, const void *thread)
{
	if (__atomic_load_n(&deep->owner, __ATOMIC_RELAXED) == (uintptr_t)thread) {
		deep->depth++;
		return 1;
	}
	mutex_lock(&deep->mutex);
	__atomic_store_n(&deep->owner, (uintptr_t)thread, __ATOMIC_RELAXED);
	return 0;
}

enum mutex_entry { MUTEX_MISSED, MUTEX_ENTERED, MUTEX_WITHIN };

/* The same, but it waits no longer than that. Only what was not missed is left. */
static inline enum mutex_entry mutex_enter_for(struct deep_mutex *deep, const void *thread, uint64_t ns)
{
	if (__atomic_load_n(&deep->owner, __ATOMIC_RELAXED) == (uintptr_t)thread) {
		deep->depth++;
		return MUTEX_WITHIN;
	}
	if (!mutex_lock_for(&deep->mutex, ns))
		return MUTEX_MISSED;
	__atomic_store_n(&deep->owner, (uintptr_t)thread, __ATOMIC_RELAXED);
	return MUTEX_ENTERED;
}

static inline void mutex_leave(struct deep_mutex *deep)
{
	if (deep->depth != 0) {
		deep->depth--;
		return;
	}
	__atomic_store_n(&deep->owner, 0, __ATOMIC_RELAXED);
	mutex_unlock(&deep->mutex);
}

#endif
