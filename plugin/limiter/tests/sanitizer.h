/* sanitizer.h - an exchange that the thread sanitizer is told of, for a library that is not built for it. Of such a
 * library it sees malloc and free, and no atomics. Without the sanitizer nothing is told. */
#ifndef SANITIZER_H
#define SANITIZER_H

#include <stddef.h>

extern void __tsan_acquire(void *at) __attribute__((weak));
extern void __tsan_release(void *at) __attribute__((weak));

static inline void *sanitizer_exchange(void **at, void *value)
{
	void *before;

	if (__tsan_release != NULL)
		__tsan_release(at);
	before = __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
	if (__tsan_acquire != NULL)
		__tsan_acquire(at);
	return before;
}

#endif
