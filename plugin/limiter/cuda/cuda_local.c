/* cuda_local.c - local memory: what each thread of a kernel has beyond its registers.
 *
 * Assumed, by what NVIDIA documents of CU_LIMIT_STACK_SIZE and CU_CTX_LMEM_RESIZE_TO_MAX: the driver has it for all threads
 * that the card can run at once, as much for each as the stack that was set, or as the kernel needs that needs most of those
 * that were launched in the context, and it keeps it. What the first stack takes is part of the context (cuda_stack.c). */
#include <string.h>

#include "local.h"
#include "stack.h"

#define LOCAL_BYTES 3			/* CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES */
#define LEAST_STACK 1024		/* what no context has less of */
#define UNKNOWN UINT64_MAX		/* it was not asked for yet */

enum { IS_FUNCTION, IS_KERNEL };	/* what a handle is: `references` of its entry */

#define HARMLESS 16			/* a power of two */

/* What this thread launched last and may launch again as it is: a kernel that has what it needs, and some that need little,
 * as long as no further function was asked for, which may have the handle of one that is gone. */
static __thread struct {
	const void *function;
	CUstream stream;
	CUcontext context;
	unsigned int epoch, number;
	const void *harmless[HARMLESS];
} last __attribute__((tls_model("initial-exec")));

static const void **harmless_place(const void *function)
{
	return &last.harmless[((uintptr_t)function * 0x9e3779b97f4a7c15u) >> 60 & (HARMLESS - 1)];
}

static void remember(const void *handle, unsigned int kind)
{
	struct process *own = process_own();

	if (own == NULL || !ledger_put((struct ledger_entry){ .key = (uintptr_t)handle, .bytes = UNKNOWN,
							      .references = kind, .kind = LEDGER_LOCAL, .card = -1 }))
		return;
	if (__atomic_add_fetch(&own->locals, 1, __ATOMIC_RELEASE) == 0)
		__atomic_add_fetch(&own->locals, 1, __ATOMIC_RELEASE);
}

void local_function(const void *function)
{
	remember(function, IS_FUNCTION);
}

void local_kernel(CUkernel kernel)
{
	remember(kernel, IS_KERNEL);
}

/* Of the current context's device. 0: as little as any, or the driver does not say. */
static uint64_t ask(const struct ledger_entry *entry)
{
	int bytes = 0, mode = CU_CAPTURE_RELAXED;
	CUdevice device = 0;
	CUresult ret;

	CALL(cuThreadExchangeStreamCaptureMode, &mode);
	if (entry->references == IS_FUNCTION)
		ret = CALL(cuFuncGetAttribute, &bytes, LOCAL_BYTES, (void *)(uintptr_t)entry->key);
	else if ((ret = CALL(cuCtxGetDevice, &device)) == CUDA_SUCCESS)
		ret = CALL(cuKernelGetAttribute, &bytes, LOCAL_BYTES, (CUkernel)(uintptr_t)entry->key, device);
	CALL(cuThreadExchangeStreamCaptureMode, &mode);
	return ret == CUDA_SUCCESS && bytes > LEAST_STACK ? (uint64_t)bytes : 0;
}

/* Most need little: of those nothing is remembered any more. */
static uint64_t need(struct ledger_entry *entry)
{
	if (entry->bytes != UNKNOWN)
		return entry->bytes;
	entry->bytes = ask(entry);
	if (entry->bytes != 0)
		ledger_put(*entry);
	else
		ledger_take(LEDGER_LOCAL, entry->key, entry);
	return entry->bytes == UNKNOWN ? 0 : entry->bytes;
}

/* In the current context. */
static CUresult reserve(const struct ledger_entry *known)
{
	struct ledger_entry entry = *known;
	CUcontext context = NULL;
	struct card *card = charge_current_card(&context);
	uint64_t bytes;

	if (card == NULL)
		return CUDA_SUCCESS;
	bytes = need(&entry);
	return bytes == 0 || stack_of_kernel(card, context, bytes) ? CUDA_SUCCESS : charge_refused(card);
}

static __attribute__((noinline, cold)) CUresult first_launch(const struct ledger_entry *entry, CUstream stream,
							     CUcontext current)
{
	CUcontext of = charge_other_context(stream, current), popped;
	CUresult ret;

	if (of != NULL && CALL(cuCtxPushCurrent_v2, of) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	ret = reserve(entry);
	if (of != NULL)
		CALL(cuCtxPopCurrent_v2, &popped);
	return ret;
}

static __attribute__((noinline)) CUresult look(const void *function, CUstream stream, unsigned int number)
{
	struct ledger_entry entry;
	CUcontext current = NULL;
	unsigned int epoch = __atomic_load_n(&process_own()->epoch, __ATOMIC_ACQUIRE);
	CUresult ret;

	if (last.number != number)
		memset(&last, 0, sizeof(last));
	last.number = number;
	if (!ledger_get(LEDGER_LOCAL, (uintptr_t)function, &entry)) {
		*harmless_place(function) = function;
		return CUDA_SUCCESS;
	}
	if (CALL(cuCtxGetCurrent, &current) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	if (last.function == function && last.stream == stream && last.context == current && last.epoch == epoch)
		return CUDA_SUCCESS;
	ret = first_launch(&entry, stream, current);
	if (ret == CUDA_SUCCESS && current != NULL) {
		last.function = function;
		last.stream = stream;
		last.context = current;
		last.epoch = epoch;
	}
	return ret;
}

CUresult local_launch(const void *function, CUstream stream)
{
	struct process *own = process_own();
	unsigned int number = own != NULL ? __atomic_load_n(&own->locals, __ATOMIC_ACQUIRE) : 0;

	if (number == 0 || (last.number == number && *harmless_place(function) == function && function != NULL))
		return CUDA_SUCCESS;
	return look(function, stream, number);
}
