/* selftest.h - a small program that tries the limiter on this machine's cards. */
#ifndef EDGEGPU_SELFTEST_H
#define EDGEGPU_SELFTEST_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda.h"
#include "names.h"

#define MIB (1ull << 20)
#define EACH (32 * MIB)			/* of one allocation */
#define TRIES 4				/* allocations of one way: 128 MiB at most, and given back */
#define PAYLOAD (100 * MIB)		/* the limit above a context: three of them */

#define KERNELS 100			/* of the work that is timed */
#define KERNEL_US 1000
#define CORE_PERCENT 20			/* what the limiter is to hold that work to */

#define CARDS_TRIED 64
#define PATH_ROOM 256			/* as much as the limiter has for a folder (settings.h) */
#define CARD_ROOM 64
#define ERROR_ROOM 160

#define SECONDS_MAX 60
#define ROOM (768 * MIB)		/* a card with less free is left alone: others need it */
#define ALL_S 300			/* no run begins later than that */

enum step {
	STEP_LOAD, STEP_NAMES, STEP_INIT, STEP_DEVICE, STEP_CONTEXT, STEP_INFO, STEP_WAYS, STEP_MODULE, STEP_LAUNCH, STEP_COMPUTE,
	STEP_HOLD, STEP_DONE
};

enum way { WAY_PLAIN, WAY_MANAGED, WAY_ASYNC, WAY_VIRTUAL, WAY_GRAPH, WAY_LOOKUP, WAY_LOOKUP_V2, WAYS };

struct taken {
	int granted;			/* allocations */
	int code;			/* of the first that was not; 0: there was none */
	bool missing;			/* the driver has no such function */
};

struct kernel {
	bool missing;			/* the driver has no such functions */
	int code;			/* of the call that did not go well; 0: all did */
	enum step at;			/* which that was */
	uint64_t work_us;		/* from the first of KERNELS launches to the end of the last; 0: not come to */
};

/* What a run has seen so far, in memory that its parent shares: a crash loses nothing of it. */
struct run {
	enum step step;			/* that was begun last */
	int way;			/* in STEP_WAYS */
	int code;			/* of the call at which the run ended early; 0: none */
	uint64_t init_us;		/* from cuInit to the context */
	int64_t context_bytes;		/* -1: not known */
	uint64_t total_bytes, free_bytes;	/* by cuMemGetInfo */
	int cuda_version;		/* by cuDriverGetVersion: 12060 for 12.6; 0: not known */
	int64_t nvml_total_bytes;	/* -1: not known */
	bool listed;			/* NVML has a figure of this process, with its context */
	struct taken ways[WAYS], hold;
	struct kernel kernel;
	struct names names;
	bool no_room;			/* less than ROOM was free: nothing was begun */
	char error[ERROR_ROOM];		/* of the loader */
};

enum ended { ENDED_EXIT, ENDED_SIGNAL, ENDED_LATE, NOT_BEGUN };

struct outcome {
	enum ended ended;
	int number;			/* status or signal */
	struct run run;
};

struct setup {
	char id[CARD_ROOM];
	char work[PATH_ROOM], limiter[PATH_ROOM], driver[PATH_ROOM];
	char cards[CARDS_TRIED][CARD_ROOM];
	unsigned int count;
	unsigned int seconds;		/* of one run */
};

struct libraries {			/* as the loader takes them */
	char cuda[PATH_ROOM + 32], nvml[PATH_ROOM + 32];
};

/* request.c */
bool request_read(const char *work, struct setup *out);

/* stamp.c: a copy of a library of the limiter in memory, with these folders in it; -1: none. */
int stamp_library(const char *path, const char *folder, const char *driver);

/* program.c: what a process that uses a card does. It ends with the process. */
void program_first(const struct libraries *libraries, struct run *run, int go, bool needs_room)
	__attribute__((noreturn));
void program_second(const struct libraries *libraries, struct run *run) __attribute__((noreturn));

static inline void run_reach(struct run *run, enum step next)
{
	__atomic_store_n(&run->step, next, __ATOMIC_RELEASE);
}

/* graph.c: a graph with a node that takes memory, launched. What was given has to be given back. */
struct graph_memory {
	CUgraph graph;
	CUgraphExec exec;
	CUdeviceptr at;
};

CUresult graph_take(void *cuda, struct graph_memory *out);
void graph_give(void *cuda, const struct graph_memory *memory);

/* kernel.c: load a module, launch its kernel, then many of it. */
void kernel_run(void *cuda, struct run *run);

/* lookup.c: plain memory by the function that cuGetProcAddress gives, of one generation or the other. */
CUresult lookup_take(void *cuda, enum way way, CUdeviceptr *out);

/* memory.c: take memory in one way until it is refused, TRIES at most; give it back unless it is to be held. */
void memory_take(void *cuda, enum way way, bool hold, struct taken *out);

/* answer.c: what was seen, as JSON. */
struct card_outcome {
	struct outcome native, held, second;	/* second: beside the held one, while it holds its memory */
};

bool answer_write(const struct setup *setup, const struct card_outcome *cards);

#endif
