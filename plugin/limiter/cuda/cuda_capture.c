/* cuda_capture.c - counts the captures that are going on in the process, for only then a launch costs the driver's word on
 * whether its stream captures, and a change of the thread's mode around each group of our own calls.
 *
 * Only an end that succeeded counts: after a capture that ended otherwise, as with its stream, the driver is asked as long
 * as the process lives. So it is after an event that cannot be asked for its time: a capture may go on that no hook saw
 * begin. */
#define _GNU_SOURCE
#include "capture.h"
#include "system.h"

#define CAPTURE_IMPLICIT 906		/* of the default stream: another one captures */
#define CAPTURE_ONGOING 1		/* a status: the capture is valid so far */
#define CAPTURE_ANY 1			/* an id where the driver gives none */
#define UNSEEN (1u << 31)		/* of the captures that are counted: one that was not seen may go on */
#define AWAIT_NS 20000l
#define AWAIT_MAX_NS 2000000000ull	/* a thread may have left its call of the driver by longjmp, or wait there for this one */

bool capture_active(CUstream stream)
{
	int status = 0;
	CUresult ret;

	if (!capture_possible())
		return false;
	ret = CALL(cuStreamIsCapturing, stream, &status);
	return ret == CAPTURE_IMPLICIT || (ret == CUDA_SUCCESS && status != 0);
}

/* NVIDIA's document of cuStreamGetCaptureInfo: the id is unique over the lifetime of the process, and valid while the
 * status is "active". All drivers since 418 have the function. In one that lacked it all captures would have one id. */
uint64_t capture_id(CUstream stream)
{
	uint64_t id = 0;
	int status = 0;
	CUresult ret = CALL(cuStreamGetCaptureInfo, stream, &status, &id);

	if (ret == CUDA_ERROR_NOT_SUPPORTED)
		return capture_active(stream) ? CAPTURE_ANY : 0;
	return ret == CUDA_SUCCESS && status == CAPTURE_ONGOING ? id : 0;
}

/* A thread that was taken to be lost is awaited again. */
static void give_back(struct process *own)
{
	int left = __atomic_sub_fetch(&own->unrelaxed, 1, __ATOMIC_SEQ_CST);

	if (__atomic_load_n(&own->unrelaxed_lost, __ATOMIC_SEQ_CST) > left)
		__atomic_store_n(&own->unrelaxed_lost, left, __ATOMIC_SEQ_CST);
}

/* In one order with the begin of a capture (begin): either it is seen here, or this is seen there. */
int capture_relax(void)
{
	struct process *own = process_own();
	int mode = CU_CAPTURE_RELAXED;

	if (own != NULL) {
		__atomic_add_fetch(&own->unrelaxed, 1, __ATOMIC_SEQ_CST);
		if (!capture_possible())
			return CAPTURE_NONE;
		capture_restore(CAPTURE_NONE);
	}
	return CALL(cuThreadExchangeStreamCaptureMode, &mode) == CUDA_SUCCESS ? mode : -1;
}

void capture_restore(int mode)
{
	struct process *own = process_own();

	if (mode >= 0)
		CALL(cuThreadExchangeStreamCaptureMode, &mode);
	else if (mode == CAPTURE_NONE && own != NULL)
		give_back(own);
}

void capture_unseen(void)
{
	struct process *own = process_own();

	if (own != NULL)
		__atomic_or_fetch(&own->captures, UNSEEN, __ATOMIC_SEQ_CST);
}

/* Those that were awaited in vain are not awaited again, unless they come back after all (give_back). */
static void await_unrelaxed(struct process *own)
{
	uint64_t began = bucket_now();
	int left;

	while ((left = __atomic_load_n(&own->unrelaxed, __ATOMIC_SEQ_CST)) >
	       __atomic_load_n(&own->unrelaxed_lost, __ATOMIC_SEQ_CST)) {
		if (bucket_now() - began > AWAIT_MAX_NS) {
			__atomic_store_n(&own->unrelaxed_lost, left, __ATOMIC_SEQ_CST);
			break;
		}
		system_sleep(AWAIT_NS);
	}
}

