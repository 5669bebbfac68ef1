/* gpu_segment.h - what is being measured: segments of launches in the streams of the contexts. */
#ifndef EDGEGPU_LIMITER_GPU_SEGMENT_H
#define EDGEGPU_LIMITER_GPU_SEGMENT_H

#include "capture.h"

#define GPU_CONTEXTS 256
#define GPU_STREAMS 32			/* of a context; one that was idle makes room for another */
#define NOT_READY 600			/* what the driver says of work that is not over */
#define GPU_SEGMENTS 2			/* in flight in a stream */

/* Whoever moves a segment to BUSY has it for himself: no lock is held while the driver is called. */
enum { SEGMENT_FREE, SEGMENT_BUSY, SEGMENT_OPEN, SEGMENT_FLYING };

struct gpu_segment {
	int state;
	unsigned int count;		/* launches */
	int marked;			/* `to` is recorded behind the last of them, though it is open; atomic */
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
	struct card *card;		/* atomic: another one where an address comes again on another card */
	int settling;			/* a thread is at it, and has what follows for itself */
	CUevent base;			/* NULL: none yet */
	uint64_t base_ns;		/* when the card came to it at the earliest, by the clock of the host */
	uint64_t late_ns;		/* so much later it can have been */
	int64_t drift_part;		/* the clocks drift by such a part of the time at most; 0: not known yet */
	unsigned int looks;		/* so often a segment in flight was looked at closely since one was over */
	uint64_t ending_ns;		/* when the driver was told to end it; 0: not yet; atomic */
	struct cover covered;		/* of this context: what lies where to each other is known */
	struct gpu_stream streams[GPU_STREAMS];
};

static inline struct card *gpu_card_of(const struct gpu_context *gpu)
{
	return __atomic_load_n(&gpu->card, __ATOMIC_RELAXED);
}

struct gpu_table {
	struct mutex mutex;		/* while a context comes or goes */
	unsigned int known;		/* contexts[] from there on were never used; atomic */
	struct gpu_context contexts[GPU_CONTEXTS];
};

bool gpu_segment_claim(struct gpu_segment *segment, int state);
void gpu_segment_release(struct gpu_segment *segment, int state);

/* Charge what is over and what was left open; only one thread does, the others go on. True: when a segment that is in
 * flight is over should be seen at once, for where those of this context lie is not known well. */
bool gpu_segments_settle(struct gpu_context *gpu);

/* The context is about to end. End what is open in living streams and charge what is over, where the driver can be
 * asked (look). */
void gpu_segments_ending(struct gpu_context *gpu, bool look);

/* Ends the claimed segment here; handle: its stream's. False: the stream captures by now, and it stays open.
 * ours: it surely does not. */
bool gpu_segment_close(struct gpu_segment *segment, CUstream handle, bool ours);

/* The same where it may go on: it ends here if it does not. */
void gpu_segment_mark(struct gpu_segment *segment, CUstream handle);

/* The program left the claimed segment open. A stream that still works has it closed now. Of one that is idle
 * nobody knows when it was over: it is charged from its begin to now, ABANDONED_NS at most, and launches are
 * measured one by one for a while. Gives the segment back. */
void gpu_segment_left(struct gpu_context *gpu, struct gpu_stream *stream, struct gpu_segment *segment);

/* So long ago was its last launch that what came after it is not to be taken for work. */
bool gpu_segment_silent(const struct gpu_segment *segment);

/* The same of a segment whose launch is gone with its thread's stack. */
void gpu_segment_abandon(struct gpu_context *gpu, struct gpu_stream *stream, struct gpu_segment *segment);

/* The stream's handle, as long as one of its segments is claimed; false: it ended, or it is another thread's. */
bool gpu_stream_handle(const struct gpu_stream *stream, CUstream *out);

void gpu_segments_close(struct gpu_context *gpu);	/* those that are open */

/* Wait until no thread has a segment of the stream, whose handle ends; not for long. */
void gpu_stream_await(const struct gpu_stream *stream);

/* Wait until no thread settles, and let none begin: the context goes. A child of fork waits for none of its
 * parent's threads for long. */
void gpu_segments_await(struct gpu_context *gpu);

void gpu_segments_lost(struct gpu_context *gpu);	/* with their context: charged up to now */

void gpu_charge_blind(struct card *card, uint64_t ns);

/* The card worked for the context from `began` to now; gpu NULL: nobody knows for which. */
void gpu_charge_since(struct gpu_context *gpu, struct card *card, uint64_t began);

#endif
