/* gpu_segment.h - what is being measured: segments of launches in the streams of the contexts. */
#ifndef EDGEGPU_LIMITER_GPU_SEGMENT_H
#define EDGEGPU_LIMITER_GPU_SEGMENT_H

#include "charge.h"

#define GPU_CONTEXTS 32
#define GPU_STREAMS 32			/* of a context; one that was idle makes room for another */
#define GPU_SEGMENTS 2			/* in flight in a stream */

/* Whoever moves a segment to BUSY has it for himself: no lock is held while the driver is called. */
enum { SEGMENT_FREE, SEGMENT_BUSY, SEGMENT_OPEN, SEGMENT_FLYING };

struct gpu_segment {
	int state;
	unsigned int count;		/* launches */
	CUevent from, to;		/* NULL: not made yet */
	uint64_t began, touched;	/* ns: when `from` was recorded, when the last launch was */
};

struct gpu_stream {
	uint64_t key;			/* 0: free */
	uint64_t mean;			/* ns of a launch; 0: not known */
	uint64_t pace;			/* ns: until when what is in flight keeps the share busy */
	uint64_t calm;			/* so many launches are measured one by one */
	uint64_t calms;			/* how often that was necessary */
	struct gpu_segment segments[GPU_SEGMENTS];
};

struct gpu_context {
	uint64_t key;			/* 0: free */
	struct card *card;
	int settling;			/* a thread is at it, and has what follows for itself */
	CUevent base;			/* NULL: none yet */
	uint64_t base_ns;		/* when the card came to it at the earliest, by the clock of the host */
	uint64_t late_ns;		/* so much later it can have been */
	int64_t drift_part;		/* the clocks drift by such a part of the time at most; 0: not known yet */
	uint64_t ending_ns;		/* when the driver was told to end it; 0: not yet; atomic */
	struct cover covered;		/* of this context: what lies where to each other is known */
	struct gpu_stream streams[GPU_STREAMS];
};

struct gpu_table {
	struct mutex mutex;		/* while a context comes or goes */
	struct gpu_context contexts[GPU_CONTEXTS];
};

bool gpu_segment_claim(struct gpu_segment *segment, int state);
void gpu_segment_release(struct gpu_segment *segment, int state);

/* Charge what is over and what was left open; only one thread does, the others go on. */
void gpu_segments_settle(struct gpu_context *gpu);

/* The context is about to end. Charge what is over, where the driver can be asked (look); what was left open stays so:
 * it may run until then. */
void gpu_segments_ending(struct gpu_context *gpu, bool look);

/* The program left the claimed segment open: nobody knows when it was over. It is charged from its begin
 * to now, and this stream's launches are measured one by one for a while. */
void gpu_segment_abandon(struct gpu_context *gpu, struct gpu_stream *stream, struct gpu_segment *segment);

/* Wait until no thread settles, and let none begin: the context goes. A child of fork waits for none of its
 * parent's threads for long. */
void gpu_segments_await(struct gpu_context *gpu);

void gpu_segments_lost(struct gpu_context *gpu);	/* with their context: charged up to now */

void gpu_charge_blind(struct card *card, uint64_t ns);

#endif