static struct process *begin(void)
{
	struct process *own = process_own();

	if (own == NULL)
		return NULL;
	__atomic_add_fetch(&own->captures, 1, __ATOMIC_SEQ_CST);
	await_unrelaxed(own);
	return own;
}

static CUresult end(struct process *own, bool ended, CUresult ret)
{
	unsigned int count = own != NULL ? __atomic_load_n(&own->captures, __ATOMIC_SEQ_CST) : 0;

	while (ended && (count & ~UNSEEN) != 0 &&
	       !__atomic_compare_exchange_n(&own->captures, &count, count - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return ret;
}

#define BEGIN(name, ...)                                                                          \
	do {                                                                                      \
		struct process *own;                                                              \
		CUresult ret;                                                                     \
		if (NESTED)                                                                       \
			return DRIVER(name)(__VA_ARGS__);                                         \
		own = begin();                                                                    \
		ret = CALL(name, __VA_ARGS__);                                                    \
		return end(own, ret != CUDA_SUCCESS, ret);                                        \
	} while (0)

#define END(name, ...)                                                                            \
	do {                                                                                      \
		CUresult ret;                                                                     \
		if (NESTED)                                                                       \
			return DRIVER(name)(__VA_ARGS__);                                         \
		ret = CALL(name, __VA_ARGS__);                                                    \
		return end(process_own(), ret == CUDA_SUCCESS, ret);                              \
	} while (0)

CUresult EXPORT cuStreamBeginCapture(CUstream stream)
{
	BEGIN(cuStreamBeginCapture, stream);
}

CUresult EXPORT cuStreamBeginCapture_ptsz(CUstream stream)
{
	BEGIN(cuStreamBeginCapture_ptsz, stream);
}

CUresult EXPORT cuStreamBeginCapture_v2(CUstream stream, int mode)
{
	BEGIN(cuStreamBeginCapture_v2, stream, mode);
}

CUresult EXPORT cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode)
{
	BEGIN(cuStreamBeginCapture_v2_ptsz, stream, mode);
}

CUresult EXPORT cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const void *edges,
					    size_t count, int mode)
{
	BEGIN(cuStreamBeginCaptureToGraph, stream, graph, nodes, edges, count, mode);
}

CUresult EXPORT cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
						 const void *edges, size_t count, int mode)
{
	BEGIN(cuStreamBeginCaptureToGraph_ptsz, stream, graph, nodes, edges, count, mode);
}

CUresult EXPORT cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, void *function, void *data)
{
	BEGIN(cuStreamBeginRecaptureToGraph, stream, mode, graph, function, data);
}

CUresult EXPORT cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph, void *function, void *data)
{
	BEGIN(cuStreamBeginRecaptureToGraph_ptsz, stream, mode, graph, function, data);
}

CUresult EXPORT cuStreamBeginCaptureToCig(CUstream stream, void *params)
{
	BEGIN(cuStreamBeginCaptureToCig, stream, params);
}

CUresult EXPORT cuStreamBeginCaptureToCig_ptsz(CUstream stream, void *params)
{
	BEGIN(cuStreamBeginCaptureToCig_ptsz, stream, params);
}

CUresult EXPORT cuStreamEndCapture(CUstream stream, CUgraph *out)
{
	END(cuStreamEndCapture, stream, out);
}

CUresult EXPORT cuStreamEndCapture_ptsz(CUstream stream, CUgraph *out)
{
	END(cuStreamEndCapture_ptsz, stream, out);
}

CUresult EXPORT cuStreamEndCaptureToCig(CUstream stream)
{
	END(cuStreamEndCaptureToCig, stream);
}

CUresult EXPORT cuStreamEndCaptureToCig_ptsz(CUstream stream)
{
	END(cuStreamEndCaptureToCig_ptsz, stream);
}
