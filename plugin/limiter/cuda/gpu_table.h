/* gpu_table.h - the contexts and streams of which something is measured. */
#ifndef EDGEGPU_LIMITER_GPU_TABLE_H
#define EDGEGPU_LIMITER_GPU_TABLE_H

#include "gpu_segment.h"

#define LEGACY ((CUstream)1)
#define PER_THREAD ((CUstream)2)

/* The stream's handle that is the same in all forms of functions. per_thread: the form whose stream 0 is the thread's own. */
static inline CUstream gpu_handle(CUstream stream, bool per_thread)
{
	if (stream == LEGACY)
		return NULL;
	return stream == NULL && per_thread ? PER_THREAD : stream;
}

/* NULL: more contexts than there is room for. */
struct gpu_context *gpu_context_of(CUcontext context, struct card *card);

/* NULL: it is not known yet, and is not to be; or more streams are busy than there is room for. */
struct gpu_stream *gpu_stream_of(struct gpu_context *gpu, CUstream handle, bool make);

/* The same of a stream of the program's own, in whatever context it is but this one. */
struct gpu_stream *gpu_stream_elsewhere(const struct gpu_context *not, CUstream handle, struct gpu_context **of);

/* The stream is about to end: nobody uses its handle any more. */
void gpu_stream_gone(struct gpu_stream *stream);

bool gpu_table_empty(void);		/* nothing was launched yet that had to be measured */
struct gpu_context *gpu_table_find(CUcontext context);	/* NULL: nothing was launched there */
void gpu_table_forget(CUcontext context);

#endif
