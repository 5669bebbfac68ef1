/* cuda_core.h - the simulated part of the CUDA driver interface, and what its files share. */
#ifndef EDGEGPU_SIM_CUDA_CORE_H
#define EDGEGPU_SIM_CUDA_CORE_H

#include "sim.h"

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct cu_ctx *CUcontext;
typedef struct cu_stream *CUstream;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_ALREADY_MAPPED = 208,
	CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = 708,
	CUDA_ERROR_PEER_ALREADY_ENABLED = 704,
	CUDA_ERROR_PEER_NOT_ENABLED = 705,
	CUDA_ERROR_FILE_NOT_FOUND = 301,
	CUDA_ERROR_OPERATING_SYSTEM = 304,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_CAPTURED_EVENT = 907,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_UNKNOWN = 999,
};

#define MULTIPROCESSORS 40
#define THREADS_EACH 1024		/* that a multiprocessor can run at once */

struct cu_dev {
	const struct sim_card *card;
	const struct sim_mig *mig;	/* NULL: the whole card */
	int entry;
	uint64_t total, limit;		/* bytes; the limit is less what the driver reserves */
	CUcontext primary;
	unsigned int primary_users;
	unsigned int primary_flags;
	struct cu_pool *pools, *pool, *default_pool, *graph_pool;	/* pool: what cuMemAllocAsync uses */
	uint64_t turn_at, turn_end;	/* of this process on the card: what is left, in ns */
};

struct cu_ctx {
	struct cu_dev *dev;
	struct cu_ctx *next;
	bool primary;
	unsigned int flags, version, peers;
	unsigned long long id;
	size_t settings[3];		/* stack, printf buffer, heap, as they were set; 0: never */
	size_t local;			/* what each thread of the largest kernel needed */
	uint64_t setting_bytes;		/* what these take of the card */
	struct cu_stream *stream;	/* the default one; NULL before it is used */
};

struct cu_function {			/* an exported function, by functions.txt */
	const char *base;		/* its name without _vN, _ptsz and _ptds */
	int since;			/* the CUDA version that first has it, as 12060 */
	bool per_thread;		/* the variant for the per-thread default stream */
	void *at;
};
extern const struct cu_function cu_functions[];
extern const size_t cu_function_count;

/* Each call begins with one of these. */
CUresult cu_enter(const char *call);
CUresult cu_enter_dev(const char *call, CUdevice index, struct cu_dev **dev);
CUresult cu_enter_ctx(const char *call, CUcontext *ctx);
CUresult cu_enter_locked(const char *call);	/* also in a process that is locked for a checkpoint */

/* Each file calls those of the files before it here, never of one behind it. */

/* cuda_mps.c: whether this process became a client of MPS when it was initialised. */
void cu_mps_connect(void);
bool cu_mps_client(void);

/* cuda_visible.c: CUDA_VISIBLE_DEVICES over all that this process can open. */
int cu_visible(const struct sim_driver *drv, struct cu_dev *out, int max);

/* cuda_init.c */
const struct sim_driver *cu_driver(void);
int cu_version(void);			/* as cuDriverGetVersion gives it, before cuInit too */
CUresult cu_not_simulated(const char *call);	/* what a function without a simulation answers */
struct cu_dev *cu_dev_at(int index);
int cu_dev_index(const struct cu_dev *dev);
void cu_lock(void);			/* guards contexts and allocations of this process */
void cu_unlock(void);

/* cuda_stack.c; callers of these hold the lock. */
void cu_add_context(CUcontext ctx);
void cu_remove_context(CUcontext ctx);
bool cu_lives(CUcontext ctx);
CUcontext cu_current(void);		/* of this thread; NULL: none */
CUresult cu_push(CUcontext ctx);
void cu_pop(void);			/* needs no lock */

/* cuda_objects.c; callers of these hold the lock. */
bool cu_take(struct cu_dev *dev, uint64_t bytes);
void cu_give(struct cu_dev *dev, uint64_t bytes);

/* cuda_ctx_info.c: a kernel is launched whose threads need so much; false: there is no memory for it. */
bool cu_local(CUcontext ctx, size_t bytes);

/* cuda_mem.c; the caller holds the lock. */
bool cu_range_valid(CUdeviceptr at, size_t bytes);

#endif
