/* cuda_engine.h - what streams have to do, and when the card does it. */
#ifndef EDGEGPU_SIM_CUDA_ENGINE_H
#define EDGEGPU_SIM_CUDA_ENGINE_H

#include "cuda_objects.h"

enum cu_op_kind { OP_KERNEL, OP_RECORD, OP_WAIT_EVENT, OP_WAIT_VALUE, OP_WRITE_VALUE, OP_HOST };

struct cu_event {
	struct cu_object object;
	unsigned int flags;
	bool captured;			/* the newest record is a graph's */
	uint64_t recorded;		/* how often it was recorded; 0: never */
	uint64_t scheduled;		/* the newest record that has a time */
	uint64_t at;			/* that time, in ns */
};

struct cu_value {			/* a value in memory, to be waited for or written */
	uint64_t address, value;
	unsigned int flags;		/* as cuStreamWaitValue: 0 >=, 1 ==, 2 &, 3 nor */
	bool wide, host;		/* 64 bits; memory that the host can read */
};

struct cu_op {
	enum cu_op_kind kind;
	uint64_t number, submitted;	/* in the order of the device; ns */
	uint64_t ns;			/* of a kernel: what is left of it */
	struct cu_event *event;
	uint64_t record;		/* of the event: which one */
	struct cu_value value;
	void (*call)(void *data);
	void *data;
	struct cu_op *next;
};

struct cu_stream {
	struct cu_object object;
	unsigned int flags;
	int priority;
	struct cu_graph *capture;	/* NULL: not capturing */
	uint64_t capture_id;		/* no other capture of the process has it */
	int capture_mode;
	unsigned long capture_thread;
	bool calling, ended;		/* in a host function; to be freed when that is over */
	struct cu_op *first, **last;
	uint64_t given, done;		/* operations: submitted, scheduled */
	uint64_t until;			/* when the last scheduled one is over, in ns */
	struct cu_stream *next;		/* of the engine */
};

/* cuda_values.c: memory that stream operations wait for and write. */
bool cu_value_on_host(uint64_t address);	/* the caller holds the lock; none of the others needs it */
bool cu_value_met(const struct cu_value *value);
void cu_value_write(const struct cu_value *value);

/* cuda_turns.c: true where the stream's first kernel got time, else when to look again. */
bool cu_run_kernel(struct cu_stream *stream, uint64_t *wake);

/* When the card comes to what needs no time of it but is this process's, in ns from a time on. */
uint64_t cu_turn_for(const struct cu_stream *stream, uint64_t from);

/* cuda_engine.c: the queues of the streams; one thread of a process goes on with them. */
void cu_engine_lock(void);
void cu_engine_unlock(void);
CUresult cu_enqueue(struct cu_stream *stream, struct cu_op op);	/* this and the next three: locked */
void cu_engine_move(void);		/* does what can be done now */
void cu_engine_wait(void);		/* until something went on, or a moment */
void cu_engine_each(void (*call)(struct cu_stream *stream, void *data), void *data);
void cu_engine_add(struct cu_stream *stream);
void cu_engine_remove(struct cu_stream *stream, bool finish);	/* frees it; finish: only when it is done */

/* cuda_waits.c */
CUresult cu_submit(struct cu_stream *stream, struct cu_op op);
void cu_wait_stream(struct cu_stream *stream);
void cu_wait_context(CUcontext ctx);	/* all its streams, those too whose handle is gone */
bool cu_stream_idle(struct cu_stream *stream);
CUresult cu_record(struct cu_stream *stream, struct cu_event *event);
CUresult cu_stream_wait(struct cu_stream *stream, struct cu_event *event);
bool cu_event_time(struct cu_event *event, uint64_t *at);	/* false: not yet to be known */
void cu_wait_event(struct cu_event *event);
void cu_forget_event(struct cu_event *event);

/* cuda_streams.c: from a handle to the stream, with its context current. */
CUresult cu_enter_stream(const char *call, struct cu_stream *handle, struct cu_stream **out);
CUresult cu_ask_stream(const char *call, struct cu_stream *handle, const void *answer,
		       struct cu_stream **out);	/* the same; the answer needs a place */

#endif
