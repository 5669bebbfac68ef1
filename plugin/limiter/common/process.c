/* process.c - the page that a forked child does not inherit.
 *
 * A child holds no card memory, whatever its parent held, and a mutex that another thread of the
 * parent had locked would stay locked in it for ever. The kernel clears the pages at any kind of fork
 * (4.14 and later); before that the pid is compared at each use. */
#define _GNU_SOURCE
#include <string.h>

#include "driver.h"
#include "process.h"
#include "system.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

struct process *process_known;
static struct process *own;

static struct process *make(void)
{
	struct process *made, *seen = NULL;
	bool wiped;

	driver_open();			/* before any lock: those lie in what is made here */
	made = system_map(sizeof(*made), -1);
	if (made == NULL)
		return NULL;
	made->epoch = 1;		/* in a child it is 0: what it knew is its parent's */
	wiped = system_call(SYS_madvise, (long)made, sizeof(*made), MADV_WIPEONFORK, 0, 0, 0) == 0;
	if (!wiped)
		made->pid = system_pid();
	if (!__atomic_compare_exchange_n(&own, &seen, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		system_unmap(made, sizeof(*made));
		return seen;
	}
	if (wiped)
		__atomic_store_n(&process_known, made, __ATOMIC_RELEASE);
	return made;
}

struct process *process_find(void)
{
	struct process *seen = __atomic_load_n(&own, __ATOMIC_ACQUIRE);

	if (seen == NULL)
		return make();
	if (seen->pid != 0 && seen->pid != system_pid()) {
		memset(seen, 0, sizeof(*seen));
		seen->pid = system_pid();
	}
	return seen;
}
