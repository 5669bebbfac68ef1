/* capture.h - captures of streams that are going on: nothing of ours is to get into one, or to end it. */
#ifndef EDGEGPU_LIMITER_CAPTURE_H
#define EDGEGPU_LIMITER_CAPTURE_H

#include "charge.h"

#define CAPTURE_NONE (-2)		/* what capture_relax gives where no capture is going on */

/* A capture that the program began may not have ended yet. Where there is none the driver needs not be asked. */
static inline bool capture_possible(void)
{
	struct process *own = process_own();

	return own == NULL || __atomic_load_n(&own->captures, __ATOMIC_SEQ_CST) != 0;
}

/* True: what is launched now is not run but captured, and recording an event would join in. */
bool capture_active(CUstream stream);

/* The id of the capture that takes what is launched into the stream, which no other one of the process ever has. 0: none
 * takes it, or it may not be launched there at all. */
uint64_t capture_id(CUstream stream);

/* An event cannot be asked for its time: from now on the driver is asked whether streams capture. */
void capture_unseen(void);

/* Our own calls between these must not end the capture of a stream that has nothing to do with them. They wait for
 * nothing: a capture that begins waits until they are over, or for two seconds. */
int capture_relax(void);
void capture_restore(int mode);

#endif
