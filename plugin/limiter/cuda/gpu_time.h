/* gpu_time.h - what each launch calls: first it is held, then its time on the card is measured. */
#ifndef EDGEGPU_LIMITER_GPU_TIME_H
#define EDGEGPU_LIMITER_GPU_TIME_H

#include "charge.h"

struct gpu_segment;

struct launch {
	struct card *card;
	struct gpu_context *gpu;	/* NULL: there is no room for it */
	struct gpu_stream *stream;	/* NULL: not measured */
	struct gpu_segment *segment;	/* claimed for this launch; NULL: none was free */
	CUstream handle;		/* of the stream, for any thread's calls */
	CUcontext elsewhere;		/* the stream's, which was not current; NULL: it was */
	unsigned int percent;		/* 0: nothing to do */
	unsigned int length;		/* launches that the segment is to have */
	bool first;			/* of its segment */
	bool captured;			/* nothing ran, if it is the same capture afterwards */
	uint64_t capture;		/* its id; 0: there is none by now */
	bool blind;			/* it cannot be measured: its stream is watched */
	bool alone;			/* no launch of this thread is under way around it */
	uint64_t began;			/* ns: of a captured or blind one */
};

/* Before and after the driver's own launch. It sleeps where the container is in debt, and holds nothing
 * meanwhile. per_thread: the form of the function whose stream 0 is the thread's own. */
void gpu_time_begin(struct launch *launch, CUstream stream, bool per_thread);
CUresult gpu_time_end(struct launch *launch, CUresult ret);	/* returns ret */

/* The context of the thread as one of its calls began, which ends with the same, and what it knew of contexts then. */
struct gpu_place {
	struct gpu_context *gpu;	/* NULL: nothing is measured there */
	unsigned int epoch;
};

/* The program is about to wait for a stream: what is being measured there ends. */
struct gpu_place gpu_time_close(CUstream stream, bool per_thread);
void gpu_time_mark(CUstream stream, bool per_thread);	/* the same, if no launch follows at once */
struct gpu_place gpu_time_close_all(void);	/* for all streams of the thread's context */

/* The program is about to destroy a stream: what is being measured there ends, and nobody measures there from
 * now on. */
void gpu_time_stream_ends(CUstream stream);

void gpu_time_settle(void);		/* charge what is over, of the thread's context */
void gpu_time_settle_at(struct gpu_place place);	/* the same, and the driver is not asked which that is */

/* Before the driver ends a context, which waits for its work, and after it: its events are gone then. */
void gpu_time_ending(CUcontext context);
void gpu_time_forget(CUcontext context);

/* Call the driver's launch function `name` in its hook, measured, and return from the hook. */
#define MEASURED(name, stream, per_thread, ...)                                                   \
	do {                                                                                      \
		struct launch launch;                                                             \
		if (NESTED)                                                                       \
			return DRIVER(name)(__VA_ARGS__);                                         \
		gpu_time_begin(&launch, stream, per_thread);                                      \
		return gpu_time_end(&launch, CALL(name, __VA_ARGS__));                            \
	} while (0)

#endif
