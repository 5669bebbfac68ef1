/* cuda_graph.h - graphs: nodes in the order in which they were added, which is the order they run in. */
#ifndef EDGEGPU_SIM_CUDA_GRAPH_H
#define EDGEGPU_SIM_CUDA_GRAPH_H

#include "cuda_engine.h"

enum cu_node_kind {			/* CUgraphNodeType */
	NODE_KERNEL = 0,
	NODE_MEMCPY = 1,
	NODE_MEMSET = 2,
	NODE_HOST = 3,
	NODE_GRAPH = 4,
	NODE_EMPTY = 5,
	NODE_WAIT_EVENT = 6,
	NODE_RECORD = 7,
	NODE_ALLOC = 10,
	NODE_FREE = 11,
};

struct cu_node {
	enum cu_node_kind kind;
	uint64_t ns;			/* of a kernel */
	uint64_t key, bytes;		/* of memory */
	struct cu_dev *dev;
	void (*call)(void *data);
	void *data;
	struct cu_event *event;
	struct cu_graph *child;		/* a copy */
	struct cu_node *next;
};

struct cu_graph {			/* an instantiated one is a copy under another kind */
	struct cu_object object;
	struct cu_node *first, **last;
	size_t count;
	bool invalid;			/* a capture that something unsafe ended */
};

/* cuda_graph.c; callers of these hold the lock. */
struct cu_graph *cu_graph_new(enum cu_kind kind);	/* NULL: no memory on the host */
struct cu_graph *cu_graph_copy(const struct cu_graph *graph, enum cu_kind kind);
/* A whole call: copies the graph of a handle, as a clone or an instantiated one. */
CUresult cu_graph_copied(const char *call, struct cu_graph **out, const struct cu_graph *handle, enum cu_kind kind);
CUresult cu_graph_add(struct cu_graph *graph, struct cu_node node, struct cu_node **out);

/* cuda_capture.c */
struct cu_graph *cu_capture_of(struct cu_stream *stream);	/* NULL: the stream does what it is told */
CUresult cu_captured(struct cu_stream *stream, struct cu_node node);
CUresult cu_unsafe(void);		/* what a call answers that may not happen during a capture */

/* cuda_modules.c: a function's or kernel's duration; 0 where the handle is none. */
bool cu_kernel_ns(void *function, void **arguments, uint64_t *ns);
int cu_kernel_local(void *function);	/* bytes that each thread needs; 0: of no function either */

#endif
