/* liveness.h - who a process is, and whether it still runs and still has the usage file mapped. */
#ifndef EDGEGPU_LIMITER_LIVENESS_H
#define EDGEGPU_LIMITER_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct identity {
	uint64_t start;			/* clock ticks from boot to the process's start; 0: unknown, or of another clock */
	uint64_t namespace;		/* inode of its pid namespace; 0: unknown */
	uint64_t image;			/* drawn anew by each exec */
	pid_t pid;			/* in that namespace */
	bool blind;			/* /proc is another pid namespace's: its numbers are of other processes */
};

struct identity identity_own(void);

/* Both in our pid namespace; false where that cannot be known. */
bool process_has_thread(const struct identity *asker, pid_t pid, int thread);

/* The usage file's number as /proc/PID/maps shows it; 0: it shows another (some layered file
 * systems), so that nothing follows from a process that does not map it. */
uint64_t identity_mapped(uint64_t inode);

/* True where it is certain that the process has ended, or has replaced itself by exec: its card
 * memory is free. inode: by identity_mapped(). A process of another pid namespace counts as living. */
bool identity_gone(const struct identity *who, const struct identity *asker, uint64_t inode);

#endif
